package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// Marker stands in every subject line and body that a producer writes, and must be
// seen nowhere else.
const Marker = "quagga-payload-marker"

// Request is one thing to publish.
type Request struct {
	Tenant, ID string
	Body       []byte
	InHeader   bool // the id goes into Nats-Msg-Id too
	Poison     bool // it cannot be accepted
	Recipients []string
	Want       []delivery.State
	After      time.Duration // wait so long first
}

// Maker makes the requests of one step; they are published side by side.
type Maker func(step int, r *rand.Rand) []Request

// Load is what the producers publish.
type Load struct {
	Total    int // steps at most; 0: as long as faults happen
	Rate     int // steps a second; 0: as fast as it goes
	Parallel int // publishers; 0: 16
	Make     Maker
}

// Mail makes a request of one tenant; ids are its own.
func Mail(tenant, id string, change func(*delivery.Request), to ...string) Request {
	r := delivery.Request{Version: 1, ID: id, MailRequest: delivery.MailRequest{To: to, Subject: Marker + " " + id, Text: Marker + " text of " + id}}
	if change != nil {
		change(&r)
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // a request of our own making
	}
	return Request{Tenant: tenant, ID: id, Body: body, Recipients: to}
}

// producer publishes and keeps a log: every step is on the disk before the next.
// What is not acknowledged is published again, under the same id, as README asks
// of clients.
type producer struct {
	site *Site
	js   jetstream.JetStream
	nc   *nats.Conn
	file *os.File

	pause sync.RWMutex // held for writing: nobody publishes
	held  atomic.Bool

	mu   sync.Mutex
	log  map[string]*Publication // by tenant, id and hash
	sums []string                // the same keys, in order
	have int                     // of them acknowledged
}

// publishBound is how long one try may take.
const publishBound = 2 * time.Second

func (s *Site) newProducer() (*producer, error) {
	p := &producer{site: s, log: map[string]*Publication{}}
	var err error
	if p.nc, err = nats.Connect(s.natsURL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1)); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	if p.js, err = jetstream.New(p.nc); err != nil {
		p.nc.Close()
		return nil, fmt.Errorf("producer: %w", err)
	}
	if p.file, err = os.OpenFile(filepath.Join(s.Dir, "producer.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		p.nc.Close()
		return nil, fmt.Errorf("producer: %w", err)
	}
	return p, nil
}

func (p *producer) close() {
	p.nc.Close()
	_ = p.file.Close()
}

// run publishes a load until enough is closed and returns when all of it is
// acknowledged, or ctx has ended.
func (p *producer) run(ctx context.Context, enough <-chan struct{}, load Load, r *rand.Rand) error {
	work := make(chan Request)
	var publishers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	n := load.Parallel
	if n == 0 {
		n = 16
	}
	for range n {
		publishers.Go(func() {
			for q := range work {
				if err := p.insist(ctx, q); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	var pace <-chan time.Time
	if load.Rate > 0 {
		t := time.NewTicker(time.Second / time.Duration(load.Rate))
		defer t.Stop()
		pace = t.C
	}
	for step := 0; (load.Total == 0 || step < load.Total) && ctx.Err() == nil; step++ {
		if pace != nil {
			select {
			case <-pace:
			case <-enough:
			case <-ctx.Done():
			}
		}
		if load.Total == 0 && isClosed(enough) {
			break
		}
		for _, q := range load.Make(step, r) {
			select {
			case work <- q:
			case <-ctx.Done():
			}
		}
	}
	close(work)
	publishers.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(errs) > 0 {
		return fmt.Errorf("%d requests were not acknowledged: %w", len(errs), errs[0])
	}
	return nil
}

// hold returns when nobody is publishing, and nobody does until release.
func (p *producer) hold() {
	if p.held.CompareAndSwap(false, true) {
		p.pause.Lock()
	}
}

func (p *producer) release() {
	if p.held.CompareAndSwap(true, false) {
		p.pause.Unlock()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// insist publishes one request until it is acknowledged.
func (p *producer) insist(ctx context.Context, q Request) error {
	if err := pause(ctx, q.After); err != nil {
		return err
	}
	m := &nats.Msg{Subject: streams.Send(string(delivery.Mail), q.Tenant), Data: q.Body, Header: nats.Header{}}
	if q.InHeader {
		m.Header.Set(bus.HeaderMsgID, q.ID)
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if err := p.note(q, "try"); err != nil {
			return err
		}
		p.pause.RLock()
		bound, cancel := context.WithTimeout(ctx, publishBound)
		_, err := p.js.PublishMsg(bound, m)
		cancel()
		p.pause.RUnlock()
		if err == nil {
			return p.note(q, "acknowledged")
		}
		if pause(ctx, wait) != nil {
			return fmt.Errorf("publish %s/%s: %w", q.Tenant, q.ID, err)
		}
	}
}

// note writes one line and syncs it.
func (p *producer) note(q Request, what string) error {
	sum := sha256.Sum256(q.Body)
	hash, now := hex.EncodeToString(sum[:]), time.Now().UTC()
	line, err := json.Marshal(struct {
		At                  time.Time
		What, Tenant, ID, H string
	}{now, what, q.Tenant, q.ID, hash})
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	p.mu.Lock()
	name := q.Tenant + "\x00" + q.ID + "\x00" + hash
	one := p.log[name]
	if one == nil {
		one = &Publication{Tenant: q.Tenant, RequestID: q.ID, Hash: hash, Poison: q.Poison, Recipients: q.Recipients, Want: q.Want, Began: now}
		p.log[name], p.sums = one, append(p.sums, name)
	}
	if what == "try" {
		one.Tries++
	} else if one.Acked.IsZero() {
		one.Acked = now
		p.have++
	}
	_, err = p.file.Write(append(line, '\n'))
	p.mu.Unlock()
	if err = errors.Join(err, p.file.Sync()); err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	return nil
}

// publications are all so far, in the order in which they began.
func (p *producer) publications() []Publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Publication, len(p.sums))
	for i, name := range p.sums {
		list[i] = *p.log[name]
		list[i].Want = slices.Clone(list[i].Want)
	}
	return list
}

// acknowledged counts requests.
func (p *producer) acknowledged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.have
}
