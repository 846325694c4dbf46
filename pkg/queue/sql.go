package queue

// Every statement of the room, with the kind of work written as a literal: the
// partial indexes apply under generic plans, and of(kind) writes the other kind.

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

// nextLapse tells how long until the earliest lease may lapse: of any worker that
// is alive, whether it holds work or is about to, and of a lapsed one that does.
const nextLapse = `
SELECT extract(epoch FROM min(w.lease_until) - clock_timestamp())::float8 FROM worker w
WHERE w.lease_until > clock_timestamp() OR EXISTS (SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = w.id)`

// forgetWorkers removes lapsed workers that own nothing any more.
const forgetWorkers = `
DELETE FROM worker w WHERE w.lease_until < clock_timestamp() - interval '1 minute'
AND NOT EXISTS (SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = w.id)`

// Claim ----------------------------------------------------------------------

// scanReady walks from one (lane, tenant, class) with ready work to the next by
// index queue_ready: one probe each, however many rows they hold. It tells which
// are shut (open breaker, used-up limit, pause) and for how many seconds (NULL: no
// end is known), and which lanes wait for a probe.
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
       NOT lane_open(l.shut_until, l.full_until, l.paused_until) OR p.until IS NOT NULL,
       CASE WHEN isfinite(w.until) THEN extract(epoch FROM w.until - clock_timestamp())::float8 END,
       l.breaker = 'open' AND l.shut_until <= now()
FROM g JOIN lane l ON l.id = g.lane
CROSS JOIN LATERAL (SELECT greatest((SELECT p.until FROM pause p WHERE p.scope = 'tenant' AND p.name = g.tenant AND p.until > now()),
                                    (SELECT p.until FROM pause p WHERE p.scope = 'channel' AND p.name = l.channel AND p.until > now())) AS until) p
