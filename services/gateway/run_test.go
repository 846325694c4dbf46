package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/streams"
)

// certificate writes one for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, trust = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, public, 0o600), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
	trust.AppendCertsFromPEM(public)
	return cert, key, trust
}

// The whole service: over TLS, on real servers; what it stores is told on the bus,
// and it ends when it is told to.
func TestRun(t *testing.T) {
	t.Parallel()
	cert, key, trust := certificate(t)
	bus := localtest.NATS(t)
	cfg, _, err := daemon.Load[Config]([]string{"DATABASE_URL=" + localtest.Postgres(t), "NATS_URL=" + bus, "HEALTH_LISTEN=", "GATEWAY_LISTEN=127.0.0.1:0", "GATEWAY_TLS_CERT=" + cert,
		"GATEWAY_TLS_KEY=" + key, "GATEWAY_TOKENS=" + tokens()}, daemon.Names(Config{}))
	if err != nil {
		t.Fatal(err)
	}
	said := &logbook{}
	cfg.LogTo = said
	nc, err := nats.Connect(bus)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	events, err := nc.SubscribeSync(streams.Event(streams.KindDocument, "received", "", "acme"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	defer stop()
	var address string
	listening := regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]*`)
	localtest.Eventually(t, 30*time.Second, func() error {
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, "listening") {
				address = listening.FindString(line)
			}
		}
		if address == "" {
			return errors.New("it does not listen")
		}
		return nil
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ask := func(method, path, token, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	if resp := ask("POST", "/api/inbound/document/acme", publisher, withBody(metadata("1"), []byte("x"))); resp.StatusCode != http.StatusAccepted || resp.ProtoMajor != 2 ||
		resp.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%d %s %v", resp.StatusCode, resp.Proto, resp.Header)
	}
	if m, err := events.NextMsg(20 * time.Second); err != nil || !bytes.Contains(m.Data, []byte(`"sbdh-1"`)) {
		t.Errorf("the event: %v", err)
	}
	if resp := ask("GET", "/api/inbound/status/sbdh-1", "stranger", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger: %d", resp.StatusCode)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	for _, secret := range []string{publisher, "stranger", hashed(publisher)} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
}
