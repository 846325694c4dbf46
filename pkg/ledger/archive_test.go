package ledger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

func letter(id string) ledger.DeadLetter {
	return ledger.DeadLetter{Subject: "posthouse.send.mail.acme", Headers: map[string][]string{"Nats-Msg-Id": {"1"}}, Raw: []byte("{"),
		Letter: delivery.Letter{EventID: id, Source: "poison", Channel: "mail", Tenant: "acme", Code: "MALFORMED", Reason: "not JSON"}}
}

// Each letter is archived once and told of once, by whoever archived it.
func TestArchiveOnceByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	const letters, writers = 50, 6
	told := make([]map[string]int, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var batch []ledger.DeadLetter
			for i := range letters {
				n := i
				if w%2 == 1 {
					n = letters - 1 - i
				}
				batch = append(batch, letter(fmt.Sprint("poison.", n)), letter(fmt.Sprint("poison.", n)))
			}
			events, err := b.Archive(t.Context(), batch)
			if err != nil {
				t.Error(err)
			}
			told[w] = map[string]int{}
			for _, m := range events.Messages {
				told[w][m.ID]++
				if m.Subject != "posthouse.dlq.poison.mail.acme" || strings.Contains(string(m.Body), "Nats-Msg-Id") {
					t.Errorf("%s %s", m.Subject, m.Body)
				}
			}
		})
	}
	wg.Wait()
	sum := map[string]int{}
	for _, each := range told {
		for id, n := range each {
			sum[id] += n
		}
	}
	if len(sum) != letters {
		t.Errorf("%d letters were told of", len(sum))
	}
	for id, n := range sum {
		if n != 1 || !strings.HasPrefix(id, "dlq.poison.") {
			t.Errorf("%s was told of %d times", id, n)
		}
	}
	if n := b.count(t, "SELECT count(*) FROM dead_letter"); n != letters {
		t.Errorf("%d letters", n)
	}
	if n := b.count(t, "SELECT coalesce(sum(cardinality(ids)), 0) FROM outbox"); n != letters {
		t.Errorf("the outbox names %d letters", n)
	}
}

// What a client or a stranger sent must not make an archive batch impossible.
func TestArchiveForeignBytes(t *testing.T) {
	t.Parallel()
	b := open(t)
	d := letter("poison.1")
	d.Subject, d.Headers, d.Raw = "posthouse.\xff\x00", map[string][]string{"X\x00": {"\xff\x00"}}, []byte{0, 0xff}
	d.Reason, d.Code, d.RequestID = "a\x00b\n"+strings.Repeat("ü", 400), "\x00", "\xff\x00"
	d.Summary = json.RawMessage(`{"custom":{"x":"\u0000\ud800","n":1e999999}}`)
	if events, err := b.Archive(t.Context(), []ledger.DeadLetter{d, letter("poison.2")}); err != nil || len(events.Messages) != 2 {
		t.Fatal(err)
	}
	list, err := b.DeadLetters(t.Context(), delivery.LetterFilter{Tenant: "acme", Source: "poison", OpenOnly: true})
	if err != nil || len(list) != 2 {
		t.Fatalf("%v %v", list, err)
	}
	if list, err = b.DeadLetters(t.Context(), delivery.LetterFilter{Tenant: "globex"}); err != nil || len(list) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	if list, err = b.DeadLetters(t.Context(), delivery.LetterFilter{Limit: 1}); err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
}

func TestArchiveOfNothing(t *testing.T) {
	t.Parallel()
	b := open(t)
	if events, err := b.Archive(t.Context(), nil); err != nil || len(events.Messages) != 0 || b.count(t, "SELECT count(*) FROM outbox") != 0 {
		t.Fatal(err)
	}
}
