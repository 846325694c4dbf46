package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/streams"
)

// serve starts a private server with JetStream on disk, maxStore bytes of it
// (0 = the server's own idea), and returns a client.
func serve(t *testing.T, maxStore int64) (jetstream.JetStream, *server.Server) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: maxStore, MaxPayload: 8 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return js, s
}

// small fits a test machine.
func small() streams.Options { return streams.Options{MaxBytes: 64 << 20} }

func apply(t *testing.T, ctx context.Context, js jetstream.JetStream, o streams.Options) streams.Report {
	t.Helper()
	r, err := streams.Apply(ctx, js, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
