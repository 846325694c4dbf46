package localtest

import (
	"context"
	"os"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/local"
)

// Database is the name of the migrated database in a Cluster.
const Database = "posthouse"

// Cluster starts a PostgreSQL server that this test may stop, kill and restart,
// with a migrated database in it: c.URL(localtest.Database). It takes about two
// seconds; a test that leaves the server alone uses Postgres.
func Cluster(t testing.TB) *local.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	server, dir, err := start(ctx, Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Kill()
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := server.CreateDatabase(ctx, Database); err != nil {
		t.Fatal(err)
	}
	if err := migrate(ctx, server.URL(Database)); err != nil {
		t.Fatal(err)
	}
	return server
}
