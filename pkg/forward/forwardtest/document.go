package forwardtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// marker is in every payload, and in no outcome.
const marker = "tHe-SeCrEt-pRiCe"

// Document makes a document of its own, with a payload of size bytes.
func Document(size int) forward.Document {
	body := append([]byte("<i>"+marker+rand.Text()+"</i>"), bytes.Repeat([]byte("0123456789abcdef"), size/16+1)...)[:size]
	d := blank()
	carry(&d, body)
	return d
}

// blank is a document without a payload.
func blank() forward.Document {
	return forward.Document{
		ID: delivery.NewID(), Tenant: "acme", Attempt: 1,
		SBDHInstanceID: rand.Text(), AS4MessageID: rand.Text() + "@c2.test",
		SenderID: "iso6523-actorid-upis::0192:991825827", ReceiverID: "iso6523-actorid-upis::9915:test",
		DocTypeID: "busdox-docid-qns::urn:oasis:names:specification:ubl:schema:xsd:Invoice-2::Invoice##x::2.1",
		ProcessID: "cenbii-procid-ubl::urn:fdc:peppol.eu:2017:poacc:billing:01:1.0",
		C1Country: "NO", ReceivedAt: time.Date(2026, 11, 3, 4, 5, 6, 7000, time.UTC),
		Verdict: forward.VerdictPassed, Issues: []byte(`[]`),
		Proceed: func() error { return nil },
	}
}

// carry gives a document its payload.
func carry(d *forward.Document, body []byte) {
	d.Size, d.SHA256 = int64(len(body)), sha256.Sum256(body)
	d.Open = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// reading is a payload made of functions.
type reading struct {
	read  func([]byte) (int, error)
	close func() error
}

func (r reading) Read(b []byte) (int, error) { return r.read(b) }

func (r reading) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// stall gives all but the last half of a payload and then waits for the end of
// ctx; it tells when it waits.
func stall(d *forward.Document, waits chan<- struct{}) {
	open := d.Open
	half := d.Size / 2
	d.Open = func(ctx context.Context) (io.ReadCloser, error) {
		src, err := open(ctx)
		if err != nil {
			return nil, err
		}
		first := io.LimitReader(src, half)
		return reading{read: func(b []byte) (int, error) {
			n, err := first.Read(b)
			if err == io.EOF {
				select {
				case waits <- struct{}{}:
				default:
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return n, err
		}, close: src.Close}, nil
	}
}
