-- Upkeep: what the watchdog needs to look after everything else. Each statement
-- stands for itself and may be repeated, since an index that nobody shall wait
-- for cannot be made within a transaction.

-- +goose NO TRANSACTION
-- +goose Up

CREATE TABLE IF NOT EXISTS duty (
    name        text PRIMARY KEY,
    owner       text NOT NULL,
    lease_until timestamptz NOT NULL,
    done_at     timestamptz,
    result      json
) WITH (fillfactor = 50);
COMMENT ON TABLE duty IS 'Work that one instance does at a time, under a lease: comparing the event stream, replays, the canary, retention.';
COMMENT ON COLUMN duty.done_at IS 'When it was last done to the end; NULL: never.';
COMMENT ON COLUMN duty.result IS 'What came of it then.';

CREATE TABLE IF NOT EXISTS replay (
    id           uuid PRIMARY KEY,
    since        timestamptz NOT NULL,
    until        timestamptz NOT NULL,
    tenant       text NOT NULL DEFAULT '',
    state        text NOT NULL DEFAULT '',
    requested_by text NOT NULL,
    status       text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done', 'cancelled')),
    reached      timestamptz NOT NULL,
    total        bigint,
    published    bigint NOT NULL DEFAULT 0,
    fault        text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz,
    CHECK (until > since)
) WITH (fillfactor = 70);
COMMENT ON TABLE replay IS 'Events that a person has had published again from the history. Rows are kept: they say who did it.';
COMMENT ON COLUMN replay.reached IS 'Every event before it is published; where another instance goes on after a crash.';
COMMENT ON COLUMN replay.total IS 'How many events there were to publish; NULL: too many to count in a moment.';
CREATE INDEX IF NOT EXISTS replay_running ON replay (id) WHERE status = 'running';

CREATE TABLE IF NOT EXISTS alarm (
    name       text PRIMARY KEY,
    raised     boolean NOT NULL,
    version    int NOT NULL CHECK (version >= 1),
    value      float8 NOT NULL,
    text       text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
COMMENT ON TABLE alarm IS 'What is not as it should be, so that many watchdogs raise it once and clear it once.';
COMMENT ON COLUMN alarm.version IS 'Raised and cleared in turn: odd while raised, one event each.';

-- Retention finds old keys by the time that the delivery's id carries. New ids go to
-- the right edge of this index and old ones leave at the left, in whole pages; BRIN
-- would cost less to keep, but space that deletes have freed is filled again with new
-- keys, after which its ranges reach from old to new and exclude nothing. Partitions
-- by time are no way: a key must be unique over all of them.
DROP INDEX IF EXISTS request_key_age;
CREATE INDEX CONCURRENTLY request_key_age ON request_key (delivery_id);
