package ledger

// Every statement of the room, in the order of a delivery's life. States are
// literals, so that the partial indexes of the queue apply under generic plans
// too; columns are listed, so that this binary runs on the next schema.

const ensureHistory = `SELECT ensure_history($1, $2)`

const ensureHistoryAhead = `SELECT ensure_history(now() - interval '1 month', 5)`

// Accept ---------------------------------------------------------------------

// insertRequestKeys takes keys in key order, so two batches never deadlock.
const insertRequestKeys = `
INSERT INTO request_key (tenant, request_id, body_hash, delivery_id)
SELECT tenant, request_id, body_hash, delivery_id
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[]) AS x (tenant, request_id, body_hash, delivery_id)
ORDER BY tenant, request_id
ON CONFLICT (tenant, request_id) DO NOTHING
RETURNING tenant, request_id`

const selectRequestKeys = `
SELECT k.tenant, k.request_id, k.body_hash, k.delivery_id
FROM unnest($1::text[], $2::text[]) AS x (tenant, request_id)
JOIN request_key k ON k.tenant = x.tenant AND k.request_id = x.request_id`

const insertDeliveries = `
INSERT INTO delivery (id, tenant, channel, request_id, class, lane, state, version, prepared, expires_at, ordering_key, trace, custom, answer)
SELECT id, tenant, channel, request_id, class, lane, state, 1, prepared, expires_at, ordering_key, trace, custom, answer
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::int[], $7::text[], $8::boolean[], $9::timestamptz[], $10::text[], $11::text[], $12::bytea[], $13::jsonb[])
  AS x (id, tenant, channel, request_id, class, lane, state, prepared, expires_at, ordering_key, trace, custom, answer)`

const insertContents = `
INSERT INTO content (delivery_id, request, prepared)
SELECT id, request, prepared FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS x (id, request, prepared)`

const insertRecipients = `
INSERT INTO recipient (delivery_id, ordinal, address)
SELECT id, ordinal, address FROM unnest($1::uuid[], $2::smallint[], $3::text[]) AS x (id, ordinal, address)`

// lockOrderingKeys makes "is there an older one" and the insert one step.
const lockOrderingKeys = `
SELECT pg_advisory_xact_lock(hashtextextended(key, 7)) FROM (
    SELECT DISTINCT tenant || ' ' || ordering_key AS key FROM unnest($1::text[], $2::text[]) AS x (tenant, ordering_key)
    WHERE ordering_key IS NOT NULL ORDER BY 1) k`

// insertQueue: a row whose ordering key has an older one in the queue waits
// blocked until that one leaves. Places are drawn in the order of the batch. Rows
// for which a slot is reserved ($9) are leased to the worker $8 at once, if their
// lane is open, needs no counting, and nothing older waits in it.
const insertQueue = `
WITH open AS MATERIALIZED (
    SELECT l.id FROM (SELECT DISTINCT u.lane FROM unnest($2::int[], $9::boolean[]) AS u (lane, hand) WHERE u.hand) w
    JOIN lane l ON l.id = w.lane AND NOT l.guarded AND lane_open(l.shut_until, l.full_until, l.paused_until)
    WHERE NOT EXISTS (SELECT FROM queue o WHERE o.kind = 'delivery' AND o.state = 'ready' AND o.lane = l.id)
      AND NOT EXISTS (SELECT FROM pause p WHERE p.scope = 'channel' AND p.name = l.channel AND p.until > now())
), rest AS MATERIALIZED (
    SELECT p.name FROM pause p WHERE p.scope = 'tenant' AND p.until > now()
)
INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version, expires_at, ordering_key, place, owner, fence, claimed_at)
SELECT 'delivery', y.id, y.lane, y.tenant, y.class, y.state, greatest(y.send_at, now()), 1, y.expires_at, y.ordering_key,
       CASE WHEN y.ordering_key IS NOT NULL THEN nextval('queue_place') END,
       CASE WHEN y.state = 'leased' THEN $8::uuid END, CASE WHEN y.state = 'leased' THEN 1 ELSE 0 END, CASE WHEN y.state = 'leased' THEN clock_timestamp() END
FROM (SELECT x.*,
             CASE WHEN x.ordering_key IS NOT NULL AND (x.nth > 1
                       OR EXISTS (SELECT FROM queue o WHERE o.tenant = x.tenant AND o.ordering_key = x.ordering_key)) THEN 'blocked'
                  WHEN x.send_at > now() THEN 'waiting'
                  WHEN x.hand AND EXISTS (SELECT FROM open WHERE open.id = x.lane) AND NOT EXISTS (SELECT FROM rest WHERE rest.name = x.tenant) THEN 'leased'
                  ELSE 'ready' END AS state
      FROM (SELECT id, lane, tenant, class, send_at, expires_at, ordering_key, hand,
                   CASE WHEN ordering_key IS NOT NULL THEN row_number() OVER (PARTITION BY tenant, ordering_key ORDER BY ord) END AS nth, ord
            FROM unnest($1::uuid[], $2::int[], $3::text[], $4::smallint[], $5::timestamptz[], $6::timestamptz[], $7::text[], $9::boolean[])
                 WITH ORDINALITY AS u (id, lane, tenant, class, send_at, expires_at, ordering_key, hand, ord)) x) y
ORDER BY y.ord
RETURNING id, claimed_at, due_at`

const insertEvents = `
INSERT INTO event (aggregate, version, kind, state, subject, body)
SELECT id, version, 'delivery', state, subject, body
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::bytea[]) AS x (id, version, state, subject, body)`

// Claim ----------------------------------------------------------------------

