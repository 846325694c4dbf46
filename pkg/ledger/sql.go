package ledger

// Every statement of the room, in the order of a delivery's life. States are
// literals, so that the partial indexes of the queue apply under generic plans
// too; columns are listed, so that this binary runs on the next schema.

// pinPlanner holds for the current transaction only: every hot statement is a
// nested loop over an index, whatever the statistics of the moment say. Plans
// are kept generic, so a long array does not cost a new plan each time.
const pinPlanner = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`

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
// blocked until that one leaves. Places are drawn in the order of the batch.
const insertQueue = `
INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version, expires_at, ordering_key, place)
SELECT 'delivery', x.id, x.lane, x.tenant, x.class,
       CASE WHEN x.ordering_key IS NOT NULL AND (x.nth > 1
                 OR EXISTS (SELECT FROM queue o WHERE o.tenant = x.tenant AND o.ordering_key = x.ordering_key)) THEN 'blocked'
            WHEN x.send_at > now() THEN 'waiting'
            ELSE 'ready' END,
       greatest(x.send_at, now()), 1, x.expires_at, x.ordering_key, CASE WHEN x.ordering_key IS NOT NULL THEN nextval('queue_place') END
FROM (SELECT id, lane, tenant, class, send_at, expires_at, ordering_key,
             CASE WHEN ordering_key IS NOT NULL THEN row_number() OVER (PARTITION BY tenant, ordering_key ORDER BY ord) END AS nth, ord
      FROM unnest($1::uuid[], $2::int[], $3::text[], $4::smallint[], $5::timestamptz[], $6::timestamptz[], $7::text[])
           WITH ORDINALITY AS u (id, lane, tenant, class, send_at, expires_at, ordering_key, ord)) x
ORDER BY x.ord`

const insertEvents = `
INSERT INTO event (aggregate, version, kind, state, subject, body)
SELECT id, version, 'delivery', state, subject, body
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::bytea[]) AS x (id, version, state, subject, body)`

// Lanes ----------------------------------------------------------------------

const insertLane = `INSERT INTO lane (key, kind) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING`

const selectLane = `SELECT id FROM lane WHERE key = $1`

// Workers --------------------------------------------------------------------

const insertWorker = `
INSERT INTO worker (id, instance, lease_until) VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))`

// renewWorker renews nothing once the lease has lapsed: then the work may be
// somebody else's already.
const renewWorker = `
UPDATE worker SET lease_until = clock_timestamp() + make_interval(secs => $2)
WHERE id = $1 AND lease_until > clock_timestamp()`

// deleteWorker is refused while it still owns work, which the sweep will find.
const deleteWorker = `
DELETE FROM worker w WHERE w.id = $1
AND NOT EXISTS (SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = w.id)`

// Claim ----------------------------------------------------------------------

// scanReady walks from one (lane, tenant, class) with ready work to the next by
// index queue_ready: one probe each, however many rows they hold. Groups of a
// lane that is shut or paused are left out.
const scanReady = `
WITH RECURSIVE g AS (
    (SELECT q.lane, q.tenant, q.class, 1 AS n FROM queue q
     WHERE q.kind = 'delivery' AND q.state = 'ready' AND (q.lane, q.tenant, q.class) > ($1, $2, $3)
     ORDER BY q.lane, q.tenant, q.class LIMIT 1)
    UNION ALL
    SELECT s.lane, s.tenant, s.class, g.n + 1 FROM g CROSS JOIN LATERAL (
        SELECT q.lane, q.tenant, q.class FROM queue q
        WHERE q.kind = 'delivery' AND q.state = 'ready' AND (q.lane, q.tenant, q.class) > (g.lane, g.tenant, g.class)
        ORDER BY q.lane, q.tenant, q.class LIMIT 1) s
    WHERE g.n < $4
)
SELECT g.lane, g.tenant, g.class,
       l.shut_until IS NOT NULL AND l.shut_until > now() OR l.paused_until IS NOT NULL AND l.paused_until > now()
