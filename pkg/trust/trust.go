// Package trust is whom a TLS client believes: the system's certificate authorities,
// and those of a file that an operator names beside them.
//
// It decides nothing and starts no goroutine. It fails on a file that can not be
// read or holds no certificate, so that a service says so when it starts.
package trust

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Roots is the system's pool plus the PEM certificates of the file; nil, which is
// the system's pool, without a file.
func Roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}
