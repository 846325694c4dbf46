package http

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/forward"
)

// A secret of Standard Webhooks: 24 to 64 bytes behind this prefix.
const secretPrefix = "whsec_"

// parseSecrets reads secrets; the error counts them and shows none.
func parseSecrets(list []string) ([][]byte, error) {
	var keys [][]byte
	for i, s := range list {
		encoded, ok := strings.CutPrefix(strings.TrimSpace(s), secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("item %d is not %s and the base64 of 24 to 64 bytes", i+1, secretPrefix)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// signature reads the payload once and returns the value of webhook-signature:
// one "v1,<base64>" for each secret, after the standard HMAC-SHA256 of
// id.timestamp.body (Standard Webhooks, "Signature scheme"). The standard signs
// the body itself, so what is sent must be read a second time; both readings are
// checked against the document's hash and therefore equal.
func signature(ctx context.Context, d *forward.Document, keys [][]byte, at time.Time) (string, error) {
	var macs []hash.Hash
	var all []io.Writer
	for _, k := range keys {
		mac := hmac.New(sha256.New, k)
		_, _ = io.WriteString(mac, d.ID.String()+"."+strconv.FormatInt(at.Unix(), 10)+".") // a hash takes everything
		macs, all = append(macs, mac), append(all, mac)
	}
	p, err := forward.Open(ctx, d, nil)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.MultiWriter(all...), p)
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	var parts []string
	for _, mac := range macs {
		parts = append(parts, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(parts, " "), nil
}