FROM g JOIN lane l ON l.id = g.lane
ORDER BY g.n`

// claimRows takes up to n rows of each turn, oldest first from the turn's low-water
// mark on. It locks only what it takes, in a materialised step (a plan may
// evaluate anything else more than once), and skips what others hold and lanes
// that are shut or paused; a skip writes nothing. A row that went through other
// hands while this statement ran is locked as it is now but joined to its delivery
// as it was: the fence tells the two apart, and the row is left for the next claim.
const claimRows = `
WITH pick AS MATERIALIZED (
    SELECT q.id, q.due_at, q.fence
    FROM unnest($2::int[], $3::text[], $4::smallint[], $5::timestamptz[], $6::int[]) AS t (lane, tenant, class, mark, n)
    JOIN lane l ON l.id = t.lane AND (l.shut_until IS NULL OR l.shut_until <= now()) AND (l.paused_until IS NULL OR l.paused_until <= now())
    CROSS JOIN LATERAL (
        SELECT q.id, q.due_at, q.fence FROM queue q
        WHERE q.kind = 'delivery' AND q.state = 'ready' AND q.lane = t.lane AND q.tenant = t.tenant AND q.class = t.class AND q.due_at >= t.mark
        ORDER BY q.due_at, q.id LIMIT t.n
        FOR NO KEY UPDATE OF q SKIP LOCKED) q
), taken AS (
    UPDATE queue q SET state = 'leased', owner = $1, fence = q.fence + 1, claimed_at = clock_timestamp()
    FROM pick WHERE q.kind = 'delivery' AND q.id = pick.id AND q.fence = pick.fence
    RETURNING q.id, q.lane, q.tenant, q.class, q.fence, q.version, q.claimed_at, pick.due_at, q.ordering_key, q.expires_at, q.expires_at <= clock_timestamp() AS expired
)
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

// promote makes waiting rows ready whose time has come, oldest first.
const promote = `
WITH pick AS MATERIALIZED (
    SELECT q.id FROM queue q WHERE q.kind = 'delivery' AND q.state = 'waiting' AND q.due_at <= now()
    ORDER BY q.due_at LIMIT $1 FOR NO KEY UPDATE OF q SKIP LOCKED
), moved AS (
    UPDATE queue q SET state = 'ready', due_at = clock_timestamp() FROM pick WHERE q.kind = 'delivery' AND q.id = pick.id
    RETURNING q.lane, q.tenant, q.class
)
SELECT DISTINCT lane, tenant, class FROM moved`

// returnRows gives back what a worker holds without knowing it: claimed after $3.
const returnRows = `
UPDATE queue q SET state = 'ready', due_at = clock_timestamp(), owner = NULL, claimed_at = NULL
WHERE q.state = 'leased' AND q.owner = $1 AND q.kind = 'delivery' AND q.claimed_at > $3
  AND NOT (q.id = ANY (coalesce($2::uuid[], '{}')))`

// nextDue tells how long until the earliest waiting row is due, in seconds.
const nextDue = `
SELECT extract(epoch FROM q.due_at - clock_timestamp())::float8 FROM queue q
WHERE q.kind = 'delivery' AND q.state = 'waiting' ORDER BY q.due_at LIMIT 1`

// Settle ---------------------------------------------------------------------

