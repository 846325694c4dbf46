package lane

// Every statement of the room. The columns of a lane's view come in the order in
// which scan reads them.

const insertLane = `
INSERT INTO lane (key, kind, channel) VALUES ($1, $2, split_part($1, '$', 1)) ON CONFLICT (key) DO NOTHING`

const insertParked = `
INSERT INTO lane (key, kind, channel, paused_until, paused_reason) VALUES ($1, $2, split_part($1, '$', 1), 'infinity', $3) ON CONFLICT (key) DO NOTHING`

const selectID = `SELECT id FROM lane WHERE key = $1`

const selectView = `
SELECT l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)
FROM lane l WHERE l.id = $1`

// Breaker --------------------------------------------------------------------

// trip opens a lane that is closed: whoever comes second finds it open.
const trip = `
UPDATE lane l SET breaker = 'open', forced = false, shut_until = clock_timestamp() + make_interval(secs => $2), opened_at = clock_timestamp(), failures = $3,
       shut_reason = $4, probes = $5, probed = 0, version = l.version + 1, updated_at = clock_timestamp()
WHERE l.id = $1 AND l.breaker = 'closed'
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

const halfOpen = `
UPDATE lane l SET breaker = 'half_open', probed = 0, shut_until = NULL, version = l.version + 1, updated_at = clock_timestamp()
WHERE l.id = $1 AND l.breaker = 'open' AND l.shut_until <= now()
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

// probeFailed opens a lane again whose probe, of this very half-open period, has
// failed.
const probeFailed = `
UPDATE lane l SET breaker = 'open', forced = false, shut_until = clock_timestamp() + make_interval(secs => $3), opened_at = clock_timestamp(), failures = l.failures + 1,
       shut_reason = $4, probed = 0, version = l.version + 1, updated_at = clock_timestamp()
WHERE l.id = $1 AND l.breaker = 'half_open' AND l.version = $2
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

// probeSucceeded counts one, and closes the lane with the last. What has piled up
// meanwhile is then released slowly: the cap begins at the number of probes.
const probeSucceeded = `
UPDATE lane l SET probed = l.probed + 1, breaker = CASE WHEN l.probed + 1 >= l.probes THEN 'closed' ELSE 'half_open' END,
       forced = CASE WHEN l.probed + 1 >= l.probes THEN false ELSE l.forced END,
       failures = CASE WHEN l.probed + 1 >= l.probes THEN 0 ELSE l.failures END,
       cap = CASE WHEN l.probed + 1 >= l.probes THEN l.probes ELSE l.cap END,
       cap_reason = CASE WHEN l.probed + 1 >= l.probes THEN 'released slowly after an outage' ELSE l.cap_reason END,
       capped_at = CASE WHEN l.probed + 1 >= l.probes THEN clock_timestamp() ELSE l.capped_at END,
       version = CASE WHEN l.probed + 1 >= l.probes THEN l.version + 1 ELSE l.version END, updated_at = clock_timestamp()
WHERE l.id = $1 AND l.breaker = 'half_open' AND l.version = $2
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

const force = `
UPDATE lane l SET breaker = 'open', forced = true, shut_until = clock_timestamp() + make_interval(secs => $2), opened_at = clock_timestamp(), failures = 0,
       shut_reason = $3, probed = 0, version = l.version + 1, updated_at = clock_timestamp()
WHERE l.key = $1
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

const reset = `
UPDATE lane l SET breaker = 'closed', forced = false, shut_until = NULL, shut_reason = '', opened_at = NULL, failures = 0, probed = 0,
       cap = NULL, rate_cap = NULL, cap_reason = '', capped_at = NULL, version = l.version + 1, updated_at = clock_timestamp()
WHERE l.key = $1
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

// hasten makes due what was claimed of a lane and given back, to wait until its
// breaker would be over. What waits for a retry or its own time was never given back
// (see claimed_at), and stays.
const hasten = `
WITH pick AS MATERIALIZED (
    SELECT q.kind, q.id FROM queue q WHERE q.lane = $1 AND q.state = 'waiting' AND q.claimed_at IS NOT NULL
    FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE queue q SET due_at = least(q.due_at, clock_timestamp()) FROM pick WHERE q.kind = ANY (ARRAY[pick.kind]) AND q.id = pick.id`

// Caps -----------------------------------------------------------------------

// slow halves what may be in work and what may begin each minute: once for all
// answers of one second, and not below one.
const slow = `
UPDATE lane l SET cap = greatest(1, least(coalesce(l.cap, b.busy), b.busy) / 2),
       rate_cap = CASE WHEN l.rate_limit IS NOT NULL THEN greatest(1, coalesce(l.rate_cap, l.rate_limit) / 2) END,
       cap_reason = $2, capped_at = clock_timestamp(), version = l.version + 1, updated_at = clock_timestamp()
FROM (SELECT greatest(1, count(*))::int AS busy FROM worker k CROSS JOIN LATERAL (
    SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = k.id AND q.lane = $1) q) b
WHERE l.id = $1 AND l.breaker = 'closed' AND (l.capped_at IS NULL OR l.capped_at < clock_timestamp() - interval '1 second')
  AND NOT (l.cap = 1 AND (l.rate_limit IS NULL OR l.rate_cap = 1))
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

// relieve doubles both, up to what would be without them: $3 slots in each living
// instance, the lane's own limit a minute. A lane that is not closed keeps them.
const relieve = `
UPDATE lane l SET cap = CASE WHEN l.cap * 2 < $3 * w.n THEN l.cap * 2 END,
       rate_cap = CASE WHEN l.rate_cap * 2 < l.rate_limit THEN l.rate_cap * 2 END,
       capped_at = clock_timestamp(), version = l.version + 1, updated_at = clock_timestamp()
