package trust_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/trust"
)

func TestRoots(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	put := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := put("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))

	if pool, err := trust.Roots(""); pool != nil || err != nil {
		t.Errorf("without a file: %v, %v", pool, err)
	}
	if _, err := trust.Roots(filepath.Join(dir, "none.pem")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	for _, content := range []string{"", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if _, err := trust.Roots(put("bad.pem", []byte(content))); err == nil || !strings.Contains(err.Error(), "bad.pem") {
			t.Errorf("%q: %v", content, err)
		}
	}
	pool, err := trust.Roots(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Certificate().Verify(x509.VerifyOptions{Roots: pool, DNSName: "example.com"}); err != nil {
		t.Errorf("the certificate of the file is not believed: %v", err)
	}
}
