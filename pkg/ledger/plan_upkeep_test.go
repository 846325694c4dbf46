package ledger_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// upkeepPlans are the plans of what the watchdog asks again and again.
func upkeepPlans() map[string]planned {
	anID := "'" + delivery.NewID().String() + "'"
	someEvents := "'{" + strings.Trim(anID, "'") + "}', '{1}'"
	return map[string]planned{
		"eventTimes":         {someEvents, []string{"event_*_pkey"}},
		"eventBodies":        {someEvents, []string{"event_*_pkey"}},
		"oldestOutbox":       {``, []string{"outbox_pkey"}},
		"oldestReady":        {``, []string{"queue_ready", "lane_pkey"}},
		"oldestWaiting":      {``, []string{"queue_waiting"}},
		"zombieRuns":         {"'{" + strings.Trim(anID, "'") + "}'", []string{"attempt_*_pkey"}},
		"deleteKeys":         {"'00000000-0000-0000-0000-000000000000', now(), 1000", []string{"request_key_age", "delivery_*_pkey"}},
		"deleteDocumentKeys": {"'00000000-0000-0000-0000-000000000000', now(), 1000", []string{"document_key_age", "document_*_pkey"}},
		"takeDuty":           {`'d', 'o', 60, 3600`, nil},
		"renewDuty":          {`'d', 'o', 60`, []string{"duty_pkey"}},
		"endDuty":            {`'d', 'o', NULL`, []string{"duty_pkey"}},
		"selectDuty":         {`'d'`, []string{"duty_pkey"}},
		"nextReplay":         {``, []string{"replay_running"}},
		"selectReplay":       {anID, []string{"replay_pkey"}},
		"selectReplays":      {`50`, []string{"replay_pkey"}},
		"advanceReplay":      {anID + `, now(), now(), 1`, []string{"replay_"}},
		"blameReplay":        {anID + `, ''`, []string{"replay_"}},
		"cancelReplay":       {anID, []string{"replay_"}},
		"insertReplay":       {anID + `, now(), now(), '', '', 'ada', 1`, nil},
		"raiseAlarm":         {`'a', 1, 't'`, nil},
		"clearAlarm":         {`'a', 1, 't'`, []string{"alarm_pkey"}},
		"selectAlarms":       {``, []string{"alarm_pkey"}},
	}
}

func upkeepUnplanned() map[string]string {
	return map[string]string{
		"pinRange": "reads no table", "impatient": "reads no table", "boundLocks": "reads no table", "databaseTime": "reads no table",
		"lockHistory": "cannot be planned", "summarizeEvents": "reads the catalogue", "snapshotPins": "reads what the server is doing",
		"queueDead": "reads statistics", "historyMonths": "reads the catalogue",
		"eventsBetween": "planned below, under its own pin", "countEvents": "planned below, under its own pin", "toldBetween": "under the same pin, a few times a month",
		"eventsInOutbox": "joins two short lists by their hashes, once an hour",
		"workBetween":    "a few times a month", "openBetween": "reads a partition once, before it is dropped",
	}
}

// A stretch of time is found by the summary of times, however many events there
// are, and a long list of them is not read by its primary key.
func TestEventsOfAStretchAreFoundByTime(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.history(t, 50_000, false)
	b.exec(t, `UPDATE event SET at = now() - interval '10 days' WHERE version = 1`)
	b.exec(t, `VACUUM event`)
	if err := b.SummarizeEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	every := all(t)
	conn := connect(t, b.db.Config().ConnString())
	for _, name := range []string{"eventsBetween", "countEvents"} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{every["pinRange"], "PREPARE " + name + " AS " + every[name]} {
			if _, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		plan, text := explain(t, tx, "EXPLAIN (FORMAT JSON) EXECUTE "+name+" (now() - interval '11 days', now() - interval '9 days', '', '')")
		found := false
		plan.walk(func(n node) {
			found = found || n.Type == "Bitmap Index Scan" && strings.HasSuffix(n.Index, "_at_idx")
			if n.Type == "Seq Scan" {
				t.Errorf("%s: %s", name, text)
			}
		})
		if !found {
			t.Errorf("%s does not use the times:\n%s", name, text)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