// taken goes on where the queue's claim has taken rows: what an attempt needs of
// each delivery. A row that went through other hands meanwhile is joined as it was.
const taken = `
SELECT t.id, t.lane, t.tenant, t.class, t.fence, t.version, t.claimed_at, t.due_at, coalesce(t.expired, false), t.ordering_key,
       d.channel, d.request_id, d.state, d.attempts, d.retries, d.prepared, d.custom, d.trace, t.expires_at,
       c.request, c.prepared, r.ordinals, r.addresses, r.accepted
FROM taken t
JOIN delivery d ON d.id = t.id
JOIN content c ON c.delivery_id = t.id
CROSS JOIN LATERAL (
    SELECT array_agg(r.ordinal ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS ordinals,
           array_agg(r.address ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS addresses,
           count(*) FILTER (WHERE r.state = 'accepted') AS accepted
    FROM recipient r WHERE r.delivery_id = t.id) r`

// takenBare is the same without the content.
const takenBare = `
SELECT t.id, t.lane, t.tenant, t.class, t.fence, t.version, t.claimed_at, t.due_at, coalesce(t.expired, false), t.ordering_key,
       d.channel, d.request_id, d.state, d.attempts, d.retries, d.prepared, d.custom, d.trace, t.expires_at,
       NULL::bytea, NULL::bytea, r.ordinals, r.addresses, r.accepted
FROM taken t
JOIN delivery d ON d.id = t.id
CROSS JOIN LATERAL (
    SELECT array_agg(r.ordinal ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS ordinals,
           array_agg(r.address ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS addresses,
           count(*) FILTER (WHERE r.state = 'accepted') AS accepted
    FROM recipient r WHERE r.delivery_id = t.id) r`

// Settle ---------------------------------------------------------------------

// settle moves many deliveries at once. All columns of a delivery travel
// through the one unnest and the RETURNING of the guarded move: whatever is
// joined later would be a loop in a loop. A row that is not as expected (fence,
// version, owner when given) is left alone with everything that hangs on it.
const settle = `
WITH x AS MATERIALIZED (
    SELECT *, 'delivery'::text AS kind FROM unnest($2::uuid[], $3::int[], $4::int[], $5::uuid[], $6::timestamptz[], $7::text[], $8::float8[],
                         $9::int[], $10::int[], $11::text[], $12::jsonb[], $13::jsonb[], $14::text[], $15::bytea[])
         WITH ORDINALITY AS u (id, fence, version, worker, claimed_at, state, delay,
                               attempts, retries, verdict, answer, recipients, subject, body, ord)
), gone AS (
    DELETE FROM queue q USING x
    WHERE q.kind = ANY (ARRAY[x.kind]) AND q.id = x.id AND q.fence = x.fence AND q.version = x.version AND q.owner = x.worker
      AND x.state NOT IN ('retry', 'held')
    RETURNING x.*, q.lane
), stayed AS (
    UPDATE queue q SET state = CASE WHEN x.state = 'held' THEN 'held' WHEN x.delay <= 0 THEN 'ready' ELSE 'waiting' END, due_at = clock_timestamp() + make_interval(secs => x.delay),
                       owner = NULL, claimed_at = NULL, version = x.version + 1
    FROM x
    WHERE q.kind = ANY (ARRAY[x.kind]) AND q.id = x.id AND q.fence = x.fence AND q.version = x.version AND q.owner = x.worker
      AND x.state IN ('retry', 'held')
    RETURNING x.*, q.lane
), moved AS (
    SELECT * FROM gone UNION ALL SELECT * FROM stayed
), d AS (
    UPDATE delivery d SET state = m.state, version = m.version + 1, fence = m.fence, attempts = m.attempts, retries = m.retries,
                          answer = m.answer, changed_at = now()
    FROM moved m WHERE d.id = m.id
), a AS (
    INSERT INTO attempt (delivery_id, fence, number, lane, worker, claimed_at, verdict, answer)
    SELECT id, fence, attempts, lane, worker, claimed_at, verdict, answer FROM moved WHERE verdict <> 'none'
), r AS (
    UPDATE recipient r SET state = y.state, code = coalesce(y.code, ''), text = coalesce(y.text, '')
    FROM moved m CROSS JOIN LATERAL jsonb_to_recordset(m.recipients) AS y (ordinal smallint, state text, code text, text text)
    WHERE r.delivery_id = m.id AND r.ordinal = y.ordinal
), e AS (
    INSERT INTO event (aggregate, version, kind, state, subject, body)
    SELECT id, version + 1, 'delivery', state, subject, body FROM moved
), o AS (
    INSERT INTO outbox (id, aggregates, versions, lease_until)
    SELECT $1, array_agg(id ORDER BY ord), array_agg(version + 1 ORDER BY ord), clock_timestamp() + interval '10 seconds'
    FROM moved HAVING count(*) > 0
)
SELECT id FROM moved`

// unblock lets the oldest delivery of each ordering key go whose predecessor
// has just left the queue.
const unblock = `
UPDATE queue q SET state = CASE WHEN q.due_at > clock_timestamp() THEN 'waiting' ELSE 'ready' END, due_at = greatest(q.due_at, clock_timestamp())
FROM (SELECT DISTINCT tenant, ordering_key FROM unnest($1::text[], $2::text[]) AS x (tenant, ordering_key)) k
CROSS JOIN LATERAL (
    SELECT h.kind, h.id FROM queue h WHERE h.tenant = k.tenant AND h.ordering_key = k.ordering_key ORDER BY h.place LIMIT 1) head
WHERE q.kind = ANY (ARRAY[head.kind]) AND q.id = head.id AND q.state = 'blocked'
RETURNING q.lane, q.tenant, q.class`