CROSS JOIN LATERAL (SELECT greatest(l.shut_until, l.full_until, l.paused_until, p.until) AS until) w
ORDER BY g.n`

// lockGates locks those of the lanes whose traffic is counted, and notes them for
// the rest of the transaction. What another instance is counting at this moment is
// passed over. It is a statement of its own: the one that counts must see all that
// earlier holders of the lock have committed.
const lockGates = `
SELECT set_config('posthouse.gates', coalesce(string_agg(g.id::text, ','), ''), true) FROM (
    SELECT l.id FROM lane l WHERE l.id = ANY ($1::int[]) AND l.guarded ORDER BY l.id FOR NO KEY UPDATE OF l SKIP LOCKED) g`

// claimHead takes up to n rows of each turn, oldest first from the turn's low-water
// mark on. It locks only what it takes, in a materialised step (a plan may
// evaluate anything else more than once), and skips what others hold and lanes
// that are shut or paused; a skip writes nothing. Of a guarded lane (see lockGates)
// it takes no more than is free there, and books what the lane's rate allows. A row
// that went through other hands while this statement ran is locked as it is now but
// joined to its delivery as it was: the fence tells the two apart, and the row is
// left for the next claim. What it took is in taken, from which a room of one kind
// reads on.
const claimHead = `
WITH turn AS MATERIALIZED (
    SELECT t.lane, t.tenant, t.class, t.mark, t.n, t.ord, l.guarded
    FROM unnest($2::int[], $3::text[], $4::smallint[], $5::timestamptz[], $6::int[]) WITH ORDINALITY AS t (lane, tenant, class, mark, n, ord)
    JOIN lane l ON l.id = t.lane AND lane_open(l.shut_until, l.full_until, l.paused_until)
    WHERE (NOT l.guarded OR l.id = ANY (string_to_array(current_setting('posthouse.gates', true), ',')::int[]))
      AND NOT EXISTS (SELECT FROM pause p WHERE p.scope = 'tenant' AND p.name = t.tenant AND p.until > now())
      AND NOT EXISTS (SELECT FROM pause p WHERE p.scope = 'channel' AND p.name = l.channel AND p.until > now())
), room AS MATERIALIZED (
    SELECT l.id, greatest(0, least(
               CASE l.breaker WHEN 'open' THEN 0 WHEN 'half_open' THEN l.probes - l.probed - b.busy ELSE 1000000 END,
               l.max_in_flight - b.busy, l.cap - b.busy,
               l.daily_limit - CASE WHEN l.day = (now() AT TIME ZONE 'UTC')::date THEN l.day_used ELSE 0 END,
               rate_burst(r.rate) - ceil(greatest(0, extract(epoch FROM l.rate_tat - now())::float8) / rate_interval(r.rate) - 0.000001))) AS free
    FROM (SELECT DISTINCT t.lane FROM turn t WHERE t.guarded) w
    JOIN lane l ON l.id = w.lane
    CROSS JOIN LATERAL (SELECT least(l.rate_limit, l.rate_cap) AS rate) r
    CROSS JOIN LATERAL (SELECT count(*)::int AS busy FROM worker k CROSS JOIN LATERAL (
        SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = k.id AND q.lane = l.id) q) b
), share AS MATERIALIZED (
    SELECT t.lane, t.tenant, t.class, t.mark,
           CASE WHEN NOT t.guarded THEN t.n
                ELSE greatest(0, least(t.n, r.free - coalesce(sum(t.n) OVER (PARTITION BY t.lane ORDER BY t.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)))::int
           END AS n
    FROM turn t LEFT JOIN room r ON r.id = t.lane
), pick AS MATERIALIZED (
    SELECT q.kind, q.id, q.due_at, q.fence
    FROM share t
    CROSS JOIN LATERAL (
        SELECT q.kind, q.id, q.due_at, q.fence FROM queue q
        WHERE q.kind = 'delivery' AND q.state = 'ready' AND q.lane = t.lane AND q.tenant = t.tenant AND q.class = t.class AND q.due_at >= t.mark
        ORDER BY q.due_at, q.id LIMIT t.n
        FOR NO KEY UPDATE OF q SKIP LOCKED) q
), taken AS (
    UPDATE queue q SET state = 'leased', owner = $1, fence = q.fence + 1, claimed_at = clock_timestamp()
    FROM pick WHERE q.kind = ANY (ARRAY[pick.kind]) AND q.id = pick.id AND q.fence = pick.fence
    RETURNING q.id, q.lane, q.tenant, q.class, q.fence, q.version, q.claimed_at, pick.due_at, q.ordering_key, q.expires_at, q.expires_at <= clock_timestamp() AS expired
), spent AS (
    UPDATE lane l SET rate_tat = w.tat, day = w.day, day_used = w.used,
           full_until = CASE WHEN w.used >= l.daily_limit THEN (w.day + 1)::timestamp AT TIME ZONE 'UTC'
                             ELSE w.tat - make_interval(secs => (rate_burst(w.rate) - 1) * rate_interval(w.rate)) END,
           full_reason = CASE WHEN w.used >= l.daily_limit THEN 'its limit of ' || l.daily_limit || ' a day is used up'
                              ELSE coalesce('its limit of ' || w.rate || ' a minute is used up', '') END
    FROM room r CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM taken t WHERE t.lane = r.id) c
    CROSS JOIN LATERAL (
        SELECT x.rate, greatest(x.tat, now()) + make_interval(secs => c.n * rate_interval(x.rate)) AS tat, x.today AS day, x.used + c.n AS used
        FROM (SELECT least(k.rate_limit, k.rate_cap) AS rate, coalesce(k.rate_tat, now()) AS tat, (now() AT TIME ZONE 'UTC')::date AS today,
                     CASE WHEN k.day = (now() AT TIME ZONE 'UTC')::date THEN k.day_used ELSE 0 END AS used
              FROM lane k WHERE k.id = r.id) x) w
    WHERE l.id = r.id AND c.n > 0 AND (l.rate_limit IS NOT NULL OR l.daily_limit IS NOT NULL)
)`

// gates tells of lanes what a claim and the worker after it need to know: wait is
// 0 while there is room or the lane is shut (then it is left until it opens), the seconds until its limit allows the next send, or NULL
// when only the end of something in work makes room.
const gates = `
SELECT l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0),
       CASE WHEN NOT l.guarded OR l.shut_until > clock_timestamp() OR l.paused_until > clock_timestamp() THEN 0::float8
            WHEN l.full_until > clock_timestamp() THEN extract(epoch FROM l.full_until - clock_timestamp())::float8
            WHEN NOT l.id = ANY (string_to_array(current_setting('posthouse.gates', true), ',')::int[]) THEN 0.05::float8
            WHEN least(CASE l.breaker WHEN 'open' THEN 0 WHEN 'half_open' THEN l.probes - l.probed - b.busy ELSE 1000000 END,
                       l.max_in_flight - b.busy, l.cap - b.busy) > 0 THEN 0::float8 END
