package queue

import "github.com/posthouse-io/posthouse/pkg/planted"

// claimStatement is claimHead, unless a fault is planted in it.
func claimStatement() string {
	return planted.SQL(planted.Claim, claimHead, "\n        FOR NO KEY UPDATE OF q SKIP LOCKED) q", ") q", " AND q.fence = pick.fence", "")
}