// settledAttempts tells which of these attempts are already in the book: after
// a commit whose answer was lost, ours are.
const settledAttempts = `
SELECT a.delivery_id FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[]) AS x (id, fence, worker, verdict)
JOIN attempt a ON a.delivery_id = x.id AND a.fence = x.fence AND a.verdict = x.verdict AND a.worker = x.worker`

// settledWithoutAttempt is the same for a move that no attempt caused: it is ours
// when the version after ours says what we wanted it to say.
const settledWithoutAttempt = `
SELECT d.id FROM unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::text[]) AS x (id, fence, version, verdict, state)
JOIN delivery d ON d.id = x.id AND d.fence = x.fence AND d.version = x.version + 1 AND d.state = x.state
WHERE x.verdict = 'none'`

// Stuck work -----------------------------------------------------------------

// stuck lists rows whose worker has let its lease lapse (or is unknown), or that
// are held longer than $1 seconds, from an id on. It starts from index queue_leased
// in a step of its own: in one, a plan may walk the whole queue for the order.
const stuck = `
WITH leased AS MATERIALIZED (
    SELECT q.kind, q.id, q.lane, q.tenant, q.class, q.fence, q.version, q.claimed_at, q.due_at, q.ordering_key, q.expires_at, q.owner
    FROM queue q WHERE q.state = 'leased'
), page AS MATERIALIZED (
    SELECT q.* FROM leased q LEFT JOIN worker w ON w.id = q.owner
    WHERE q.kind = 'delivery' AND q.id > $2
      AND (w.id IS NULL OR w.lease_until < clock_timestamp() - interval '200 milliseconds'
           OR q.claimed_at < clock_timestamp() - make_interval(secs => $1))
    ORDER BY q.id LIMIT $3
)
SELECT q.id, q.lane, q.tenant, q.class, q.fence, q.version, q.claimed_at, q.due_at, coalesce(q.expires_at <= clock_timestamp(), false), q.ordering_key,
       d.channel, d.request_id, d.state, d.attempts, d.retries, d.prepared, d.custom, d.trace, q.expires_at,
       NULL::bytea, NULL::bytea, r.ordinals, r.addresses, r.accepted, q.owner
FROM page q
JOIN delivery d ON d.id = q.id
CROSS JOIN LATERAL (
    SELECT array_agg(r.ordinal ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS ordinals,
           array_agg(r.address ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS addresses,
           count(*) FILTER (WHERE r.state = 'accepted') AS accepted
    FROM recipient r WHERE r.delivery_id = q.id) r
ORDER BY q.id`

// overdue lists waiting rows past their expires_at; leased ones settle themselves.
const overdue = `
SELECT q.id FROM queue q
WHERE q.kind = 'delivery' AND q.expires_at <= now() AND q.owner IS NULL ORDER BY q.expires_at LIMIT $1`

// Single moves ---------------------------------------------------------------

const lockDelivery = `SELECT state, version, fence, attempts FROM delivery WHERE id = $1 FOR NO KEY UPDATE`

const lockQueued = `
SELECT fence, owner IS NOT NULL FROM queue WHERE kind = 'delivery' AND id = $1 FOR NO KEY UPDATE`

const insertLate = `
INSERT INTO attempt (delivery_id, fence, number, lane, worker, claimed_at, verdict, answer)
VALUES ($1, $2, $3, $4, $5, $6, 'late', $7) ON CONFLICT DO NOTHING`

const orderingOf = `SELECT tenant, ordering_key FROM delivery WHERE id = $1`

// lockWaiting locks a delivery that waits in the queue and is not in work.
const lockWaiting = `
SELECT d.channel, d.request_id, d.class, d.version, d.attempts, d.retries, d.custom, d.trace, q.fence
FROM queue q JOIN delivery d ON d.id = q.id
WHERE q.kind = 'delivery' AND q.id = $1 AND q.owner IS NULL AND (NOT $2 OR q.expires_at <= now())
FOR NO KEY UPDATE`

const deleteQueued = `DELETE FROM queue WHERE kind = 'delivery' AND id = $1`

const moveDelivery = `
UPDATE delivery SET state = $2, version = $3, answer = $4, fence = greatest(fence, $5), changed_at = now() WHERE id = $1`

const moveRecipient = `
UPDATE recipient SET state = $3, code = $4, text = $5 WHERE delivery_id = $1 AND ordinal = $2`

// Questions ------------------------------------------------------------------

const deliveryOfRequest = `SELECT delivery_id FROM request_key WHERE tenant = $1 AND request_id = $2`

const selectStatus = `
SELECT d.tenant, d.channel, d.request_id, d.class, d.state, d.version, d.attempts, d.retries, d.expires_at, d.changed_at, d.answer,
       l.key, q.state, q.due_at, q.claimed_at, q.owner, w.lease_until,
       coalesce(l.shut_until > now(), false), l.breaker, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced,
       CASE WHEN l.full_until > now() THEN l.full_until END, l.full_reason, coalesce(l.cap, 0), l.cap_reason,
       coalesce(l.paused_until > now(), false), CASE WHEN isfinite(l.paused_until) THEN l.paused_until END, l.paused_reason,
       p.scope, CASE WHEN isfinite(p.until) THEN p.until END, coalesce(p.reason, ''),
       coalesce(w.lease_until < clock_timestamp(), q.state = 'leased' AND w.id IS NULL, false), h.id
FROM delivery d
JOIN lane l ON l.id = d.lane
LEFT JOIN queue q ON q.kind = 'delivery' AND q.id = d.id
LEFT JOIN worker w ON w.id = q.owner
LEFT JOIN LATERAL (
    SELECT p.scope, p.until, p.reason FROM pause p WHERE p.scope = 'tenant' AND p.name = d.tenant AND p.until > now()
    UNION ALL
    SELECT p.scope, p.until, p.reason FROM pause p WHERE p.scope = 'channel' AND p.name = l.channel AND p.until > now()
    LIMIT 1) p ON true
LEFT JOIN LATERAL (SELECT h.id FROM queue h WHERE q.state = 'blocked' AND h.tenant = q.tenant AND h.ordering_key = q.ordering_key ORDER BY h.place LIMIT 1) h ON true
WHERE d.id = $1`

