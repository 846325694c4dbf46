package smtp_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is the server's end of one connection, spoken line by line.
type line struct {
	net.Conn
	r *bufio.Reader
}

// say writes lines; a client that has left is the business of the test's
// assertions on the outcome.
func (l *line) say(lines ...string) {
	_, _ = io.WriteString(l, strings.Join(lines, "\r\n")+"\r\n")
}

// hear reads one command; "" at the end of the connection.
func (l *line) hear() string {
	s, err := l.r.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimRight(s, "\r\n")
}

// body reads a message to its final dot and returns it as it was on the wire.
func (l *line) body() (string, bool) {
	var b strings.Builder
	for {
		s, err := l.r.ReadString('\n')
		if err != nil {
			return b.String(), false
		}
		if s == ".\r\n" {
			return b.String(), true
		}
		b.WriteString(s)
	}
}

// greet plays the polite beginning with these EHLO keywords.
func (l *line) greet(keywords ...string) {
	l.say("220 raw.test ESMTP")
	l.hear()
	for _, k := range append([]string{"raw.test"}, keywords...)[:len(keywords)] {
		l.say("250-" + k)
	}
	l.say("250 " + append([]string{"raw.test"}, keywords...)[len(keywords)])
}

// raw is a server whose n-th connection (from 0) is played by the function; the
// connection is closed when it returns.
func raw(t *testing.T, play func(n int, l *line)) (host string, port int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				play(n, &line{Conn: c, r: bufio.NewReader(c)})
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	a := ln.Addr().(*net.TCPAddr)
	return a.IP.String(), a.Port
}

// config is for a server on loopback, with short limits.
func config(host string, port int) smtp.Config {
	c := smtp.Defaults()
	c.Host, c.Port, c.TLS = host, port, smtp.TLSNone
	c.FromAddress, c.FromName = "sender@example.com", "Sender"
	c.Helo = "client.test"
	c.ReadTimeout = 5 * time.Second
	return c
}

func open(t *testing.T, c smtp.Config) *smtp.Transport {
	t.Helper()
	tr, err := smtp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// message is a small mail to these addresses.
func message(t testing.TB, to ...string) transport.Message {
	t.Helper()
	return with(t, smtp.Mail{Subject: "Hello", Text: "How do you do?"}, to...)
}

func with(t testing.TB, mail smtp.Mail, to ...string) transport.Message {
	t.Helper()
	content, err := mail.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m := transport.Message{ID: delivery.NewID(), Tenant: "acme", Attempt: 1, Content: content, Proceed: func() error { return nil }}
	for i, a := range to {
		m.Recipients = append(m.Recipients, transport.Recipient{Ordinal: i, Address: a})
	}
	return m
}

// expect compares what matters of an outcome.
func expect(t *testing.T, out delivery.Outcome, v delivery.Verdict, c delivery.Category, p delivery.Phase, code string) {
	t.Helper()
	if a := out.Answer; out.Verdict != v || a.Category != c || a.Phase != p || a.Code != code {
		t.Errorf("got %s %q %q %q (%q), want %s %q %q %q", out.Verdict, a.Category, a.Phase, a.Code, a.Text, v, c, p, code)
	}
}

// certificate is a self-signed one for 127.0.0.1 and localhost, with its PEM file.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "raw.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, file
}

func ExampleMail_Encode() {
	content, err := smtp.Mail{To: []smtp.Address{{Address: "bob@example.com", Name: "Bob"}}, Subject: "Hello", Text: "Hi"}.Encode()
	fmt.Println(string(content), err)
	// Output: {"to":[{"address":"bob@example.com","name":"Bob"}],"subject":"Hello","text":"Hi"} <nil>
}
