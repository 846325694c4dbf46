package ledger

import "github.com/posthouse-io/posthouse/pkg/planted"

// settleStatement is settle, unless a fault is planted in it.
func settleStatement() string {
	const told = "SELECT id, version + 1, 'delivery', state, subject, body FROM moved"
	return planted.SQL(planted.Event, planted.SQL(planted.Fence, settle,
		" AND q.fence = x.fence AND q.version = x.version AND q.owner = x.worker", "",
		"u (id, fence, version,", "u (id, fence, seen,",
		"SELECT *,", "SELECT *, (SELECT q.version FROM queue q WHERE q.kind = 'delivery' AND q.id = u.id) AS version,"),
		told, told+" WHERE state <> 'sent'")
}
