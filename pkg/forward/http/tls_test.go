package http_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	"github.com/posthouse-io/posthouse/pkg/forward/http"
)

// clientCertificate makes a self-signed certificate and writes it down.
func clientCertificate(t *testing.T) (cert *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "posthouse"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: "posthouse"}}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile = filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		t.Fatal(err)
	}
	return cert, writeCA(t, der), keyFile
}

func TestClientCertificate(t *testing.T) {
	t.Parallel()
	cert, certFile, keyFile := clientCertificate(t)
	b := newBackend(t, true, says(200, "{}"))
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	b.TLS.ClientAuth, b.TLS.ClientCAs = tls.RequireAndVerifyClientCert, pool
	cfg := config(b.URL)
	cfg.CAFile = writeCA(t, b.Certificate().Raw)
	out := open(t, cfg, http.Sync).Forward(t.Context(), forwardtest.Document(1<<20))
	// In TLS 1.3 the client learns only after the handshake that its certificate is
	// missed, while it sends or while it waits.
	if out.Verdict == delivery.Accepted || out.Verdict == delivery.Refused && out.Answer.Code != forward.CodeTLS && out.Answer.Code != forward.CodeLost {
		t.Errorf("without: %+v", out)
	}
	cfg.CertFile, cfg.KeyFile = certFile, keyFile
	if out := open(t, cfg, http.Sync).Forward(t.Context(), forwardtest.Document(100)); out.Verdict != delivery.Accepted {
		t.Errorf("with: %+v", out)
	}
}