FROM (SELECT greatest(1, count(*))::int AS n FROM worker k WHERE k.lease_until > clock_timestamp()) w
WHERE l.id = $1 AND l.version = $2 AND l.breaker = 'closed' AND (l.cap IS NOT NULL OR l.rate_cap IS NOT NULL)
RETURNING l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0)`

// configure writes limits only where they differ. The minute begins anew; what was
// sent today counts.
const configure = `
UPDATE lane l SET rate_limit = $2, daily_limit = $3, max_in_flight = $4, rate_tat = NULL, updated_at = clock_timestamp(),
       full_until = CASE WHEN l.day = (now() AT TIME ZONE 'UTC')::date AND l.day_used >= $3::int THEN (l.day + 1)::timestamp AT TIME ZONE 'UTC' END,
       full_reason = CASE WHEN l.day = (now() AT TIME ZONE 'UTC')::date AND l.day_used >= $3::int THEN 'its limit of ' || $3::int || ' a day is used up' ELSE '' END,
       rate_cap = CASE WHEN $2::int IS NOT NULL THEN least(l.rate_cap, $2::int) END
WHERE l.id = $1 AND (l.rate_limit, l.daily_limit, l.max_in_flight) IS DISTINCT FROM ($2::int, $3::int, $4::int)`

// Pauses ---------------------------------------------------------------------

// pauseLane: $2 seconds, NULL until it is resumed.
const pauseLane = `
UPDATE lane l SET paused_until = coalesce(clock_timestamp() + make_interval(secs => $2::float8), 'infinity'), paused_reason = $3,
       version = l.version + 1, updated_at = clock_timestamp()
WHERE l.key = $1
RETURNING l.id, l.channel, l.version, CASE WHEN isfinite(l.paused_until) THEN l.paused_until END`

const resumeLane = `
UPDATE lane l SET paused_until = NULL, paused_reason = '', version = l.version + 1, updated_at = clock_timestamp()
WHERE l.key = $1 AND l.paused_until > clock_timestamp()
RETURNING l.id, l.channel, l.version, NULL::timestamptz`

const pause = `
INSERT INTO pause AS p (scope, name, until, reason, who) VALUES ($1, $2, coalesce(clock_timestamp() + make_interval(secs => $3::float8), 'infinity'), $4, $5)
ON CONFLICT (scope, name) DO UPDATE SET until = excluded.until, reason = excluded.reason, who = excluded.who, since = clock_timestamp()
RETURNING CASE WHEN isfinite(p.until) THEN p.until END`

// resume tells only of a pause that was still on: one that has run out is just
// removed.
const resume = `
WITH gone AS (DELETE FROM pause p WHERE p.scope = $1 AND p.name = $2 RETURNING p.until)
SELECT NULL::timestamptz FROM gone WHERE gone.until > clock_timestamp()`

const selectPauses = `
SELECT p.scope, p.name, CASE WHEN isfinite(p.until) THEN p.until END, p.reason, p.who, p.since FROM pause p WHERE p.until > clock_timestamp() ORDER BY p.scope, p.name`

// List -----------------------------------------------------------------------

const selectLanes = `
SELECT l.id, l.key, l.guarded, l.breaker, l.version, l.shut_until, l.opened_at, l.failures, l.shut_reason, l.forced, coalesce(l.cap, 0), coalesce(l.rate_cap, 0),
       l.cap_reason, coalesce(l.max_in_flight, 0), coalesce(l.rate_limit, 0), coalesce(l.daily_limit, 0),
       CASE WHEN l.day = (now() AT TIME ZONE 'UTC')::date THEN l.day_used ELSE 0 END, CASE WHEN l.full_until > now() THEN l.full_until END,
       coalesce(l.paused_until > now(), false), CASE WHEN isfinite(l.paused_until) THEN l.paused_until END, l.paused_reason,
       b.busy, EXISTS (SELECT FROM queue q WHERE q.kind = l.kind AND q.state = 'ready' AND q.lane = l.id)
FROM lane l
CROSS JOIN LATERAL (SELECT count(*)::int AS busy FROM worker k CROSS JOIN LATERAL (
    SELECT FROM queue q WHERE q.state = 'leased' AND q.owner = k.id AND q.lane = l.id) q) b
WHERE ($1 = '' OR l.key = $1)
  AND (NOT $2 OR l.breaker <> 'closed' OR l.cap IS NOT NULL OR l.rate_cap IS NOT NULL OR l.paused_until > now() OR l.full_until > now())
ORDER BY l.key LIMIT 1000`
