package outbox

// Insert adds the row of a batch whose messages are events of the ledger:
// $1 id, $2 aggregates uuid[], $3 versions int[]. Its writer has until the lease
// runs out to publish it; then a sweeper may.
const Insert = `
INSERT INTO outbox (id, aggregates, versions, lease_until)
VALUES ($1, $2, $3, clock_timestamp() + interval '10 seconds')`

// InsertMessages adds the row of a batch that carries its own messages:
// $1 id, $2 ids text[], $3 subjects text[], $4 bodies bytea[].
const InsertMessages = `
INSERT INTO outbox (id, aggregates, versions, ids, subjects, bodies, lease_until)
VALUES ($1, '{}', '{}', $2, $3, $4, clock_timestamp() + interval '10 seconds')`

// remove deletes published rows. It need not wait for the disk: a row that comes
// back after a crash is published once more, under the same ids.
const remove = `
WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
DELETE FROM outbox o USING lazy WHERE o.id = ANY ($1::uuid[])`

// lease takes rows whose writer did not come to publish them.
const lease = `
WITH pick AS MATERIALIZED (
    SELECT o.id FROM outbox o WHERE o.lease_until < now() ORDER BY o.lease_until LIMIT $1 FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE outbox o SET lease_until = clock_timestamp() + interval '10 seconds'
FROM pick WHERE o.id = pick.id
RETURNING o.id, o.tries, o.aggregates, o.versions, o.ids, o.subjects, o.bodies`

// referenced reads the events that a row names, in its order.
const referenced = `
SELECT e.aggregate, e.version, e.subject, e.body, coalesce((SELECT d.trace FROM delivery d WHERE d.id = e.aggregate), '')
FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS x (aggregate, version, ord)
CROSS JOIN LATERAL (SELECT e.aggregate, e.version, e.subject, e.body FROM event e WHERE e.aggregate = x.aggregate AND e.version = x.version) e
ORDER BY x.ord`

// postpone keeps a row that the stream refuses away from the sweepers for $2
// seconds.
const postpone = `
UPDATE outbox SET tries = tries + 1,
       lease_until = clock_timestamp() + make_interval(secs => $2)
WHERE id = $1`
