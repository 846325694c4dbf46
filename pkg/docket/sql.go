package docket

// Every statement of the room, in the order of a document's life.

// insertKeys takes first sight of the two ids; a row that is missing from the
// answer was there.
const insertKeys = `
INSERT INTO document_key (kind, name, document_id, hash)
SELECT x.kind, x.name, $3, $4 FROM unnest($1::text[], $2::text[]) AS x (kind, name) ORDER BY x.kind, x.name
ON CONFLICT (kind, name) DO NOTHING
RETURNING kind`

const selectKeys = `
SELECT k.kind, k.document_id, k.hash FROM unnest($1::text[], $2::text[]) AS x (kind, name)
JOIN document_key k ON k.kind = x.kind AND k.name = x.name`

const insertDocument = `
INSERT INTO document (id, tenant, kind, sbdh_id, as4_id, sender_id, receiver_id, doc_type_id, process_id, c1_country, c2_seat, content_type, reference, duplicate,
                      received_at, as4_at, size, hash, state, version, mls_type, mls_to, mls_status, trace)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, 1, $20, $21, $22, $23)`

const insertBody = `INSERT INTO document_body (document_id, body) VALUES ($1, $2)`

const selectBody = `SELECT b.body FROM document_body b WHERE b.document_id = $1`

// enqueue puts a document in work: ready when it is due, waiting until then. A row
// that is there goes over to the given kind and lane.
const enqueue = `
INSERT INTO queue AS q (kind, id, lane, tenant, class, state, due_at, fence, version)
VALUES ($1, $2, $3, $4, 1, CASE WHEN $5::timestamptz > clock_timestamp() THEN 'waiting' ELSE 'ready' END, greatest($5, clock_timestamp()), $6, $7)
ON CONFLICT (kind, id) DO UPDATE SET lane = excluded.lane, state = excluded.state, due_at = excluded.due_at, owner = NULL, claimed_at = NULL, version = excluded.version`

const dequeue = `DELETE FROM queue WHERE kind = ANY (ARRAY['document', 'deferred']) AND id = $1`

// reversion keeps the version of a queue row in step with a note.
const reversion = `UPDATE queue SET version = $2 WHERE kind = ANY (ARRAY['document', 'deferred']) AND id = $1`

const insertEvent = `
INSERT INTO event (aggregate, version, kind, state, subject, body) VALUES ($1, $2, 'document', $3, $4, $5)`

// Claim ----------------------------------------------------------------------

// taken goes on where the queue's claim has taken rows.
const taken = `
SELECT t.id, t.lane, t.class, t.fence, t.claimed_at, t.due_at,
       d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.doc_type_id, d.process_id, d.c1_country, d.c2_seat, d.c4_country, d.content_type, d.reference,
       d.received_at, d.as4_at, d.size, d.hash, d.state, d.version, d.attempts, d.failures, d.verdict, d.issues, d.mls_type, d.mls_to, d.mls_status, d.mls_code, d.mls_delivery, coalesce(d.trace, '')
FROM taken t JOIN document d ON d.id = t.id`

// stuck lists rows of this kind whose worker has let its lease lapse, or that are
// held longer than $2 seconds.
const stuck = `
WITH leased AS MATERIALIZED (
    SELECT q.kind, q.id, q.lane, q.class, q.fence, q.claimed_at, q.due_at, q.owner FROM queue q WHERE q.state = 'leased'
)
SELECT t.id, t.lane, t.class, t.fence, t.claimed_at, t.due_at,
       d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.doc_type_id, d.process_id, d.c1_country, d.c2_seat, d.c4_country, d.content_type, d.reference,
       d.received_at, d.as4_at, d.size, d.hash, d.state, d.version, d.attempts, d.failures, d.verdict, d.issues, d.mls_type, d.mls_to, d.mls_status, d.mls_code, d.mls_delivery, coalesce(d.trace, ''), t.owner
FROM leased t JOIN document d ON d.id = t.id LEFT JOIN worker w ON w.id = t.owner
WHERE t.kind = $1 AND (w.id IS NULL OR w.lease_until < clock_timestamp() - interval '200 milliseconds' OR t.claimed_at < clock_timestamp() - make_interval(secs => $2))
ORDER BY t.id LIMIT $3`

// Move -----------------------------------------------------------------------

// lockQueued locks the queue row first, as every mover does.
const lockQueued = `
SELECT q.kind, q.lane, q.state, q.fence, q.owner, q.claimed_at FROM queue q
WHERE q.kind = ANY (ARRAY['document', 'deferred']) AND q.id = $1 FOR NO KEY UPDATE`

const lockDocument = `
SELECT d.id, 0, 1::smallint, d.fence, now(), now(),
       d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.doc_type_id, d.process_id, d.c1_country, d.c2_seat, d.c4_country, d.content_type, d.reference,
       d.received_at, d.as4_at, d.size, d.hash, d.state, d.version, d.attempts, d.failures, d.verdict, d.issues, d.mls_type, d.mls_to, d.mls_status, d.mls_code, d.mls_delivery, coalesce(d.trace, '')
FROM document d WHERE d.id = $1 FOR NO KEY UPDATE`

const moveDocument = `
UPDATE document d SET state = $2, version = $3, fence = greatest(d.fence, $4), attempts = $5, failures = $6, verdict = $7, issues = $8, c4_country = $9,
       mls_status = $10, mls_code = $11, mls_delivery = $12, answer = coalesce($13, d.answer), changed_at = now()
WHERE d.id = $1`

const insertAttempt = `
INSERT INTO attempt (delivery_id, fence, number, lane, worker, claimed_at, verdict, answer) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`

const putDeadline = `
INSERT INTO mls_deadline (document_id, due_at) VALUES ($1, $2) ON CONFLICT (document_id) DO UPDATE SET due_at = excluded.due_at`