const anyWorker = `SELECT EXISTS (SELECT FROM worker w WHERE w.lease_until > clock_timestamp())`

// selectRecipients: see plain in settle.go for the row of a sole recipient.
const selectRecipients = `
SELECT r.ordinal, CASE WHEN r.state = 'pending' AND d.state = 'sent' THEN 'accepted' ELSE r.state END,
       CASE WHEN r.state = 'pending' AND d.state = 'sent' THEN coalesce(d.answer ->> 'code', '') ELSE r.code END, r.text
FROM recipient r JOIN delivery d ON d.id = r.delivery_id WHERE r.delivery_id = $1 ORDER BY r.ordinal`

const selectAttempts = `
SELECT number, fence, claimed_at, settled_at, verdict, answer FROM attempt WHERE delivery_id = $1 ORDER BY fence, settled_at`

const selectEvents = `
SELECT version, state, at FROM event WHERE aggregate = $1 ORDER BY version`

// Dead letters ---------------------------------------------------------------

const insertDeadLetters = `
INSERT INTO dead_letter (event_id, source, channel, tenant, aggregate, request_id, code, reason, summary, subject, headers, raw)
SELECT event_id, source, channel, tenant, aggregate, request_id, code, reason, summary, subject, headers, raw
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::json[], $10::text[], $11::json[], $12::bytea[])
  AS x (event_id, source, channel, tenant, aggregate, request_id, code, reason, summary, subject, headers, raw)
ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id`

const selectDeadLetters = `
SELECT event_id, source, channel, tenant, aggregate, request_id, code, reason, triage, remark, archived_at
FROM dead_letter
WHERE ($1 = '' OR tenant = $1) AND ($2 = '' OR source = $2) AND (triage = 'open' OR NOT $3)
ORDER BY archived_at DESC, event_id LIMIT $4`

// openLetters pages through the letters that nobody has dealt with, archived from $3
// until $4, by their id.
const openLetters = `
SELECT event_id, source, channel, tenant, aggregate, request_id, code, reason, summary FROM dead_letter
WHERE triage = 'open' AND event_id > $1 AND archived_at >= $3 AND archived_at < $4 ORDER BY event_id LIMIT $2`

// Operators' commands --------------------------------------------------------

// orderedAmong lists the ordering keys of deliveries; neither column ever changes.
const orderedAmong = `
SELECT d.tenant, d.ordering_key FROM unnest($1::uuid[]) AS x (id) JOIN delivery d ON d.id = x.id WHERE d.ordering_key IS NOT NULL`

// lockQueuedRows locks what waits, in the order of ids: the queue before the
// deliveries, as a settle does.
const lockQueuedRows = `
SELECT q.id, q.state, q.due_at <= clock_timestamp(), q.fence
FROM unnest($1::uuid[]) AS x (id) JOIN queue q ON q.kind = 'delivery' AND q.id = x.id
ORDER BY q.id FOR NO KEY UPDATE OF q`

const lockDeliveries = `
SELECT d.id, d.tenant, d.channel, d.request_id, d.class, d.lane, d.state, d.version, d.fence, d.attempts, d.retries, d.prepared,
       d.expires_at, coalesce(d.expires_at <= clock_timestamp(), false), d.ordering_key, d.custom, d.trace
FROM unnest($1::uuid[]) AS x (id) JOIN delivery d ON d.id = x.id
ORDER BY d.id FOR NO KEY UPDATE OF d`

// recipientsOf is read after the locks: in one statement with them it would be as
// old as the statement.
const recipientsOf = `
SELECT r.delivery_id, r.ordinal, r.state FROM unnest($1::uuid[]) AS x (id) JOIN recipient r ON r.delivery_id = x.id ORDER BY r.delivery_id, r.ordinal`

// hasten makes waiting rows ready; one that is blocked stays so.
const hasten = `
UPDATE queue q SET state = CASE q.state WHEN 'blocked' THEN 'blocked' ELSE 'ready' END, due_at = clock_timestamp(), version = x.version, expires_at = x.expires_at
FROM unnest($1::uuid[], $2::int[], $3::timestamptz[]) AS x (id, version, expires_at)
WHERE q.kind = 'delivery' AND q.id = x.id`

