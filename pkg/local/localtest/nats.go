package localtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/streams"
)

// Room for the streams of one test, in bytes: what the server has, and what the
// streams reserve of it. The rest is for streams of the test's own.
const (
	maxStore  = 1 << 30
	streamMax = 256 << 20
)

// NATS starts a server with the project's streams for this test alone and
// returns its URL.
func NATS(t testing.TB) string {
	t.Helper()
	return NATSServer(t).URL()
}

// NATSServer is NATS for a test that stops and restarts the server.
func NATSServer(t testing.TB) *local.NATS {
	t.Helper()
	server := EmptyNATS(t)
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	if err := applyStreams(ctx, server.URL()); err != nil {
		t.Fatal(err)
	}
	return server
}

// EmptyNATS is NATSServer without streams.
func EmptyNATS(t testing.TB) *local.NATS {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	dir := t.TempDir() // registered before the stop below, so removed after it
	server, err := local.StartNATS(ctx, local.NATSConfig{Dir: dir, MaxStore: maxStore, Log: Logger(t)})
	if err != nil {
		t.Fatalf("localtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startBound)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return server
}

func applyStreams(ctx context.Context, url string) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return fmt.Errorf("localtest: connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("localtest: %w", err)
	}
	if _, err := streams.Apply(ctx, js, streams.Options{MaxBytes: streamMax}); err != nil {
		return fmt.Errorf("localtest: %w", err)
	}
	return nil
}