const dropDeadline = `DELETE FROM mls_deadline WHERE document_id = $1`

// Watchdog -------------------------------------------------------------------

// dueDeadlines is a page; who answers locks the document.
const dueDeadlines = `
SELECT m.document_id FROM mls_deadline m WHERE m.due_at <= clock_timestamp() ORDER BY m.due_at LIMIT $1`

const nextDeadline = `
SELECT extract(epoch FROM m.due_at - clock_timestamp())::float8 FROM mls_deadline m ORDER BY m.due_at LIMIT 1`

// Questions ------------------------------------------------------------------

const selectDocument = `
SELECT d.id, d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.state, d.version, d.attempts, d.verdict, d.issues, d.c4_country,
       d.mls_status, d.mls_code, d.mls_delivery, d.duplicate, d.received_at, d.as4_at, d.changed_at, d.size, d.answer,
       q.state, q.due_at, l.key, l.breaker, l.shut_until, l.shut_reason
FROM document d
LEFT JOIN queue q ON q.kind = ANY (ARRAY['document', 'deferred']) AND q.id = d.id
LEFT JOIN lane l ON l.id = q.lane
WHERE d.id = $1`

const selectEvents = `SELECT e.version, e.state, e.at FROM event e WHERE e.aggregate = $1 ORDER BY e.version`

const selectAttempts = `
SELECT a.number, a.fence, a.claimed_at, a.settled_at, a.verdict, a.answer FROM attempt a WHERE a.delivery_id = $1 ORDER BY a.fence, a.settled_at`

const databaseTime = `SELECT clock_timestamp()`

// Lists ----------------------------------------------------------------------

// resolve prefers the document's own id; $2 empty is any tenant.
const resolve = `
SELECT x.id FROM (
    SELECT d.id, 0 AS place FROM document d WHERE d.id = $3 AND ($2 = '' OR d.tenant = $2)
    UNION ALL
    SELECT d.id, 1 FROM document d WHERE d.sbdh_id = $1 AND ($2 = '' OR d.tenant = $2)
) x ORDER BY x.place, x.id DESC LIMIT 1`

const selectPayload = `
SELECT d.content_type, d.hash, b.body FROM document d JOIN document_body b ON b.document_id = d.id WHERE d.id = $1`

// The lists share their columns and their first parameters: tenant, least id, limit,
// offset. The id begins with the time, so its primary key serves as the order and
// leaves out the months before.

const listProcessing = `
SELECT d.id, d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.state, d.attempts, d.verdict, d.c4_country, d.mls_status, d.mls_code, d.duplicate,
       d.received_at, d.as4_at, d.changed_at, d.size, q.due_at, q.state = 'leased'
FROM queue q JOIN document d ON d.id = q.id
WHERE q.kind = ANY (ARRAY['document', 'deferred']) AND ($1 = '' OR d.tenant = $1) AND d.id >= $2
ORDER BY d.id DESC LIMIT $3 OFFSET $4`

const listHistory = `
SELECT d.id, d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.state, d.attempts, d.verdict, d.c4_country, d.mls_status, d.mls_code, d.duplicate,
       d.received_at, d.as4_at, d.changed_at, d.size, NULL::timestamptz, false
FROM document d
WHERE ($1 = '' OR d.tenant = $1) AND d.id >= $2 AND d.state = ANY (ARRAY['forwarded', 'rejected', 'dead'])
  AND NOT EXISTS (SELECT FROM queue q WHERE q.kind = ANY (ARRAY['document', 'deferred']) AND q.id = d.id)
ORDER BY d.id DESC LIMIT $3 OFFSET $4`

const listMissingC4 = `
SELECT d.id, d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.state, d.attempts, d.verdict, d.c4_country, d.mls_status, d.mls_code, d.duplicate,
       d.received_at, d.as4_at, d.changed_at, d.size, NULL::timestamptz, false
FROM document d
WHERE ($1 = '' OR d.tenant = $1) AND d.id >= $2 AND d.kind = 'business' AND d.state = 'forwarded' AND d.c4_country = ''
ORDER BY d.id DESC LIMIT $3 OFFSET $4`

// listMissingMLS says what document.Facts.Missing says of one.
const listMissingMLS = `
SELECT d.id, d.tenant, d.kind, d.sbdh_id, d.as4_id, d.sender_id, d.receiver_id, d.state, d.attempts, d.verdict, d.c4_country, d.mls_status, d.mls_code, d.duplicate,
       d.received_at, d.as4_at, d.changed_at, d.size, m.due_at, false
FROM document d LEFT JOIN mls_deadline m ON m.document_id = d.id
WHERE ($1 = '' OR d.tenant = $1) AND d.id >= $2 AND d.kind = 'business' AND d.state = 'forwarded' AND d.mls_code = '' AND d.verdict <> 'rejected' AND d.mls_type <> 'FAILURE_ONLY'
ORDER BY d.id DESC LIMIT $3 OFFSET $4`

// answerFacts are the exchanges that MLS-1 is measured by: documents that are owed
// an answer, and when the delivery that carries it was first taken.
const answerFacts = `
SELECT d.sbdh_id, d.as4_at, (SELECT min(a.settled_at) FROM attempt a WHERE a.delivery_id = d.mls_delivery AND a.verdict = 'accepted')
FROM document d
WHERE ($1 = '' OR d.tenant = $1) AND d.id >= $2 AND d.as4_at >= $3 AND d.as4_at < $4 AND d.kind = 'business'
  AND d.mls_status <> ALL (ARRAY['suppressed', 'off', 'not_applicable']) AND (d.mls_type <> 'FAILURE_ONLY' OR d.mls_code = 'RE')
ORDER BY d.as4_at, d.id LIMIT $5`
