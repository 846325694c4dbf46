package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// echo is a server that says everything back, line by line.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String()
}

func throughProxy(t *testing.T, target string, p protocol) *Proxy {
	t.Helper()
	x, err := newProxy("test", target, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

func dial(t *testing.T, p *Proxy) *bufio.ReadWriter {
	t.Helper()
	c, err := connect(t, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func connect(t *testing.T, p *Proxy) (*bufio.ReadWriter, error) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

func ask(c *bufio.ReadWriter, line string) (string, error) {
	if _, err := c.WriteString(line + "\n"); err != nil {
		return "", err
	}
	if err := c.Flush(); err != nil {
		return "", err
	}
	answer, err := c.ReadString('\n')
	return strings.TrimSpace(answer), err
}

func TestWireFaults(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, echo(t), nil)
	c := dial(t, p)
	if got, err := ask(c, "sound"); err != nil || got != "sound" {
		t.Fatalf("%q, %v", got, err)
	}

	p.Set(Fault{Latency: 60 * time.Millisecond})
	began := time.Now()
	if got, err := ask(c, "late"); err != nil || got != "late" || time.Since(began) < 120*time.Millisecond {
		t.Errorf("latency: %q, %v after %s", got, err, time.Since(began))
	}

	p.Set(Fault{Silent: [2]bool{Down: true}})
	mended := make(chan time.Time, 1)
	time.AfterFunc(100*time.Millisecond, func() { mended <- time.Now(); p.Heal() })
	if got, err := ask(c, "silent"); err != nil || got != "silent" {
		t.Errorf("what was written during a silence must arrive: %q, %v", got, err)
	}
	select {
	case <-mended:
	default:
		t.Error("an answer came through the silence")
	}

	p.Set(Fault{CutAfter: 3})
	if got, err := ask(c, "cut"); err == nil {
		t.Errorf("an answer beyond the cut: %q", got)
	}

	p.Set(Fault{Refuse: true})
	if refused, err := connect(t, p); errors.Is(err, syscall.ECONNRESET) {
		// the kernel told of the reset before connect had returned
	} else if err != nil {
		t.Error(err)
	} else if got, err := ask(refused, "refused"); err == nil {
		t.Errorf("somebody was let in: %q", got)
	}
	p.Heal()
	c = dial(t, p)
	if got, err := ask(c, "again"); err != nil || got != "again" {
		t.Errorf("mended: %q, %v", got, err)
	}
	p.Reset()
	if got, err := ask(c, "reset"); err == nil {
		t.Errorf("an answer after the reset: %q", got)
	}
}

// A trap lets pass, catches its message, and is gone.
func TestTrap(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, echo(t), natsWire)
	c := dial(t, p)
	event := "PUB posthouse.event.delivery.sent.mail.acme 2\r\nhi\r"
	calls := 0
	trap := p.Arm(&Trap{Way: Up, Label: "publish:event", Skip: 1, Do: func() bool { calls++; return false }})
	for _, line := range []string{"PING\r", event} {
		if _, err := ask(c, line); err != nil {
			t.Fatalf("%q was caught: %v", line, err)
		}
		if line == event {
			if _, err := c.ReadString('\n'); err != nil { // its payload
				t.Fatal(err)
			}
		}
	}
	if _, err := ask(c, event); err == nil {
		t.Error("the second event came through")
	}
	if err := trap.Fired(t.Context()); err != nil || calls != 1 {
		t.Errorf("sprung %d times, %v", calls, err)
	}
	c = dial(t, p)
	if _, err := ask(c, event); err != nil {
		t.Errorf("the trap is still there: %v", err)
	}
	never, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("too long"))
	defer cancel()
	if err := p.Arm(&Trap{Label: "never", Do: Cut}).Fired(never); err == nil || !strings.Contains(err.Error(), "never") {
		t.Errorf("a trap that was never sprung says %v", err)
	}
}

func pgFrame(kind byte, body string) string {
	return string([]byte{kind, 0, 0, byte((len(body) + 4) >> 8), byte(len(body) + 4)}) + body
}

// labels reads one way to its end and lists what it saw.
func labels(t *testing.T, s splitter, want string) (list []string) {
	t.Helper()
	var raw bytes.Buffer
	for {
		m, err := s.next()
		raw.Write(m.raw)
		if m.label != "" {
			list = append(list, m.label)
		}
		if err != nil {
			break
		}
	}
	if raw.String() != want {
		t.Errorf("%q came through as %q", want, raw.String())
	}
	return list
}

func TestLabels(t *testing.T) {
	t.Parallel()
	startup := "\x00\x00\x00\x08\x00\x03\x00\x00"
	pgUp := startup +
		pgFrame('P', "s1\x00INSERT INTO request_key VALUES ($1)\x00") + pgFrame('P', "s2\x00DELETE FROM queue q USING x\x00") + pgFrame('S', "") +
		pgFrame('B', "\x00s1\x00") + pgFrame('E', "") + pgFrame('B', "\x00s2\x00") + pgFrame('S', "") +
		pgFrame('Q', "begin\x00") + pgFrame('P', "\x00INSERT INTO dead_letter\x00") + pgFrame('B', "\x00\x00") + pgFrame('S', "") + pgFrame('Q', "commit\x00")
	ready := pgFrame('Z', "I")
	pgDown := ready + ready + pgFrame('C', "INSERT 0 1\x00") + ready + ready + ready + ready
	smtpUp := "EHLO x\r\nMAIL FROM:<a@b>\r\nDATA\r\nSubject: DATA\r\n\r\n..\r\nEHLO\r\n.\r\nQUIT\r\n"
	smtpDown := "220 hello\r\n250-x\r\n250 y\r\n354 go on\r\n250 taken\r\n"
	natsUp := "CONNECT {}\r\nPUB $JS.ACK.POSTHOUSE_REQUESTS.sender.1.2.3.4.0 4\r\n+ACK\r\nPUB $JS.ACK.POSTHOUSE_EVENTS.dead-letter.1.2.3.4.0 4\r\n+WPI\r\nHPUB posthouse.dlq.poison.mail.acme _INBOX.1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
	natsDown := "INFO {}\r\nMSG _INBOX.2 1 $JS.ACK.POSTHOUSE_REQUESTS.sender.1.2.3.4.0 2\r\nhi\r\nHMSG _INBOX.2 1 $JS.ACK.POSTHOUSE_EVENTS.dead-letter.1.2.3.4.0 12 14\r\nNATS/1.0\r\n\r\nhi\r\nMSG _INBOX.1 1 37\r\n{\"stream\":\"POSTHOUSE_EVENTS\",\"seq\":12}\r\n"
	natsDown = strings.Replace(natsDown, " 37\r\n", fmt.Sprintf(" %d\r\n", len(`{"stream":"POSTHOUSE_EVENTS","seq":12}`)), 1)
	for _, c := range []struct {
		name             string
		p                protocol
		up, down         string
		wantUp, wantDown string
	}{
		{"PostgreSQL", postgresWire, pgUp, pgDown, "[accept settle accept:commit archive archive:commit]", "[accept:done archive:done]"},
		{"SMTP", smtpWire, smtpUp, smtpDown, "[hello data dot]", "[greeting go taken]"},
		{"NATS", natsWire, natsUp, natsDown, "[ack:requests publish:letter]", "[deliver:requests deliver:events puback:event]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, server := strings.NewReader(c.up), strings.NewReader(c.down)
			up, down := c.p(client, server)
			var gotUp, gotDown []string
			if c.name == "SMTP" { // the content begins when the server has said so
				for range 3 {
					m, err := up.next()
					if err != nil {
						t.Fatal(err)
					}
					if m.label != "" {
						gotUp = append(gotUp, m.label)
					}
				}
				for range 4 {
					m, err := down.next()
					if err != nil {
						t.Fatal(err)
					}
					if m.label != "" {
						gotDown = append(gotDown, m.label)
					}
				}
				gotUp = append(gotUp, labels(t, up, c.up[strings.Index(c.up, "Subject"):])...)
				gotDown = append(gotDown, labels(t, down, "250 taken\r\n")...)
			} else {
				gotUp, gotDown = labels(t, up, c.up), labels(t, down, c.down)
			}
			if fmt.Sprint(gotUp) != c.wantUp || fmt.Sprint(gotDown) != c.wantDown {
				t.Errorf("saw %v and %v, want %s and %s", gotUp, gotDown, c.wantUp, c.wantDown)
			}
		})
	}
}

// Whatever comes, what a splitter gives is what it was given, and it ends.
func FuzzSplitters(f *testing.F) {
	f.Add([]byte("PUB a 2\r\nhi\r\n"), []byte("MSG a 1 b 3\r\nabc\r\n"))
	f.Add([]byte("\x00\x00\x00\x08\x00\x03\x00\x00Q\x00\x00\x00\x0abegin\x00"), []byte("Z\x00\x00\x00\x05I"))
	f.Add([]byte("DATA\r\n.\r\n"), []byte("354 go\r\n250 ok\r\n"))
	f.Fuzz(func(t *testing.T, up, down []byte) {
		for _, p := range []protocol{postgresWire, natsWire, smtpWire} {
			u, d := p(bytes.NewReader(up), bytes.NewReader(down))
			for _, way := range []struct {
				s     splitter
				given []byte
			}{{d, down}, {u, up}} {
				var got []byte
				for n := 0; ; n++ {
					m, err := way.s.next()
					got = append(got, m.raw...)
					if err != nil {
						break
					}
					if n > len(way.given)+1 {
						t.Fatal("it does not end")
					}
				}
				if !bytes.HasPrefix(way.given, got) {
					t.Fatalf("gave %q for %q", got, way.given)
				}
			}
		}
	})
}
