package smtpsink_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o smtpsink.Options) *smtpsink.Sink {
	t.Helper()
	s, err := smtpsink.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, s *smtpsink.Sink) *smtp.Client {
	t.Helper()
	c, err := smtp.Dial(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c.SubmissionTimeout = 5 * time.Second
	t.Cleanup(func() { c.Close() })
	return c
}

func send(c *smtp.Client, id string, to ...string) error {
	body := fmt.Sprintf("Message-ID: <%s>\r\nSubject: x\r\n\r\nhello\r\n", id)
	return c.SendMail("from@example.com", to, strings.NewReader(body))
}

func TestScriptsAtRcptAndAfterTheDot(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Options{})
	for _, c := range []struct {
		to    string
		codes []int // of each try; 250: accepted
	}{
		{"ok@x.test", []int{250, 250}},
		{"anybody@x.test", []int{250}},
		{"defer-2+a@x.test", []int{451, 451, 250, 250}},
		{"greylist@x.test", []int{451, 250}},
		{"refuse@x.test", []int{550, 550}},
		{"full@x.test", []int{452}},
		{"throttle@x.test", []int{421}},
		{"auth@x.test", []int{530}},
		{"busy@x.test", []int{451}},
		{"spam@x.test", []int{554}},
		{"big@x.test", []int{552}},
		{"slow-10ms@x.test", []int{250}},
	} {
		t.Run(c.to, func(t *testing.T) {
			client := dial(t, s)
			for i, want := range c.codes {
				got := 250
				var refused *smtp.SMTPError
				if err := send(client, "m", c.to); errors.As(err, &refused) {
					got = refused.Code
				} else if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("try %d: %d, want %d", i+1, got, want)
				}
				if err := client.Reset(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestSilentOnes(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Options{})
	for _, to := range []string{"stall", "stall-accept", "drop", "drop-accept"} {
		c := dial(t, s)
		c.SubmissionTimeout = 100 * time.Millisecond
		if err := send(c, to, to+"@x.test"); err == nil {
			t.Errorf("%s: got a reply", to)
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Wait(ctx, 2); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range s.Entries() {
		if e.Answered {
			t.Errorf("%s is said to have been answered", e.MessageID)
		}
		ids = append(ids, e.MessageID)
	}
	if got := strings.Join(ids, " "); got != "stall-accept drop-accept" {
		t.Errorf("accepted: %s", got)
	}
}

func TestLedgerInMemoryAndFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.jsonl")
	told := 0
	s, err := smtpsink.Start(smtpsink.Options{File: file, KeepBody: 20, MaxEntries: 5, Ledger: func(smtpsink.Entry) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	const clients, each = 4, 10
	var wg sync.WaitGroup
	for i := range clients {
		c := dial(t, s)
		wg.Go(func() {
			for j := range each {
				if err := send(c, fmt.Sprintf("%d-%d@x", i, j), "ok@x.test", "too@x.test"); err != nil {
					t.Error(err)
				}
			}
			c.Close()
		})
	}
	wg.Wait()
	if s.Count() != clients*each || told != clients*each || len(s.Entries()) != 5 {
		t.Errorf("count %d, told %d, kept %d", s.Count(), told, len(s.Entries()))
	}
	last := s.Entries()[4]
	if len(last.To) != 2 || last.From != "from@example.com" || last.Size == 0 || len(last.Body) != 20 || !last.Answered || last.Time.IsZero() {
		t.Errorf("entry %+v", last)
	}
	if s.Connections() != clients {
		t.Errorf("%d connections", s.Connections())
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]bool{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var e smtpsink.Entry
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		seen[e.MessageID] = true
	}
	if len(seen) != clients*each {
		t.Errorf("%d ids in the file", len(seen))
	}
}

func TestLimitsAndAuth(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Options{MaxBytes: 1000, MaxRcpts: 1, Username: "u", Password: "p"})
	c := dial(t, s)
	var refused *smtp.SMTPError
	if err := send(c, "m", "ok@x.test"); !errors.As(err, &refused) || refused.Code != 530 {
		t.Errorf("without AUTH: %v", err)
	}
	if err := c.Auth(sasl.NewPlainClient("", "u", "wrong")); !errors.As(err, &refused) || refused.Code != 535 {
		t.Errorf("wrong password: %v", err)
	}
	if err := c.Auth(sasl.NewLoginClient("u", "p")); err != nil {
		t.Fatal(err)
	}
	if err := send(c, "m", "ok@x.test", "two@x.test"); !errors.As(err, &refused) || refused.Code != 452 {
		t.Errorf("two recipients: %v", err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := send(c, strings.Repeat("m", 1000), "ok@x.test"); !errors.As(err, &refused) || refused.Code != 552 {
		t.Errorf("too long: %v", err)
	}
}

func TestCloseWaitsForAnyone(t *testing.T) {
	t.Parallel()
	s, err := smtpsink.Start(smtpsink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	stalled := dial(t, s)
	result := make(chan error, 1)
	go func() { result <- send(stalled, "m", "stall-accept@x.test") }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil {
		t.Error("the stalled client got a reply")
	}
	if _, err := io.Copy(io.Discard, silent); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}
