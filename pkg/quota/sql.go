package quota

// ensureUsage makes the row of the month in which each bucket's clock stands.
const ensureUsage = `
INSERT INTO quota_usage (bucket, channel, month)
SELECT x.bucket, x.channel, date_trunc('month', now() AT TIME ZONE coalesce(q.zone, x.zone))::date
FROM unnest($1::text[], $2::text[], $3::text[]) AS x (bucket, channel, zone)
LEFT JOIN quota q ON q.bucket = x.bucket AND q.channel = x.channel
ORDER BY 1, 2
ON CONFLICT (bucket, channel, month) DO NOTHING`

// lockUsage takes the rows in one order for all.
const lockUsage = `
SELECT u.bucket FROM unnest($1::text[], $2::text[], $3::text[]) AS x (bucket, channel, zone)
LEFT JOIN quota q ON q.bucket = x.bucket AND q.channel = x.channel
JOIN quota_usage u ON u.bucket = x.bucket AND u.channel = x.channel AND u.month = date_trunc('month', now() AT TIME ZONE coalesce(q.zone, x.zone))::date
ORDER BY u.bucket, u.channel FOR NO KEY UPDATE OF u`

// charge takes up to n units of each bucket. The ceiling is the quota's, else the
// default ($5, negative: none).
const charge = `
WITH x AS MATERIALIZED (
    SELECT x.bucket, x.channel, x.n, CASE WHEN q.monthly_limit IS NOT NULL THEN q.monthly_limit WHEN x.most >= 0 THEN x.most END AS most,
           coalesce(q.on_exhausted, 'fail') AS on_exhausted, coalesce(q.zone, x.zone) AS zone,
           date_trunc('month', now() AT TIME ZONE coalesce(q.zone, x.zone))::date AS month
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS x (bucket, channel, zone, n, most)
    LEFT JOIN quota q ON q.bucket = x.bucket AND q.channel = x.channel
)
UPDATE quota_usage u SET granted = least(x.n, greatest(0, coalesce(x.most, 9000000000000000) - u.used)),
       used = u.used + least(x.n, greatest(0, coalesce(x.most, 9000000000000000) - u.used)),
       warned = CASE WHEN u.used + x.n >= x.most THEN 100
                     WHEN (u.used + x.n) * 10 >= x.most * 8 THEN greatest(u.warned, 80) ELSE u.warned END
FROM x, quota_usage before
WHERE u.bucket = x.bucket AND u.channel = x.channel AND u.month = x.month
  AND before.bucket = x.bucket AND before.channel = x.channel AND before.month = x.month
RETURNING u.bucket, u.channel, u.granted, u.used, coalesce(x.most, -1), x.on_exhausted, before.warned, u.warned,
          ((x.month + interval '1 month') AT TIME ZONE x.zone)::timestamptz, x.month::text`

// put sets a quota; a NULL limit leaves the default.
const put = `
INSERT INTO quota AS q (bucket, channel, monthly_limit, on_exhausted, zone) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (bucket, channel) DO UPDATE SET monthly_limit = excluded.monthly_limit, on_exhausted = excluded.on_exhausted, zone = excluded.zone, updated_at = now()`

const remove = `DELETE FROM quota WHERE bucket = $1 AND channel = $2`

// rearm lets the warnings of a month be given again under another ceiling.
const rearm = `
UPDATE quota_usage u SET warned = 0 WHERE u.bucket = $1 AND u.channel = $2 AND u.month >= (now() - interval '1 month')::date`

// release makes what waits for this bucket due at once.
const release = `
UPDATE queue q SET due_at = clock_timestamp()
FROM lane l
WHERE l.key = 'prepare' AND q.kind = 'delivery' AND q.lane = l.id AND q.state = 'waiting' AND ($1 = '_platform' OR q.tenant = $1)`

const usage = `
SELECT u.bucket, u.channel, u.month::text, u.used, q.monthly_limit, coalesce(q.on_exhausted, 'fail'), coalesce(q.zone, $4)
FROM quota_usage u LEFT JOIN quota q ON q.bucket = u.bucket AND q.channel = u.channel
WHERE ($1 = '' OR u.bucket = $1) AND ($2 = '' OR u.channel = $2) AND ($3::date IS NULL OR u.month = $3::date)
ORDER BY u.month DESC, u.bucket, u.channel LIMIT 1000`

const quotas = `
SELECT q.bucket, q.channel, q.monthly_limit, q.on_exhausted, q.zone FROM quota q
WHERE ($1 = '' OR q.bucket = $1) AND ($2 = '' OR q.channel = $2) ORDER BY q.bucket, q.channel LIMIT 1000`

// refund gives back units of a month.
const refund = `
UPDATE quota_usage u SET used = greatest(0, u.used - $4) WHERE u.bucket = $1 AND u.channel = $2 AND u.month = $3::text::date`