FROM unnest($1::int[]) AS x (id) JOIN lane l ON l.id = x.id
CROSS JOIN LATERAL (SELECT count(*)::int AS busy FROM worker k CROSS JOIN LATERAL (
    SELECT FROM queue q WHERE l.guarded AND q.state = 'leased' AND q.owner = k.id AND q.lane = l.id) q) b`

// deferredHead takes rows that have waited for an open breaker for longer than $2
// seconds since they were accepted: that wait costs nothing only so long. Lanes that
// an operator has shut are left out.
const deferredHead = `
WITH pick AS MATERIALIZED (
    SELECT q.kind, q.id, q.due_at, q.fence
    FROM (SELECT l.id FROM lane l WHERE l.breaker = 'open' AND l.shut_until > now() AND NOT l.forced ORDER BY l.id) l
    CROSS JOIN LATERAL (
        SELECT q.kind, q.id, q.due_at, q.fence FROM queue q
        WHERE q.kind = 'delivery' AND q.state = 'ready' AND q.lane = l.id AND q.id < uuid7_floor(now() - make_interval(secs => $2))
        LIMIT $3
        FOR NO KEY UPDATE OF q SKIP LOCKED) q
    LIMIT $3
), taken AS (
    UPDATE queue q SET state = 'leased', owner = $1, fence = q.fence + 1, claimed_at = clock_timestamp()
    FROM pick WHERE q.kind = ANY (ARRAY[pick.kind]) AND q.id = pick.id AND q.fence = pick.fence
    RETURNING q.id, q.lane, q.tenant, q.class, q.fence, q.version, q.claimed_at, pick.due_at, q.ordering_key, q.expires_at, q.expires_at <= clock_timestamp() AS expired
)`

// promote makes waiting rows ready whose time has come, oldest first.
const promote = `
WITH pick AS MATERIALIZED (
    SELECT q.kind, q.id FROM queue q WHERE q.kind = 'delivery' AND q.state = 'waiting' AND q.due_at <= now()
    ORDER BY q.due_at LIMIT $1 FOR NO KEY UPDATE OF q SKIP LOCKED
), moved AS (
    UPDATE queue q SET state = 'ready', due_at = clock_timestamp(), claimed_at = NULL FROM pick WHERE q.kind = ANY (ARRAY[pick.kind]) AND q.id = pick.id
    RETURNING q.lane, q.tenant, q.class
)
SELECT DISTINCT lane, tenant, class FROM moved`

// returnRows gives back what a worker holds without knowing it: claimed after $3.
const returnRows = `
UPDATE queue q SET state = 'ready', due_at = clock_timestamp(), owner = NULL, claimed_at = NULL
WHERE q.state = 'leased' AND q.owner = $1 AND q.kind = 'delivery' AND q.claimed_at > $3
  AND NOT EXISTS (SELECT FROM unnest($2::uuid[], $4::timestamptz[]) AS x (id, since) WHERE x.id = q.id AND x.since = q.claimed_at)`

// nextDue tells how long until the earliest waiting row is due, in seconds.
const nextDue = `
SELECT extract(epoch FROM q.due_at - clock_timestamp())::float8 FROM queue q
WHERE q.kind = 'delivery' AND q.state = 'waiting' ORDER BY q.due_at LIMIT 1`

// giveBack returns rows whose attempt never began: nothing is counted, no
// version, no event. When they were claimed stays while they wait: by that a reset of
// their lane finds them.
const giveBack = `
WITH x AS MATERIALIZED (
    SELECT u.id, u.fence, u.worker, u.delay, 'delivery'::text AS kind FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::float8[]) AS u (id, fence, worker, delay)
)
UPDATE queue q SET state = 'waiting', due_at = clock_timestamp() + make_interval(secs => x.delay), owner = NULL
FROM x
WHERE q.kind = ANY (ARRAY[x.kind]) AND q.id = x.id AND q.fence = x.fence AND q.owner = x.worker`
