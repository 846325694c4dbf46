-- The inbound half: documents that were received, and what became of them.

-- +goose Up

ALTER TABLE queue DROP CONSTRAINT queue_kind_check;
ALTER TABLE queue ADD CONSTRAINT queue_kind_check CHECK (kind IN ('delivery', 'document', 'deferred'));
COMMENT ON COLUMN queue.kind IS 'Whose work it is: delivery, the senders''; document, the forwarders''; deferred, a document that verifier-retry has.';
ALTER TABLE lane DROP CONSTRAINT lane_kind_check;
ALTER TABLE lane ADD CONSTRAINT lane_kind_check CHECK (kind IN ('delivery', 'document', 'deferred'));

CREATE TABLE document (
    id            uuid NOT NULL PRIMARY KEY,
    tenant        text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('business', 'mls', 'mlr')),
    sbdh_id       text NOT NULL,
    as4_id        text NOT NULL,
    sender_id     text NOT NULL,
    receiver_id   text NOT NULL,
    doc_type_id   text NOT NULL,
    process_id    text NOT NULL,
    c1_country    text NOT NULL,
    c2_seat       text NOT NULL,
    c4_country    text NOT NULL DEFAULT '',
    content_type  text NOT NULL,
    reference     text NOT NULL DEFAULT '',
    duplicate     text NOT NULL DEFAULT '',
    received_at   timestamptz NOT NULL,
    as4_at        timestamptz NOT NULL,
    size          bigint NOT NULL CHECK (size > 0),
    hash          bytea NOT NULL,
    state         text NOT NULL CHECK (state IN ('received', 'deferred', 'retry', 'forwarded', 'rejected', 'dead')),
    version       int NOT NULL,
    fence         int NOT NULL DEFAULT 0,
    attempts      int NOT NULL DEFAULT 0,
    failures      int NOT NULL DEFAULT 0,
    verdict       text NOT NULL DEFAULT '' CHECK (verdict IN ('', 'passed', 'rejected', 'unverified')),
    issues        jsonb,
    mls_type      text NOT NULL,
    mls_to        text NOT NULL DEFAULT '',
    mls_status    text NOT NULL DEFAULT '',
    mls_code      text NOT NULL DEFAULT '' CHECK (mls_code IN ('', 'AP', 'AB', 'RE')),
    mls_delivery  uuid,
    answer        jsonb,
    trace         text,
    changed_at    timestamptz NOT NULL DEFAULT now(),
    CHECK (version >= 1 AND attempts >= 0 AND failures >= 0)
) PARTITION BY RANGE (id);
COMMENT ON TABLE document IS 'One received document and where it stands. Its bytes are in document_body.';
COMMENT ON COLUMN document.attempts IS 'Attempts to forward, interrupted ones excepted; failures: those that count against the schedule.';
COMMENT ON COLUMN document.mls_code IS 'Once set it never changes: who writes it has locked the row.';
CREATE INDEX document_sbdh ON document (sbdh_id);

CREATE TABLE document_body (
    document_id uuid NOT NULL PRIMARY KEY,
    body        bytea NOT NULL
) PARTITION BY RANGE (document_id);
COMMENT ON TABLE document_body IS 'The document as it was received.';

CREATE TABLE document_key (
    kind        text NOT NULL CHECK (kind IN ('as4', 'sbdh')),
    name        text NOT NULL,
    document_id uuid NOT NULL,
    hash        bytea NOT NULL,
    PRIMARY KEY (kind, name)
);
COMMENT ON TABLE document_key IS 'First sight of each tenant and AS4 message id, and of each tenant, sender and SBDH instance id: what makes a document accepted once, and keeps one tenant from answering for another. Outlives the history.';

CREATE INDEX document_key_age ON document_key (document_id);

CREATE TABLE mls_deadline (
    document_id uuid PRIMARY KEY,
    due_at      timestamptz NOT NULL
);
COMMENT ON TABLE mls_deadline IS 'When the watchdog answers C2 instead of a silent backend: a due row of its own, since a forwarded document has left the queue.';
CREATE INDEX mls_deadline_due ON mls_deadline (due_at);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ensure_history(first timestamptz, months int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    parent text; m timestamp; name text; made int := 0;
BEGIN
    FOR i IN 0 .. months - 1 LOOP
        m := date_trunc('month', first AT TIME ZONE 'UTC') + make_interval(months => i);
        FOREACH parent IN ARRAY ARRAY['delivery', 'content', 'recipient', 'attempt', 'event', 'document', 'document_body'] LOOP
            name := parent || '_' || to_char(m, 'YYYYMM');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            -- Two that find the same month missing take turns. The second look reads
            -- the catalogue itself: what to_regclass knows is cached.
            PERFORM pg_advisory_xact_lock(hashtextextended('posthouse ensure_history', 0));
            CONTINUE WHEN EXISTS (SELECT FROM pg_class c WHERE c.relname = name AND pg_table_is_visible(c.oid));
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name, parent);
            IF parent IN ('delivery', 'document') THEN
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

SELECT ensure_history(now() - interval '1 month', 4);
