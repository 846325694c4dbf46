package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Fingerprint names one message of a stream, the same at each redelivery and
// whatever sequence a restored stream may give it: 32 hexadecimal digits.
func Fingerprint(m jetstream.Msg) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", m.Subject())
	for _, name := range slices.Sorted(maps.Keys(m.Headers())) {
		fmt.Fprintf(h, "%s: %q\n", name, m.Headers()[name])
	}
	if meta, err := m.Metadata(); err == nil {
		fmt.Fprintf(h, "%d\n", meta.Timestamp.UnixNano())
	}
	h.Write(m.Data())
	return hex.EncodeToString(h.Sum(nil)[:16])
}