// requeue brings ended deliveries back, at the end of the line of their ordering
// key: their old place has been given up.
const requeue = `
INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, fence, version, expires_at, ordering_key, place)
SELECT 'delivery', x.id, x.lane, x.tenant, x.class,
       CASE WHEN x.ordering_key IS NOT NULL AND (x.nth > 1
                 OR EXISTS (SELECT FROM queue o WHERE o.tenant = x.tenant AND o.ordering_key = x.ordering_key)) THEN 'blocked' ELSE 'ready' END,
       clock_timestamp(), x.fence, x.version, x.expires_at, x.ordering_key, CASE WHEN x.ordering_key IS NOT NULL THEN nextval('queue_place') END
FROM (SELECT id, lane, tenant, class, fence, version, expires_at, ordering_key, ord,
             CASE WHEN ordering_key IS NOT NULL THEN row_number() OVER (PARTITION BY tenant, ordering_key ORDER BY ord) END AS nth
      FROM unnest($1::uuid[], $2::int[], $3::text[], $4::smallint[], $5::int[], $6::int[], $7::timestamptz[], $8::text[])
           WITH ORDINALITY AS u (id, lane, tenant, class, fence, version, expires_at, ordering_key, ord)) x
ORDER BY x.ord`

const dequeue = `DELETE FROM queue q USING unnest($1::uuid[]) AS x (id) WHERE q.kind = 'delivery' AND q.id = x.id`

// moveDeliveries writes the moves of one command; $8 is the answer, NULL keeps
// the last one.
const moveDeliveries = `
UPDATE delivery d SET state = $1, version = x.version, fence = greatest(d.fence, x.fence), retries = x.retries, lane = x.lane, expires_at = x.expires_at,
                      answer = coalesce($8::jsonb, d.answer), changed_at = now()
FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::int[], $7::timestamptz[]) AS x (id, version, fence, retries, lane, expires_at)
WHERE d.id = x.id`

// moveRecipients takes those in one state to another.
const moveRecipients = `
UPDATE recipient r SET state = $3, code = $4, text = $5 FROM unnest($1::uuid[]) AS x (id)
WHERE r.delivery_id = x.id AND r.state = $2`

// Prepared late --------------------------------------------------------------

// routePrepared gives a delivery that is prepared now to its real lane.
const routePrepared = `
UPDATE queue q SET state = 'ready', lane = $5, due_at = clock_timestamp(), owner = NULL, claimed_at = NULL
WHERE q.kind = 'delivery' AND q.id = $1 AND q.fence = $2 AND q.version = $3 AND q.owner = $4`

const markPrepared = `UPDATE delivery SET prepared = true, lane = $2 WHERE id = $1`

const putContent = `UPDATE content SET request = NULL, prepared = $2 WHERE delivery_id = $1`

const deleteRecipients = `DELETE FROM recipient WHERE delivery_id = $1`

// Jobs -----------------------------------------------------------------------

const insertJob = `
INSERT INTO operation_job (id, kind, filter, expiry, who, why, rate, upper_id, phase, cursor_id, total, total_known)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`

const jobBounds = `
SELECT uuid7_floor(greatest(least($2::timestamptz, now()), 'epoch')), uuid7_floor(greatest($1::timestamptz, 'epoch'))`

const selectJob = `
SELECT id, kind, state, filter, expiry, rate, total, total_known, done, skipped, failed, fault, created_at, updated_at, who, why
FROM operation_job WHERE id = $1`

const selectJobs = `
SELECT id, kind, state, filter, expiry, rate, total, total_known, done, skipped, failed, fault, created_at, updated_at, who, why
FROM operation_job ORDER BY id DESC LIMIT $1`

const selectResults = `
SELECT delivery, effect FROM operation_result WHERE job = $1 AND delivery > $2 ORDER BY delivery LIMIT $3`

// takeJob takes a running job that nobody works on, the oldest first.
const takeJob = `
WITH pick AS MATERIALIZED (
    SELECT j.id FROM operation_job j WHERE j.state = 'running' AND (j.lease_until IS NULL OR j.lease_until <= clock_timestamp())
    ORDER BY j.created_at LIMIT 1 FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE operation_job j SET owner = $1, lease_until = clock_timestamp() + make_interval(secs => $2)
FROM pick WHERE j.id = pick.id
RETURNING j.id, j.rate`

// lockJob is the fence of a step: nobody else works on it, and it still runs.
const lockJob = `
SELECT kind, filter, expiry, phase, cursor_id, upper_id, who, why FROM operation_job
WHERE id = $1 AND owner = $2 AND state = 'running' AND lease_until > clock_timestamp() FOR NO KEY UPDATE`

const advanceJob = `
UPDATE operation_job SET phase = $2, cursor_id = $3, done = done + $4, skipped = skipped + $5, failed = failed + $6,
       state = CASE WHEN $2 = 'end' THEN 'done' ELSE state END, fault = '',
       lease_until = CASE WHEN $2 = 'end' THEN NULL ELSE clock_timestamp() + make_interval(secs => $7) END,
       owner = CASE WHEN $2 = 'end' THEN NULL ELSE owner END, updated_at = clock_timestamp()
WHERE id = $1`

const leaveJob = `UPDATE operation_job SET owner = NULL, lease_until = NULL, fault = $3, updated_at = clock_timestamp() WHERE id = $1 AND owner = $2`

const lockJobState = `SELECT state FROM operation_job WHERE id = $1 FOR NO KEY UPDATE`

const turnJob = `
UPDATE operation_job SET state = $2, owner = NULL, lease_until = NULL, updated_at = clock_timestamp() WHERE id = $1`

const insertResults = `
INSERT INTO operation_result (job, delivery, effect)
SELECT $1, delivery, effect FROM unnest($2::uuid[], $3::text[]) AS x (delivery, effect)`

const resultsAmong = `
SELECT r.delivery FROM unnest($2::uuid[]) AS x (id) JOIN operation_result r ON r.job = $1 AND r.delivery = x.id`

