package forwarder

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// Bodies that lie elsewhere are in memory from their fetching until they are stored:
// what does not fit beside them comes again later, and nothing that failed keeps a
// place.
func TestFetchedBodiesAreBounded(t *testing.T) {
	t.Parallel()
	const content = "<Invoice/>"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256([]byte(content))
	ref := &document.BodyReference{URL: server.URL + "/", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	missing := &document.BodyReference{URL: server.URL + "/missing", Size: ref.Size, SHA256: ref.SHA256}
	in := &intake{fetch: newFetcher(true), places: semaphore.NewWeighted(1), memory: semaphore.NewWeighted(2*ref.Size - 1)}

	for range 3 {
		if _, release, err := in.body(t.Context(), nil, missing); err == nil || errors.Is(err, errAway) {
			t.Fatalf("missing: %v", err)
		} else {
			release()
		}
	}
	first, release, err := in.body(t.Context(), nil, ref)
	if err != nil || string(first) != content {
		t.Fatalf("%q, %v", first, err)
	}
	if _, again, err := in.body(t.Context(), nil, ref); !errors.Is(err, errBusy) {
		t.Errorf("a second one beside it: %v", err)
	} else {
		again()
	}
	release()
	if _, release, err = in.body(t.Context(), nil, ref); err != nil {
		t.Errorf("after the first is stored: %v", err)
	}
	release()

	in.places = semaphore.NewWeighted(0)
	if _, _, err := in.body(t.Context(), nil, ref); !errors.Is(err, errBusy) {
		t.Errorf("without a place to fetch in: %v", err)
	}
	if !in.memory.TryAcquire(2*ref.Size - 1) {
		t.Error("memory is held for a body that is gone")
	}
	in.places = semaphore.NewWeighted(1)
	if _, _, err := in.body(t.Context(), nil, &document.BodyReference{URL: server.URL, Size: 1 << 40, SHA256: strings.Repeat("0", 64)}); !errors.Is(err, errBusy) {
		t.Errorf("more than there is: %v", err)
	}
}
