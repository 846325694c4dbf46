-- Protection: breakers, rate limits, caps and pauses of lanes; monthly quotas.

-- +goose Up

ALTER TABLE lane
    ADD COLUMN channel       text NOT NULL DEFAULT '',
    ADD COLUMN breaker       text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    ADD COLUMN forced        boolean NOT NULL DEFAULT false,
    ADD COLUMN opened_at     timestamptz,
    ADD COLUMN failures      int NOT NULL DEFAULT 0,
    ADD COLUMN probes        int NOT NULL DEFAULT 1 CHECK (probes >= 1),
    ADD COLUMN probed        int NOT NULL DEFAULT 0,
    ADD COLUMN rate_limit    int CHECK (rate_limit > 0),
    ADD COLUMN daily_limit   int CHECK (daily_limit > 0),
    ADD COLUMN max_in_flight int CHECK (max_in_flight > 0),
    ADD COLUMN rate_tat      timestamptz,
    ADD COLUMN day           date,
    ADD COLUMN day_used      int NOT NULL DEFAULT 0,
    ADD COLUMN full_until    timestamptz,
    ADD COLUMN full_reason   text NOT NULL DEFAULT '',
    ADD COLUMN cap           int CHECK (cap >= 1),
    ADD COLUMN rate_cap      int CHECK (rate_cap >= 1),
    ADD COLUMN cap_reason    text NOT NULL DEFAULT '',
    ADD COLUMN capped_at     timestamptz,
    ADD COLUMN version       int NOT NULL DEFAULT 0;

UPDATE lane SET channel = split_part(key, '$', 1);

ALTER TABLE lane ADD COLUMN guarded boolean NOT NULL GENERATED ALWAYS AS
    (breaker <> 'closed' OR rate_limit IS NOT NULL OR daily_limit IS NOT NULL OR max_in_flight IS NOT NULL OR cap IS NOT NULL) STORED;

COMMENT ON COLUMN lane.shut_until IS 'While in the future the claim skips the lane: its breaker is open. NULL: not shut.';
COMMENT ON COLUMN lane.shut_reason IS 'The last failure before it opened, bounded; or why an operator forced it.';
COMMENT ON COLUMN lane.channel IS 'What stands before the $ of its key, so that a channel can be paused.';
COMMENT ON COLUMN lane.breaker IS 'open, with shut_until; half_open: at most probes rows may be leased or have succeeded; a leased row is the permit.';
COMMENT ON COLUMN lane.probed IS 'Probes that have succeeded since it became half open.';
COMMENT ON COLUMN lane.rate_tat IS 'Generic cell rate algorithm: the theoretical arrival time of the next send.';
COMMENT ON COLUMN lane.day_used IS 'Sends begun on that day (UTC).';
COMMENT ON COLUMN lane.full_until IS 'While in the future the claim skips the lane: its rate or daily limit is used up until then.';
COMMENT ON COLUMN lane.cap IS 'Rows in work at most over all instances just now: after an outage or a throttling answer, growing with success. NULL: no such limit.';
COMMENT ON COLUMN lane.rate_cap IS 'As cap, for sends per minute.';
COMMENT ON COLUMN lane.guarded IS 'A claim must lock the lane and count what it takes; other lanes are only read.';
COMMENT ON COLUMN lane.version IS 'Counts changes of breaker and caps, one event each.';

CREATE INDEX lane_shut ON lane (id) WHERE breaker = 'open';

-- What is in work in one lane is counted by its owners.
DROP INDEX queue_leased;
CREATE INDEX queue_leased ON queue (owner, lane) WHERE state = 'leased';

CREATE TABLE pause (
    scope    text NOT NULL CHECK (scope IN ('tenant', 'channel')),
    name     text NOT NULL,
    until    timestamptz NOT NULL,
    reason   text NOT NULL,
    who      text NOT NULL,
    since    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, name)
);
COMMENT ON TABLE pause IS 'Tenants and channels that an operator has paused; infinity: until resumed. Lanes carry their own pause.';

CREATE TABLE quota (
    bucket        text NOT NULL,
    channel       text NOT NULL,
    monthly_limit bigint CHECK (monthly_limit >= 0),
    on_exhausted  text NOT NULL DEFAULT 'fail' CHECK (on_exhausted IN ('fail', 'hold')),
    zone          text NOT NULL DEFAULT 'UTC',
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bucket, channel)
);
COMMENT ON TABLE quota IS 'Monthly ceilings by bucket (a tenant, or _platform) and channel. No row, or a NULL limit: the default of the configuration.';
COMMENT ON COLUMN quota.zone IS 'Where its months begin.';

CREATE TABLE quota_usage (
    bucket   text NOT NULL,
    channel  text NOT NULL,
    month    date NOT NULL,
    used     bigint NOT NULL DEFAULT 0,
    granted  bigint NOT NULL DEFAULT 0,
    warned   smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, channel, month)
) WITH (fillfactor = 50);
COMMENT ON TABLE quota_usage IS 'What a bucket has used of a month, one row each, never deleted.';
COMMENT ON COLUMN quota_usage.granted IS 'What the last charge was granted: its own answer, read in the statement that made it.';
COMMENT ON COLUMN quota_usage.warned IS 'Highest percentage (80, 100) that was told of.';

-- +goose StatementBegin
CREATE FUNCTION lane_open(shut_until timestamptz, full_until timestamptz, paused_until timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (shut_until IS NULL OR shut_until <= now()) AND (full_until IS NULL OR full_until <= now()) AND (paused_until IS NULL OR paused_until <= now())
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION lane_open IS 'Whether a claim may look into a lane; small enough to be inlined.';

-- +goose StatementBegin
CREATE FUNCTION rate_burst(rate int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(1, rate / 10)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION rate_burst IS 'How many sends may begin at once within a limit per minute: a tenth of it.';

-- +goose StatementBegin
CREATE FUNCTION rate_interval(rate int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
    SELECT 60.0::float8 / (rate - greatest(1, rate / 10) + 1)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION rate_interval IS 'Seconds from one send to the next once the burst is used, such that burst and stream together never exceed the limit in any minute.';