// pageOfQueue looks at the next $3 rows of the queue and tells which the filter
// finds: a page costs the same however few those are.
const pageOfQueue = `
WITH seen AS MATERIALIZED (
    SELECT q.id FROM queue q WHERE q.kind = 'delivery' AND q.id > $1 AND q.id < $2 ORDER BY q.id LIMIT $3
)
SELECT s.id, d.id IS NOT NULL FROM seen s
LEFT JOIN delivery d ON d.id = s.id AND d.state = ANY ($4::text[]) AND ($5 = '' OR d.tenant = $5) AND ($6 = '' OR d.channel = $6)
     AND ($7 = '' OR d.answer ->> 'code' = $7) AND ($8 = '' OR d.answer ->> 'category' = $8) AND starts_with(d.request_id, $9)
ORDER BY s.id`

// pageOfArchive does the same with the failures. They are found through the dead
// letters and not through delivery, which has no index on its state: that would
// cost every settle a second write, and a scan would read all that was ever sent.
// A letter is archived moments after its event; one that has not come yet is
// found by the next job.
const pageOfArchive = `
WITH seen AS MATERIALIZED (
    SELECT l.aggregate AS id FROM dead_letter l WHERE l.aggregate IS NOT NULL AND l.aggregate > $1 AND l.aggregate < $2 ORDER BY l.aggregate LIMIT $3
)
SELECT s.id, d.id IS NOT NULL FROM seen s
LEFT JOIN delivery d ON d.id = s.id AND d.state = ANY ($4::text[]) AND ($5 = '' OR d.tenant = $5) AND ($6 = '' OR d.channel = $6)
     AND ($7 = '' OR d.answer ->> 'code' = $7) AND ($8 = '' OR d.answer ->> 'category' = $8) AND starts_with(d.request_id, $9)
ORDER BY s.id`

// Triage and audit -----------------------------------------------------------

const lockLetters = `
SELECT l.event_id, l.triage FROM unnest($1::text[]) AS x (event_id) JOIN dead_letter l ON l.event_id = x.event_id
ORDER BY l.event_id FOR NO KEY UPDATE OF l`

const triageLetters = `
UPDATE dead_letter l SET triage = $2, remark = $3 FROM unnest($1::text[]) AS x (event_id) WHERE l.event_id = x.event_id`

// selectAudit walks back in time by the primary key.
const selectAudit = `
SELECT id, at, who, action, target, result, why FROM audit
WHERE ($1 = '' OR who = $1) AND ($2 = '' OR action = $2) AND id < $3 ORDER BY id DESC LIMIT $4`

// selectAuditOf is what happened to one target; to a delivery also by jobs ($2 is
// its id, NULL for other targets).
const selectAuditOf = `
WITH targets AS MATERIALIZED (
    SELECT $1 AS target UNION SELECT r.job::text FROM operation_result r WHERE r.delivery = $2::uuid
), found AS MATERIALIZED (
    SELECT a.id, a.at, a.who, a.action, a.target, a.result, a.why FROM targets t JOIN audit a ON a.target = t.target
)
SELECT id, at, who, action, target, result, why FROM found
WHERE ($3 = '' OR who = $3) AND ($4 = '' OR action = $4) AND id < $5 ORDER BY id DESC LIMIT $6`

// Duties ---------------------------------------------------------------------

// takeDuty takes a duty that nobody has and that was last done $4 seconds ago or
// earlier.
const takeDuty = `
INSERT INTO duty AS d (name, owner, lease_until) VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE d.lease_until < clock_timestamp() AND (d.done_at IS NULL OR d.done_at <= clock_timestamp() - make_interval(secs => $4))
RETURNING result`

const renewDuty = `
UPDATE duty SET lease_until = clock_timestamp() + make_interval(secs => $3)
WHERE name = $1 AND owner = $2 AND lease_until > clock_timestamp()`

// endDuty leaves a duty: done with a result, or given up without one.
const endDuty = `
UPDATE duty SET lease_until = '-infinity', done_at = CASE WHEN $3::json IS NULL THEN done_at ELSE clock_timestamp() END, result = coalesce($3::json, result)
WHERE name = $1 AND owner = $2`

const selectDuty = `SELECT done_at, result FROM duty WHERE name = $1`

// Events, for the stream's sake ----------------------------------------------

