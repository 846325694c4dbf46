-- What operators do: jobs over many deliveries, and the audit of every action.

-- +goose Up

CREATE TABLE operation_job (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('retry', 'cancel')),
    filter       jsonb NOT NULL,
    expiry       jsonb NOT NULL DEFAULT '{}',
    who          text NOT NULL,
    why          text NOT NULL,
    state        text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'done', 'cancelled')),
    rate         int NOT NULL CHECK (rate > 0),
    upper_id     uuid NOT NULL,
    phase        text NOT NULL CHECK (phase IN ('queue', 'archive', 'end')),
    cursor_id    uuid NOT NULL,
    total        int NOT NULL,
    total_known  boolean NOT NULL,
    done         int NOT NULL DEFAULT 0,
    skipped      int NOT NULL DEFAULT 0,
    failed       int NOT NULL DEFAULT 0,
    fault        text NOT NULL DEFAULT '',
    owner        text,
    lease_until  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
COMMENT ON TABLE operation_job IS 'An operator''s command over all deliveries that a filter finds, done page by page by one sender at a time.';
COMMENT ON COLUMN operation_job.upper_id IS 'Deliveries from this id on are not touched: what was accepted after the job began.';
COMMENT ON COLUMN operation_job.phase IS 'queue: what waits, by queue; archive: what has failed, by dead_letter; end: nothing is left.';
COMMENT ON COLUMN operation_job.cursor_id IS 'The last delivery looked at in this phase. It moves in the transaction that moves the deliveries, so a crash repeats nothing.';
COMMENT ON COLUMN operation_job.owner IS 'The instance that works on it until lease_until. NULL: whoever looks first.';
CREATE INDEX operation_job_running ON operation_job (created_at) WHERE state = 'running';

CREATE TABLE operation_result (
    job         uuid NOT NULL,
    delivery    uuid NOT NULL,
    effect      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, delivery)
);
COMMENT ON TABLE operation_result IS 'What a job did to one delivery, or why it left it alone: once for each, whichever way the job came upon it.';
CREATE INDEX operation_result_delivery ON operation_result USING hash (delivery);

CREATE TABLE audit (
    id      uuid PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    who     text NOT NULL CHECK (who <> ''),
    action  text NOT NULL,
    target  text NOT NULL,
    result  text NOT NULL,
    why     text NOT NULL
);
COMMENT ON TABLE audit IS 'Every action of an operator, one row per target, written in the transaction of the action; also what was refused.';
COMMENT ON COLUMN audit.target IS 'Id of a delivery, of a job, or of a dead letter. What a job did to each delivery is in operation_result.';
CREATE INDEX audit_target ON audit (target);
