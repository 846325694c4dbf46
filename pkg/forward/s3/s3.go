package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/guard"
	"github.com/posthouse-io/posthouse/pkg/trust"
)

// Forwarder puts documents into one bucket.
type Forwarder struct {
	cfg       Config
	pattern   forward.Pattern
	client    *minio.Client
	transport *http.Transport
	host      string
	notifier  forward.Forwarder
	gate      forward.Gate
}

// New checks the configuration; it connects to nothing yet. notifier delivers the
// links and is closed with the forwarder; nil means that nobody is told.
func New(cfg Config, notifier forward.Forwarder) (*Forwarder, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("s3 forwarder: %w", err)
	}
	endpoint := &url.URL{Scheme: "https", Host: "s3." + cfg.Region + ".amazonaws.com"}
	if cfg.Endpoint != "" {
		endpoint, _ = url.Parse(cfg.Endpoint) // looked at by Check, like the next two
	}
	pool, err := trust.Roots(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("s3 forwarder: FORWARDING_S3_CA_FILE: %w", err)
	}
	policy := guard.Public
	switch {
	case endpoint.Scheme == "http":
		policy = guard.Private
	case cfg.AllowPrivate:
		policy = guard.Any
	}
	f := &Forwarder{cfg: cfg, host: endpoint.Host, notifier: notifier}
	f.pattern, _ = forward.ParsePattern(cfg.Pattern)
	f.transport = &http.Transport{
		DialContext:            guard.Dialer(policy, cfg.ConnectTimeout).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		ResponseHeaderTimeout:  cfg.ResponseTimeout,
		MaxIdleConnsPerHost:    64,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
	keys := credentials.NewStaticV4(cfg.AccessKeyID, cfg.SecretAccessKey, "")
	if cfg.AccessKeyID == "" {
		keys = credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.IAM{}})
	}
	lookup := minio.BucketLookupDNS
	if cfg.PathStyle {
		lookup = minio.BucketLookupPath
	}
	region := cfg.Region
	if region == "" {
		region = "us-east-1" // what other stores expect; asking for it would be a request more
	}
	f.client, err = minio.New(endpoint.Host, &minio.Options{
		Creds: keys, Secure: endpoint.Scheme == "https", Transport: f.transport,
		Region: region, BucketLookup: lookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("s3 forwarder: %w", err)
	}
	return f, nil
}

// Close waits for the forwards in progress, closes the kept connections and the
// notifier.
func (f *Forwarder) Close() error {
	f.gate.Close()
	f.transport.CloseIdleConnections()
	if f.notifier != nil {
		return f.notifier.Close()
	}
	return nil
}

// Forward is forward.Forwarder.
func (f *Forwarder) Forward(ctx context.Context, d forward.Document) forward.Outcome {
	if out, ok := f.gate.Enter(ctx, &d); !ok {
		return out
	}
	defer f.gate.Leave()
	out := f.put(ctx, &d)
	out.Remote = f.host
	if f.notifier == nil || out.Verdict != delivery.Accepted {
		return out
	}
	key := out.RemoteID
	out = f.notify(ctx, d, key)
	out.RemoteID = key
	return out
}

// put stores the sidecar and the document.
func (f *Forwarder) put(ctx context.Context, d *forward.Document) forward.Outcome {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	key := f.cfg.prefix() + f.pattern.Name(d)
	if f.cfg.WriteMetadata {
		b, err := d.Sidecar()
		if err == nil {
			_, err = f.client.PutObject(ctx, f.cfg.Bucket, key+".json", bytes.NewReader(b), int64(len(b)), minio.PutObjectOptions{ContentType: "application/json", DisableMultipart: true})
		}
		if err != nil {
			if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
				return out
			}
			return refused(f.hide(err))
		}
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	payload, err := forward.Open(reading, d, d.Proceed)
	if err != nil {
		return forward.Blame(ctx, err)
	}
	// The hash is part of what is signed, so the store compares it as well.
	sum := hex.EncodeToString(d.SHA256[:])
	_, failed := minio.Core{Client: f.client}.PutObject(ctx, f.cfg.Bucket, key+".xml", reader{payload}, d.Size, "", sum, minio.PutObjectOptions{
		ContentType:          d.Type(),
		DisableContentSha256: true, // of each chunk, that is
		UserMetadata: map[string]string{
			"Posthouse-Document-Id": d.ID.String(),
			"Posthouse-Sha256":      sum,
			"Posthouse-Attempt":     fmt.Sprint(d.Attempt),
			"Posthouse-Sbdh-Id":     forward.Escape(d.SBDHInstanceID, 200),
			"Posthouse-Verdict":     forward.Escape(d.Verdict, 20),
		},
	})
	stop()
	if err := payload.Close(); err != nil && failed != nil {
		return forward.Blame(ctx, err)
	}
	if failed == nil {
		if !payload.Released() {
			return forward.Refused(delivery.Transient, forward.PhaseUpload, forward.CodeEarly, "success was told before the document had arrived", true)
		}
		return forward.Delivered("", key+".xml")
	}
	return f.broken(ctx, payload, f.hide(failed))
}

// hide blots out our secret in what the store says, which may repeat it.
func (f *Forwarder) hide(err error) error {
	var r minio.ErrorResponse
	if !errors.As(err, &r) || f.cfg.SecretAccessKey == "" {
		return err
	}
	r.Message = strings.ReplaceAll(r.Message, f.cfg.SecretAccessKey, "***")
	r.Code = strings.ReplaceAll(r.Code, f.cfg.SecretAccessKey, "***")
	return r
}

// broken is the outcome of a put that failed.
func (f *Forwarder) broken(ctx context.Context, p *forward.Payload, failed error) forward.Outcome {
	// A payload that failed explains the answer better than the answer does; one
	// that was merely stopped does not.
	fault := p.Failure()
	if fault != nil && !errors.Is(fault, context.Canceled) {
		return forward.Blame(ctx, fault)
	}
	if out, told := answered(failed); told {
		return out
	}
	if p.Released() {
		if ctx.Err() != nil || strings.Contains(failed.Error(), "timeout awaiting response headers") {
			return forward.Unsure(forward.CodeTimeout, "no answer in time")
		}
		return forward.Unsure(forward.CodeLost, forward.Reason(failed))
	}
	if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
		return out
	}
	return refused(failed)
}

// reader hides all but Read: a library that can seek would send again by itself.
type reader struct{ p *forward.Payload }

func (r reader) Read(b []byte) (int, error) { return r.p.Read(b) }

var _ forward.Forwarder = (*Forwarder)(nil)