// pinRange is for statements that read a stretch of time, which index event_at
// finds; it holds for the current transaction only.
const pinRange = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'on', true), set_config('plan_cache_mode', 'force_custom_plan', true)`

// summarizeEvents brings index event_at up to date: what it has not summarised yet
// is read by every search. An autovacuum in progress is not waited for.
const summarizeEvents = `
SELECT sum(brin_summarize_new_values(i.indexrelid))
FROM pg_inherits h JOIN pg_index i ON i.indrelid = h.inhrelid JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE h.inhparent = 'event'::regclass AND a.amname = 'brin'`

const impatient = `SELECT set_config('lock_timeout', '500ms', true)`

const databaseTime = `SELECT clock_timestamp()`

// eventsBetween lists what was booked from $1 until before $2, oldest first. The
// tenant is the last token of the subject.
const eventsBetween = `
SELECT e.aggregate, e.version, e.at FROM event e
WHERE e.at >= $1 AND e.at < $2 AND ($3 = '' OR split_part(e.subject, '.', 6) = $3) AND ($4 = '' OR e.state = $4)
ORDER BY e.at, e.version, e.aggregate`

const countEvents = `
SELECT count(*) FROM event e
WHERE e.at >= $1 AND e.at < $2 AND ($3 = '' OR split_part(e.subject, '.', 6) = $3) AND ($4 = '' OR e.state = $4)`

// eventTimes tells which of these events are in the book, and since when.
const eventTimes = `
SELECT e.aggregate, e.version, e.at FROM unnest($1::uuid[], $2::int[]) AS x (aggregate, version)
CROSS JOIN LATERAL (SELECT e.aggregate, e.version, e.at FROM event e WHERE e.aggregate = x.aggregate AND e.version = x.version) e`

const eventBodies = `
SELECT e.aggregate, e.version, e.at, e.subject, e.body FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS x (aggregate, version, ord)
CROSS JOIN LATERAL (SELECT e.aggregate, e.version, e.at, e.subject, e.body FROM event e WHERE e.aggregate = x.aggregate AND e.version = x.version) e
ORDER BY x.ord`

// eventsInOutbox tells which of these events are still to be published.
const eventsInOutbox = `
SELECT u.aggregate, u.version FROM outbox o CROSS JOIN LATERAL unnest(o.aggregates, o.versions) AS u (aggregate, version)
JOIN unnest($1::uuid[], $2::int[]) AS x (aggregate, version) ON x.aggregate = u.aggregate AND x.version = u.version`

// Replays --------------------------------------------------------------------

const insertReplay = `
INSERT INTO replay (id, since, until, tenant, state, requested_by, reached, total) VALUES ($1, $2, $3, $4, $5, $6, $2, $7)`

const selectReplays = `
SELECT id, since, until, tenant, state, requested_by, status, reached, total, published, fault, created_at, finished_at
FROM replay ORDER BY id DESC LIMIT $1`

const selectReplay = `
SELECT id, since, until, tenant, state, requested_by, status, reached, total, published, fault, created_at, finished_at
FROM replay WHERE id = $1`

// nextReplay is the oldest that is not finished.
const nextReplay = `
SELECT id, since, until, tenant, state, requested_by, status, reached, total, published, fault, created_at, finished_at
FROM replay WHERE status = 'running' ORDER BY id LIMIT 1`

// advanceReplay moves on from $2, where the caller believes it to be.
const advanceReplay = `
UPDATE replay SET reached = $3, published = published + $4, fault = '',
       status = CASE WHEN $3 >= until THEN 'done' ELSE status END, finished_at = CASE WHEN $3 >= until THEN clock_timestamp() END
WHERE id = $1 AND status = 'running' AND reached = $2`

const blameReplay = `UPDATE replay SET fault = $2 WHERE id = $1 AND status = 'running'`

const cancelReplay = `
UPDATE replay SET status = 'cancelled', finished_at = clock_timestamp() WHERE id = $1 AND status = 'running'`

// Lag and alarms -------------------------------------------------------------

// oldestOutbox: ids are of uuid version 7, so the first is the oldest.
const oldestOutbox = `
SELECT extract(epoch FROM clock_timestamp() - o.created_at)::float8, o.tries FROM outbox o ORDER BY o.id LIMIT 1`

// oldestReady probes the first row of each group of an open lane (index
// queue_ready). A lane that has just been opened again has made nobody wait.
const oldestReady = `
WITH RECURSIVE g AS (
    (SELECT q.lane, q.tenant, q.class, 1 AS n FROM queue q WHERE q.kind = 'delivery' AND q.state = 'ready'
     ORDER BY q.lane, q.tenant, q.class LIMIT 1)
    UNION ALL
    SELECT s.lane, s.tenant, s.class, g.n + 1 FROM g CROSS JOIN LATERAL (
        SELECT q.lane, q.tenant, q.class FROM queue q
        WHERE q.kind = 'delivery' AND q.state = 'ready' AND (q.lane, q.tenant, q.class) > (g.lane, g.tenant, g.class)
        ORDER BY q.lane, q.tenant, q.class LIMIT 1) s
    WHERE g.n < 2000
)
SELECT extract(epoch FROM clock_timestamp() - w.since)::float8, w.key, w.tenant
FROM (SELECT greatest(f.due_at, l.shut_until, l.full_until, l.paused_until, l.updated_at) AS since, l.key, g.tenant
      FROM g JOIN lane l ON l.id = g.lane AND NOT l.guarded AND lane_open(l.shut_until, l.full_until, l.paused_until)
      CROSS JOIN LATERAL (SELECT q.due_at FROM queue q
          WHERE q.kind = 'delivery' AND q.state = 'ready' AND q.lane = g.lane AND q.tenant = g.tenant AND q.class = g.class
          ORDER BY q.due_at LIMIT 1) f) w