// settle moves many deliveries at once. All columns of a delivery travel
// through the one unnest and the RETURNING of the guarded move: whatever is
// joined later would be a loop in a loop. A row that is not as expected (fence,
// version, owner when given) is left alone with everything that hangs on it.
const settle = `
WITH x AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::int[], $4::int[], $5::uuid[], $6::timestamptz[], $7::text[], $8::float8[],
                         $9::int[], $10::int[], $11::text[], $12::jsonb[], $13::jsonb[], $14::text[], $15::bytea[])
         WITH ORDINALITY AS u (id, fence, version, worker, claimed_at, state, delay,
                               attempts, retries, verdict, answer, recipients, subject, body, ord)
), gone AS (
    DELETE FROM queue q USING x
    WHERE q.kind = 'delivery' AND q.id = x.id AND q.fence = x.fence AND q.version = x.version AND q.owner = x.worker
      AND x.state NOT IN ('retry', 'held')
    RETURNING x.*, q.lane
), stayed AS (
    UPDATE queue q SET state = CASE x.state WHEN 'held' THEN 'held' ELSE 'waiting' END, due_at = clock_timestamp() + make_interval(secs => x.delay),
                       owner = NULL, claimed_at = NULL, version = x.version + 1
    FROM x
    WHERE q.kind = 'delivery' AND q.id = x.id AND q.fence = x.fence AND q.version = x.version AND q.owner = x.worker
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
UPDATE queue q SET state = CASE WHEN q.due_at > now() THEN 'waiting' ELSE 'ready' END, due_at = greatest(q.due_at, clock_timestamp())
FROM (SELECT DISTINCT tenant, ordering_key FROM unnest($1::text[], $2::text[]) AS x (tenant, ordering_key)) k
CROSS JOIN LATERAL (
    SELECT h.kind, h.id FROM queue h WHERE h.tenant = k.tenant AND h.ordering_key = k.ordering_key ORDER BY h.place LIMIT 1) head
WHERE q.kind = head.kind AND q.id = head.id AND q.state = 'blocked'`

// giveBack returns rows whose attempt never began: nothing is counted, no
// version, no event.
const giveBack = `
UPDATE queue q SET state = 'waiting', due_at = clock_timestamp() + make_interval(secs => x.delay), owner = NULL, claimed_at = NULL
FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::float8[]) AS x (id, fence, worker, delay)
WHERE q.kind = 'delivery' AND q.id = x.id AND q.fence = x.fence AND q.owner = x.worker`

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
// are held longer than $1 seconds, from an id on.
const stuck = `
SELECT q.id, q.lane, q.tenant, q.class, q.fence, q.version, q.claimed_at, q.due_at, coalesce(q.expires_at <= clock_timestamp(), false), q.ordering_key,
       d.channel, d.request_id, d.state, d.attempts, d.retries, d.prepared, d.custom, d.trace, q.expires_at,
       NULL::bytea, NULL::bytea, r.ordinals, r.addresses, r.accepted, q.owner
FROM queue q
LEFT JOIN worker w ON w.id = q.owner
JOIN delivery d ON d.id = q.id
CROSS JOIN LATERAL (
    SELECT array_agg(r.ordinal ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS ordinals,
           array_agg(r.address ORDER BY r.ordinal) FILTER (WHERE r.state = 'pending') AS addresses,
           count(*) FILTER (WHERE r.state = 'accepted') AS accepted
    FROM recipient r WHERE r.delivery_id = q.id) r
WHERE q.kind = 'delivery' AND q.state = 'leased' AND q.id > $2
  AND (w.id IS NULL OR w.lease_until < clock_timestamp() - interval '1 second'
       OR q.claimed_at < clock_timestamp() - make_interval(secs => $1))
ORDER BY q.id LIMIT $3`

// nextLapse tells how long until the earliest lease that holds work lapses.
const nextLapse = `
SELECT extract(epoch FROM min(w.lease_until) - clock_timestamp())::float8 FROM worker w
WHERE EXISTS (SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = w.id)`

// forgetWorkers removes lapsed workers that own nothing any more.
const forgetWorkers = `
DELETE FROM worker w WHERE w.lease_until < clock_timestamp() - interval '1 minute'
AND NOT EXISTS (SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = w.id)`

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
       CASE WHEN l.shut_until > now() THEN l.shut_until END, l.shut_reason,
       CASE WHEN l.paused_until > now() THEN l.paused_until END, l.paused_reason, now()
FROM delivery d
JOIN lane l ON l.id = d.lane
LEFT JOIN queue q ON q.kind = 'delivery' AND q.id = d.id
LEFT JOIN worker w ON w.id = q.owner
WHERE d.id = $1`

const selectRecipients = `
SELECT ordinal, state, code, text FROM recipient WHERE delivery_id = $1 ORDER BY ordinal`

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
