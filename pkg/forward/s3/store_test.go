package s3_test

import (
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	"github.com/posthouse-io/posthouse/pkg/forward/s3"
)

const (
	bucket = "documents"
	secret = "correct-horse-battery-staple"
)

// store is an S3 server with a bucket, and a word of ours before and after it.
type store struct {
	*httptest.Server
	backend *s3mem.Backend

	mu     sync.Mutex
	heads  []http.Header
	before func(http.ResponseWriter, *http.Request) bool // true: it has answered
	after  func(http.ResponseWriter, *http.Request)      // instead of the answer
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{backend: s3mem.New()}
	if err := s.backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(s.backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.heads = append(s.heads, r.Header.Clone())
		s.mu.Unlock()
		if s.before != nil && s.before(w, r) {
			return
		}
		if s.after == nil || strings.HasSuffix(r.URL.Path, ".json") {
			fake.ServeHTTP(w, r)
			return
		}
		hidden := httptest.NewRecorder()
		fake.ServeHTTP(hidden, r)
		if hidden.Code != 200 {
			t.Errorf("the store answers %d %s", hidden.Code, hidden.Body)
		}
		s.after(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *store) keys(t *testing.T) (stored []forwardtest.Stored, others []string) {
	t.Helper()
	list, err := s.backend.ListBucket(bucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	for _, c := range list.Contents {
		if !strings.HasSuffix(c.Key, ".xml") {
			others = append(others, c.Key)
			continue
		}
		o, err := s.backend.GetObject(bucket, c.Key, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.New()
		n, err := io.Copy(sum, o.Contents)
		if err != nil {
			t.Error(err)
		}
		_ = o.Contents.Close()
		stored = append(stored, forwardtest.Stored{Name: c.Key, Size: n, SHA256: [32]byte(sum.Sum(nil))})
	}
	return stored, others
}

func config(url string) s3.Config {
	return s3.Config{
		Bucket: bucket, Region: "eu-central-1", Endpoint: url, AccessKeyID: "AKIATEST", SecretAccessKey: secret, PathStyle: true, AllowPrivate: true,
		KeyPrefix: "in/box", Pattern: "{sbdh-instance-id}_{incoming-id}", Link: s3.LinkNone,
		ConnectTimeout: 5 * time.Second, ResponseTimeout: 20 * time.Second, Timeout: 30 * time.Second,
	}
}

func open(t *testing.T, c s3.Config, notifier forward.Forwarder) forward.Forwarder {
	t.Helper()
	f, err := s3.New(c, notifier)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// fault answers like Amazon's store.
func fault(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<?xml version=\"1.0\"?><Error><Code>"+code+"</Code><Message>"+message+"</Message></Error>")
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestSuite(t *testing.T) {
	for _, sidecar := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "with sidecar"}[sidecar], func(t *testing.T) {
			forwardtest.Suite(t, forwardtest.Fixture{
				Moods:  []forwardtest.Mood{forwardtest.Refusing, forwardtest.Babbling, forwardtest.Silent, forwardtest.Gone, forwardtest.Away},
				Memory: 200 << 20, // the store is in this process and in memory; see TestLittleMemory
				New: func(t *testing.T, m forwardtest.Mood) forwardtest.Peer {
					s := newStore(t)
					switch m {
					case forwardtest.Refusing:
						s.before = func(w http.ResponseWriter, r *http.Request) bool {
							_, _ = io.Copy(io.Discard, r.Body)
							fault(w, 403, "AccessDenied", "no")
							return true
						}
					case forwardtest.Babbling:
						s.before = func(w http.ResponseWriter, r *http.Request) bool {
							_, _ = io.Copy(io.Discard, r.Body)
							fault(w, 500, "InternalError", strings.Repeat("no "+secret+"\r\n", 500))
							return true
						}
					case forwardtest.Silent:
						s.after = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
					case forwardtest.Gone:
						s.after = hangUp
					case forwardtest.Away:
						s.Close()
					}
					cfg := config(s.URL)
					cfg.WriteMetadata = sidecar
					f, err := s3.New(cfg, nil)
					if err != nil {
						t.Fatal(err)
					}
					return forwardtest.Peer{
						Forwarder: f, Secrets: []string{secret},
						Stored: func() []forwardtest.Stored { list, _ := s.keys(t); return list },
					}
				},
			})
		})
	}
}
