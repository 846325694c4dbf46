package http

import (
	"encoding/base64"
	"encoding/hex"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/forward"
)

// maxValue bounds a foreign text in a header, maxDetails the verifiers' findings:
// most servers take 8 KiB of headers in all.
const (
	maxValue   = 300
	maxDetails = 4 << 10
)

// header builds the headers of one attempt.
func (f *Forwarder) header(d *forward.Document, signed string, at time.Time) nethttp.Header {
	h := nethttp.Header{}
	for name, value := range f.fixed {
		h.Set(name, value)
	}
	id := d.ID.String()
	h.Set("Content-Type", d.Type())
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "posthouse")
	h.Set("Idempotency-Key", id)
	h.Set("Posthouse-Document-Id", id)
	h.Set("Posthouse-Attempt", strconv.Itoa(d.Attempt))
	h.Set("Posthouse-Sha256", hex.EncodeToString(d.SHA256[:]))
	h.Set("Posthouse-Received-At", d.ReceivedAt.UTC().Format(time.RFC3339Nano))
	for name, value := range map[string]string{
		"Posthouse-Sbdh-Id":        d.SBDHInstanceID,
		"Posthouse-As4-Message-Id": d.AS4MessageID,
		"Posthouse-Sender-Id":      d.SenderID,
		"Posthouse-Receiver-Id":    d.ReceiverID,
		"Posthouse-Doctype-Id":     d.DocTypeID,
		"Posthouse-Process-Id":     d.ProcessID,
		"Posthouse-C1-Country":     d.C1Country,
		"Posthouse-Tenant":         d.Tenant,
		"Posthouse-Verdict":        d.Verdict,
	} {
		if value != "" {
			h.Set(name, forward.Escape(value, maxValue))
		}
	}
	if f.cfg.Details && len(d.Issues) > 0 {
		if base64.StdEncoding.EncodedLen(len(d.Issues)) <= maxDetails {
			h.Set("Posthouse-Verification-Details", base64.StdEncoding.EncodeToString(d.Issues))
		} else {
			h.Set("Posthouse-Verification-Details-Truncated", "true") // half of a JSON text is none
		}
	}
	if traceparent(d.Traceparent) {
		h.Set("Traceparent", d.Traceparent)
	}
	if signed != "" {
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
		h.Set("Webhook-Signature", signed)
	}
	switch {
	case f.cfg.BearerToken != "":
		h.Set("Authorization", "Bearer "+f.cfg.BearerToken)
	case f.cfg.Username != "":
		h.Set("Authorization", "Basic "+basic(f.cfg))
	}
	return h
}

// basic is the credential of RFC 7617.
func basic(c Config) string {
	if c.Username == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
}

// traceparent tells whether a text has the form of W3C Trace Context: anything
// else is left out.
func traceparent(s string) bool {
	if len(s) < 55 || len(s) > 512 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef-") == "" && s[2] == '-' && s[35] == '-' && s[52] == '-'
}