ORDER BY w.since LIMIT 1`

// oldestWaiting is due and nobody has made it ready: no sender runs.
const oldestWaiting = `
SELECT extract(epoch FROM clock_timestamp() - q.due_at)::float8 FROM queue q
WHERE q.kind = 'delivery' AND q.state = 'waiting' AND q.due_at <= now() ORDER BY q.due_at LIMIT 1`

// snapshotPins lists what keeps vacuum from removing dead rows of this database:
// sessions, standbys that report back, prepared transactions, replication slots.
// Sessions of other users are seen only by a member of pg_read_all_stats.
const snapshotPins = `
SELECT p.what, p.seconds, p.xids FROM (
    SELECT 'session ' || pid || ' (' || coalesce(nullif(application_name, ''), 'unnamed') || ', ' || coalesce(state, 'in work') || ')' AS what,
           CASE WHEN datname IS NOT NULL THEN extract(epoch FROM clock_timestamp() - xact_start)::float8 END AS seconds,
           greatest(age(backend_xmin), age(backend_xid)) AS xids
    FROM pg_stat_activity
    WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    UNION ALL
    SELECT 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot ' || slot_name, NULL, age(xmin) FROM pg_replication_slots WHERE xmin IS NOT NULL) p
ORDER BY p.seconds DESC NULLS LAST, p.xids DESC NULLS LAST LIMIT 100`

const queueDead = `
SELECT coalesce(max(s.n_dead_tup), 0)::float8 FROM pg_stat_user_tables s WHERE s.relid = 'queue'::regclass`

const selectAlarms = `SELECT name, raised, version, value, text, changed_at FROM alarm ORDER BY name`

const raiseAlarm = `
INSERT INTO alarm AS a (name, raised, version, value, text) VALUES ($1, true, 1, $2, $3)
ON CONFLICT (name) DO UPDATE SET raised = true, version = a.version + 1, value = excluded.value, text = excluded.text, changed_at = now()
WHERE NOT a.raised
RETURNING version`

const clearAlarm = `
UPDATE alarm SET raised = false, version = version + 1, value = $2, text = $3, changed_at = now() WHERE name = $1 AND raised
RETURNING version`

// Stuck again and again ------------------------------------------------------

// zombieRuns counts, per delivery, the last attempts in a row that the sweep found
// without their worker. A result that came late after all shows that its worker
// lived, and ends the row as any other attempt does.
const zombieRuns = `
SELECT x.id, z.n FROM unnest($1::uuid[]) AS x (id)
CROSS JOIN LATERAL (SELECT coalesce(max(a.fence), 0) AS fence FROM attempt a
    WHERE a.delivery_id = x.id AND NOT (a.verdict = 'unknown' AND a.answer ->> 'code' = 'ZOMBIE_RECOVERED')) last
CROSS JOIN LATERAL (SELECT count(*) AS n FROM attempt a WHERE a.delivery_id = x.id AND a.fence > last.fence AND a.verdict = 'unknown') z`

// Retention ------------------------------------------------------------------

// historyMonths lists the months of history, oldest first, by their tables.
const historyMonths = `
SELECT right(c.relname, 6) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'delivery'::regclass AND c.relname ~ '^delivery_[0-9]{6}$' ORDER BY c.relname`

// workBetween tells whether anything of these ids is unfinished or unpublished.
const workBetween = `
SELECT EXISTS (SELECT FROM queue q WHERE q.kind = 'delivery' AND q.id >= uuid7_floor($1) AND q.id < uuid7_floor($2))
    OR EXISTS (SELECT FROM queue q WHERE q.kind = 'document' AND q.id >= uuid7_floor($1) AND q.id < uuid7_floor($2))
    OR EXISTS (SELECT FROM queue q WHERE q.kind = 'deferred' AND q.id >= uuid7_floor($1) AND q.id < uuid7_floor($2))
    OR EXISTS (SELECT FROM mls_deadline m WHERE m.document_id >= uuid7_floor($1) AND m.document_id < uuid7_floor($2))
    OR EXISTS (SELECT FROM outbox o CROSS JOIN LATERAL unnest(o.aggregates) AS u (id) WHERE u.id >= uuid7_floor($1) AND u.id < uuid7_floor($2))`

// openBetween looks at deliveries and documents themselves: slow, and the last word.
const openBetween = `
SELECT EXISTS (SELECT FROM delivery d WHERE d.id >= uuid7_floor($1) AND d.id < uuid7_floor($2) AND d.state IN ('pending', 'retry', 'held'))
    OR EXISTS (SELECT FROM document d WHERE d.id >= uuid7_floor($1) AND d.id < uuid7_floor($2) AND d.state IN ('received', 'deferred', 'retry'))`

// toldBetween tells whether an event of these ids is younger than $3.
const toldBetween = `
SELECT EXISTS (SELECT FROM event e WHERE e.aggregate >= uuid7_floor($1) AND e.aggregate < uuid7_floor($2) AND e.at > $3)`

// lockHistory holds up everybody, so it waits no longer than a blink.
const lockHistory = `LOCK TABLE ONLY delivery, ONLY content, ONLY recipient, ONLY document, ONLY document_body, ONLY attempt, ONLY event IN ACCESS EXCLUSIVE MODE`

const boundLocks = `SELECT set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '5s', true)`

// deleteKeys removes keys of a page of ids, from $1 on and before $2, whose
// deliveries have left the history, and tells where the page ends.
const deleteKeys = `
WITH page AS MATERIALIZED (
    SELECT k.tenant, k.request_id, k.delivery_id FROM request_key k
    WHERE k.delivery_id > $1 AND k.delivery_id < uuid7_floor($2) ORDER BY k.delivery_id LIMIT $3
), gone AS (
    DELETE FROM request_key k USING page p
    WHERE k.tenant = p.tenant AND k.request_id = p.request_id AND k.delivery_id = p.delivery_id
      AND NOT EXISTS (SELECT FROM delivery d WHERE d.id = p.delivery_id)
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT p.delivery_id FROM page p ORDER BY p.delivery_id DESC LIMIT 1), (SELECT count(*) FROM page)`

// deleteDocumentKeys is the same for documents.
const deleteDocumentKeys = `
WITH page AS MATERIALIZED (
    SELECT k.kind, k.name, k.document_id FROM document_key k
    WHERE k.document_id > $1 AND k.document_id < uuid7_floor($2) ORDER BY k.document_id LIMIT $3
), gone AS (
    DELETE FROM document_key k USING page p
    WHERE k.kind = p.kind AND k.name = p.name AND k.document_id = p.document_id
      AND NOT EXISTS (SELECT FROM document d WHERE d.id = p.document_id)
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT p.document_id FROM page p ORDER BY p.document_id DESC LIMIT 1), (SELECT count(*) FROM page)`
