package smtpsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Entry is one accepted message.
type Entry struct {
	Time       time.Time `json:"time"`
	MessageID  string    `json:"message_id,omitempty"` // without angle brackets
	From       string    `json:"from"`                 // of the envelope
	To         []string  `json:"to"`                   // of the envelope, the accepted ones
	Size       int64     `json:"size"`                 // bytes, as the client wrote them
	Connection int64     `json:"connection"`           // counted from 1
	Answered   bool      `json:"answered"`             // the sink goes on to reply 250
	Body       string    `json:"body,omitempty"`       // at most Options.KeepBody bytes
}

// ledger keeps the entries: in memory, told to a function, and in a file whose
// every line is synced before its message is acknowledged. One goroutine writes
// the file, many entries per sync.
type ledger struct {
	most int
	tell func(Entry)

	mu    sync.Mutex
	list  []Entry // a ring once it is full, begin being the oldest
	begin int
	total int
	more  chan struct{} // closed and renewed at each entry

	file   *os.File
	lines  chan line // nil without a file
	writer sync.WaitGroup
}

// line waits to be durable.
type line struct {
	text []byte
	done chan error
}

func openLedger(o Options) (*ledger, error) {
	l := &ledger{most: o.MaxEntries, tell: o.Ledger, more: make(chan struct{})}
	if l.most <= 0 {
		l.most = 100_000
	}
	if o.File == "" {
		return l, nil
	}
	f, err := os.OpenFile(o.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l.file, l.lines = f, make(chan line, 1024)
	l.writer.Go(l.write)
	return l, nil
}

// add returns when the entry is as durable as was asked for.
func (l *ledger) add(e Entry) error {
	e.Time = time.Now().UTC()
	if l.lines != nil {
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		w := line{text: append(text, '\n'), done: make(chan error, 1)}
		l.lines <- w
		if err := <-w.done; err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) < l.most {
		l.list = append(l.list, e)
	} else {
		l.list[l.begin] = e
		l.begin = (l.begin + 1) % l.most
	}
	l.total++
	close(l.more)
	l.more = make(chan struct{})
	if l.tell != nil {
		l.tell(e)
	}
	return nil
}

// write appends what waits, syncs once, and tells all that waited for it.
func (l *ledger) write() {
	for first := range l.lines {
		batch := []line{first}
		text := first.text
		for full := false; !full && len(batch) < cap(l.lines); {
			select {
			case w, ok := <-l.lines:
				if full = !ok; ok {
					batch, text = append(batch, w), append(text, w.text...)
				}
			default:
				full = true
			}
		}
		_, err := l.file.Write(text)
		if err == nil {
			err = l.file.Sync()
		}
		for _, w := range batch {
			w.done <- err
		}
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

func (l *ledger) entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]Entry(nil), l.list[l.begin:]...), l.list[:l.begin]...)
}

func (l *ledger) wait(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		total, more := l.total, l.more
		l.mu.Unlock()
		if total >= n {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d messages, %d so far: %w", n, total, ctx.Err())
		}
	}
}

// close ends the writer; nobody adds any more.
func (l *ledger) close() error {
	if l.lines == nil {
		return nil
	}
	close(l.lines)
	l.writer.Wait()
	return errors.Join(l.file.Sync(), l.file.Close())
}
