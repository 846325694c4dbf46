-- The ledger: what was accepted, what waits, what happened. Forward only.
--
-- Three kinds of table, kept apart on purpose:
--   hot      queue, outbox, worker, lane: small, updated all the time, vacuumed eagerly
--   history  delivery, content, recipient, attempt, event: partitioned by the month that the
--            delivery's uuid v7 carries, so a month leaves as one DROP
--   keys     request_key, dead_letter: outlive streams and history alike

-- +goose Up

CREATE TABLE lane (
    id              int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key             text NOT NULL UNIQUE CHECK (length(key) BETWEEN 1 AND 300),
    kind            text NOT NULL CHECK (kind IN ('delivery', 'document')),
    shut_until      timestamptz,
    shut_reason     text NOT NULL DEFAULT '',
    paused_until    timestamptz,
    paused_reason   text NOT NULL DEFAULT '',
    updated_at      timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
COMMENT ON TABLE lane IS 'One real destination with limits of its own: a mail server account, an SMS provider, a webhook host, the backend. Never written by a claim.';
COMMENT ON COLUMN lane.key IS 'Breaker key of the seed: mail$<server>, sms$<provider>, smp$<host>, ap$<endpoint>, webhook$<host>, forwarder.';
COMMENT ON COLUMN lane.shut_until IS 'While in the future the claim skips the lane: open breaker or full rate window. NULL: not shut.';
COMMENT ON COLUMN lane.paused_until IS 'Set by an operator; infinity pauses until resumed. NULL: not paused.';

CREATE TABLE worker (
    id           uuid PRIMARY KEY,
    instance     text NOT NULL,
    lease_until  timestamptz NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE worker IS 'One lease per claiming instance, renewed by heartbeat: every queue row it owns is leased exactly as long as this row says. A worker that let it lapse comes back under a new id.';

CREATE SEQUENCE queue_place;

CREATE TABLE queue (
    kind         text NOT NULL CHECK (kind IN ('delivery', 'document')),
    id           uuid NOT NULL,
    lane         int NOT NULL,
    tenant       text NOT NULL,
    class        smallint NOT NULL CHECK (class BETWEEN 0 AND 2),
    state        text NOT NULL CHECK (state IN ('ready', 'waiting', 'leased', 'blocked', 'held')),
    due_at       timestamptz NOT NULL,
    owner        uuid,
    fence        int NOT NULL DEFAULT 0,
    claimed_at   timestamptz,
    version      int NOT NULL,
    expires_at   timestamptz,
    ordering_key text,
    place        bigint,
    PRIMARY KEY (kind, id),
    CHECK ((ordering_key IS NULL) = (place IS NULL)),
    CHECK ((state = 'leased') = (owner IS NOT NULL AND claimed_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);
COMMENT ON TABLE queue IS 'All work that is not finished, for both kinds. What is finished leaves it, so its size is the backlog.';
COMMENT ON COLUMN queue.class IS '0 otp, 1 transactional, 2 bulk: served in that order within a tenant, bulk at least one time in ten.';
COMMENT ON COLUMN queue.state IS 'ready: may be claimed; waiting: not before due_at; leased: a worker has it; blocked: an older delivery of its ordering key comes first; held: a person decides.';
COMMENT ON COLUMN queue.due_at IS 'waiting: when it becomes ready; ready: since when it is, so that it only grows along a (lane, tenant, class).';
COMMENT ON COLUMN queue.fence IS 'Raised by every claim and by nothing else; each later write names it.';
COMMENT ON COLUMN queue.version IS 'Version of the aggregate, so that a stale snapshot moves nothing even under an unchanged fence.';
COMMENT ON COLUMN queue.place IS 'Order of acceptance within an ordering key, drawn from queue_place while the key is locked: ids follow the clocks of many machines, this does not.';
COMMENT ON COLUMN queue.claimed_at IS 'When the owner took it: with owner and fence, the record that an attempt may be under way.';

CREATE INDEX queue_ready   ON queue (kind, lane, tenant, class, due_at, id) WHERE state = 'ready';
CREATE INDEX queue_waiting ON queue (kind, due_at) WHERE state = 'waiting';
CREATE INDEX queue_leased  ON queue (owner) WHERE state = 'leased';
CREATE INDEX queue_expiry  ON queue (kind, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX queue_ordered ON queue (tenant, ordering_key, place) WHERE ordering_key IS NOT NULL;

CREATE TABLE request_key (
    tenant      text NOT NULL,
    request_id  text NOT NULL,
    body_hash   bytea NOT NULL,
    delivery_id uuid NOT NULL,
    PRIMARY KEY (tenant, request_id)
);
COMMENT ON TABLE request_key IS 'First sight of each (tenant, client id): what makes a request accepted once. Kept longer than any stream.';
COMMENT ON COLUMN request_key.body_hash IS 'SHA-256 of the request body: the same id with another body is a conflict, not a repeat.';

CREATE TABLE delivery (
    id             uuid NOT NULL PRIMARY KEY,
    tenant         text NOT NULL,
    channel        text NOT NULL,
    request_id     text NOT NULL,
    class          smallint NOT NULL CHECK (class BETWEEN 0 AND 2),
    lane           int NOT NULL,
    state          text NOT NULL CHECK (state IN ('pending', 'retry', 'held', 'sent', 'failed', 'dead', 'expired', 'cancelled')),
    version        int NOT NULL,
    fence          int NOT NULL DEFAULT 0,
    attempts       int NOT NULL DEFAULT 0,
    retries        int NOT NULL DEFAULT 0,
    prepared       boolean NOT NULL,
    expires_at     timestamptz,
    ordering_key   text,
    trace          text,
    custom         bytea,
    answer         jsonb,
    changed_at     timestamptz NOT NULL DEFAULT now(),
    CHECK (version >= 1 AND attempts >= 0 AND retries >= 0)
) PARTITION BY RANGE (id);
COMMENT ON TABLE delivery IS 'One accepted send request and where it stands. Its payload is in content, so a move rewrites a narrow row (HOT: no changing column is indexed).';
COMMENT ON COLUMN delivery.id IS 'uuid v7: time of acceptance; the month it falls in is the partition of everything that belongs to it.';
COMMENT ON COLUMN delivery.version IS 'Contiguous from 1, one event each.';
COMMENT ON COLUMN delivery.fence IS 'Fence of the last settled claim; a delivery that enters the queue again goes on from it.';
COMMENT ON COLUMN delivery.attempts IS 'Attempts begun, interrupted ones excepted; retries: those that counted against the schedule, manual ones included.';
COMMENT ON COLUMN delivery.trace IS 'W3C traceparent of the request.';
COMMENT ON COLUMN delivery.custom IS 'JSON object of the client, echoed in each event.';
COMMENT ON COLUMN delivery.answer IS 'The last failure or the acceptance, as in the event.';

CREATE TABLE content (
    delivery_id uuid NOT NULL PRIMARY KEY,
    request     bytea,
    prepared    bytea,
    CHECK (request IS NOT NULL OR prepared IS NOT NULL)
) PARTITION BY RANGE (delivery_id);
COMMENT ON TABLE content IS 'The payload, apart from the row that moves.';
COMMENT ON COLUMN content.request IS 'The request as it came, kept only while it is not prepared.';
COMMENT ON COLUMN content.prepared IS 'What the transport sends, replayed as it is by every retry. NULL: not prepared yet.';

CREATE TABLE recipient (
    delivery_id uuid NOT NULL,
    ordinal     smallint NOT NULL,
    address     text NOT NULL,
    state       text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'accepted', 'refused')),
    code        text NOT NULL DEFAULT '',
    text        text NOT NULL DEFAULT '',
    PRIMARY KEY (delivery_id, ordinal)
) PARTITION BY RANGE (delivery_id);
COMMENT ON TABLE recipient IS 'Each envelope recipient and its own answer; a retry goes only to those still pending. The sole recipient of a delivery that was sent stays pending: its answer is the delivery''s.';

CREATE TABLE attempt (
    delivery_id uuid NOT NULL,
    fence       int NOT NULL,
    number      int NOT NULL,
    lane        int NOT NULL,
    worker      uuid,
    claimed_at  timestamptz,
    settled_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    verdict     text NOT NULL CHECK (verdict IN ('accepted', 'refused', 'unknown', 'late')),
    answer      jsonb NOT NULL,
    PRIMARY KEY (delivery_id, fence, verdict)
) PARTITION BY RANGE (delivery_id);
COMMENT ON TABLE attempt IS 'One row per attempt, written once: by settle from what the transport said, or by the sweep as unknown. A result that came too late to count is kept as verdict late.';
COMMENT ON COLUMN attempt.answer IS 'Phase, code, enhanced code, text (bounded), peer.';

CREATE TABLE event (
    aggregate  uuid NOT NULL,
    version    int NOT NULL,
    kind       text NOT NULL,
    state      text NOT NULL,
    subject    text NOT NULL,
    body       bytea NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (aggregate, version)
) PARTITION BY RANGE (aggregate);
COMMENT ON TABLE event IS 'Every change of state exactly as it was published: the event stream can be rebuilt from here. Its id on the bus is <aggregate>.<version>.';
CREATE INDEX event_at ON event USING brin (at) WITH (pages_per_range = 32);

CREATE TABLE outbox (
    id         uuid PRIMARY KEY,
    aggregates uuid[] NOT NULL,
    versions   int[] NOT NULL,
    subjects   text[],
    bodies     bytea[],
    ids        text[],
    lease_until timestamptz NOT NULL,
    tries      int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE outbox IS 'What one transaction must publish, as one row of fixed composition. Its writer publishes it straight after the commit; after a crash a sweeper does, once the lease has run out.';
COMMENT ON COLUMN outbox.aggregates IS 'Events to publish, by (aggregate, version): their subject and body are in event. Not repeated here.';
COMMENT ON COLUMN outbox.subjects IS 'Messages that are no events (dead letters) carry subject, body and id here.';
CREATE INDEX outbox_due ON outbox (lease_until);

CREATE TABLE dead_letter (
    event_id     text PRIMARY KEY,
    source       text NOT NULL CHECK (source IN ('send_exhausted', 'send_failed', 'forward_exhausted', 'rejected', 'expired', 'held', 'poison', 'mls_overdue')),
    channel      text NOT NULL,
    tenant       text NOT NULL,
    aggregate    uuid,
    request_id   text NOT NULL DEFAULT '',
    code         text NOT NULL DEFAULT '',
    reason       text NOT NULL,
    summary      json NOT NULL,
    subject      text NOT NULL DEFAULT '',
    headers      json,
    raw          bytea,
    triage       text NOT NULL DEFAULT 'open' CHECK (triage IN ('open', 'resolved', 'discarded')),
    remark       text NOT NULL DEFAULT '',
    archived_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE dead_letter IS 'What needs a person, archived exactly once. Triage never sends anything again: a retry is a command on the delivery.';
COMMENT ON COLUMN dead_letter.event_id IS 'Id of the event that ended it, or poison.<stream>.<hash> for a request that could not be read.';
COMMENT ON COLUMN dead_letter.summary IS 'Foreign JSON as it came: json, since jsonb refuses some of what JSON allows (\u0000, numbers out of range).';
COMMENT ON COLUMN dead_letter.raw IS 'The bytes of a poison request, never published.';
CREATE INDEX dead_letter_open ON dead_letter (archived_at) WHERE triage = 'open';
CREATE INDEX dead_letter_aggregate ON dead_letter (aggregate) WHERE aggregate IS NOT NULL;

CREATE TABLE schema_compat (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    oldest_binary   int NOT NULL
);
COMMENT ON TABLE schema_compat IS 'The oldest binary (by the newest migration it knows) that may run on this schema.';
INSERT INTO schema_compat (oldest_binary) VALUES (1);

-- Partitions are made by ensure_history, a month each, ahead of time.
-- +goose StatementBegin
CREATE FUNCTION uuid7_floor(t timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION uuid7_floor IS 'The smallest uuid whose version 7 time is t: the bound between two partitions.';

-- A partition is made apart and then attached: that waits for no reader or writer
-- of the table, and makes none wait, where PARTITION OF would lock out both.
-- +goose StatementBegin
CREATE FUNCTION ensure_history(first timestamptz, months int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    parent text; m timestamp; name text; made int := 0;
BEGIN
    FOR i IN 0 .. months - 1 LOOP
        m := date_trunc('month', first AT TIME ZONE 'UTC') + make_interval(months => i);
        FOREACH parent IN ARRAY ARRAY['delivery', 'content', 'recipient', 'attempt', 'event'] LOOP
            name := parent || '_' || to_char(m, 'YYYYMM');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            -- Two that find the same month missing take turns. The second look reads
            -- the catalogue itself: what to_regclass knows is cached.
            PERFORM pg_advisory_xact_lock(hashtextextended('posthouse ensure_history', 0));
            CONTINUE WHEN EXISTS (SELECT FROM pg_class c WHERE c.relname = name AND pg_table_is_visible(c.oid));
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name, parent);
            IF parent = 'delivery' THEN
                EXECUTE format('ALTER TABLE %I SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)', name);
            ELSIF parent = 'recipient' THEN
                EXECUTE format('ALTER TABLE %I SET (fillfactor = 90)', name);
            END IF;
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name,
                uuid7_floor(m AT TIME ZONE 'UTC'), uuid7_floor((m + interval '1 month') AT TIME ZONE 'UTC'));
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION ensure_history IS 'Makes the monthly partitions of all history tables from the month of first on; safe to repeat. Returns how many were made.';

SELECT ensure_history(now() - interval '1 month', 4);
