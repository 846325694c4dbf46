package gateway

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
)

// caller is the key of the token's holder in a request's context.
type caller struct{}

// holder is who asks.
func holder(ctx context.Context) Key {
	k, _ := ctx.Value(caller{}).(Key)
	return k // the zero key has no role
}

// door is what every request passes before its operation.
type door struct {
	keys  Keys
	slots chan struct{}
	log   zerolog.Logger
	next  http.Handler
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	out := &witness{ResponseWriter: w}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Referrer-Policy", "no-referrer")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	key, known := d.keys.Find(r.Header)
	r = r.WithContext(context.WithValue(r.Context(), caller{}, key))
	defer func() {
		if p := recover(); p != nil {
			d.log.Error().Str("route", r.Pattern).Interface("panic", p).Bytes("stack", debug.Stack()).Msg("a request panicked")
			if out.status == 0 {
				refuse(out, http.StatusInternalServerError, "this failed on our side; the log says why")
			}
		}
		e := d.log.Debug()
		if r.Method != http.MethodGet || out.status >= http.StatusBadRequest {
			e = d.log.Info()
		}
		// The route, not the path: what strangers write there is not ours to keep.
		e.Str("route", r.Pattern).Int("status", out.status).Str("by", key.Name).Dur("took", time.Since(begin)).Msg("request")
	}()
	if !known {
		h.Set("WWW-Authenticate", `Bearer realm="posthouse"`)
		refuse(out, http.StatusUnauthorized, "give a valid token, in X-Token or as Authorization: Bearer")
		return
	}
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	default:
		h.Set("Retry-After", "1")
		refuse(out, http.StatusServiceUnavailable, "too many requests are in work; come again")
		return
	}
	d.next.ServeHTTP(out, r)
}

// witness keeps the status of an answer for the log.
type witness struct {
	http.ResponseWriter
	status int
}

func (w *witness) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *witness) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets the deadline of a body be set.
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// newServer has bounds for whatever a caller may be slow with.
func newServer(h http.Handler, quiet zerolog.Logger) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: logTo(quiet)}
}
