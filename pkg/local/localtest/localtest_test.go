package localtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func TestMain(m *testing.M) {
	code := localtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func tables(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPostgresIsMigratedAndPrivate(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	urls := make([]string, 8)
	for i := range urls {
		wg.Go(func() { urls[i] = localtest.Postgres(t) })
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, url := range urls {
		if seen[url] {
			t.Fatal("two tests share a database")
		}
		seen[url] = true
		conn := connect(t, url)
		if tables(t, conn) == 0 {
			t.Error("database has no tables")
		}
		if _, err := conn.Exec(t.Context(), "CREATE TABLE mine (x int)"); err != nil {
			t.Error(err)
		}
	}
}

func TestDatabaseIsDroppedWithItsSessions(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("owner", func(t *testing.T) {
		url = localtest.Postgres(t)
		if _, err := pgx.Connect(t.Context(), url); err != nil { // left open on purpose
			t.Fatal(err)
		}
	})
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Fatal("database outlived its test")
	}
}

func TestEmptyDatabase(t *testing.T) {
	t.Parallel()
	if n := tables(t, connect(t, localtest.EmptyDatabase(t))); n != 0 {
		t.Fatalf("empty database has %d tables", n)
	}
}

func TestClusterMayBeKilled(t *testing.T) {
	t.Parallel()
	c := localtest.Cluster(t)
	conn := connect(t, c.URL(localtest.Database))
	if tables(t, conn) == 0 {
		t.Fatal("database has no tables")
	}
	c.Kill()
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("session outlived the server")
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tables(t, connect(t, c.URL(localtest.Database))) == 0 {
		t.Fatal("tables are gone")
	}
}

func TestNATSHasTheStreamsAndKeepsThem(t *testing.T) {
	t.Parallel()
	server := localtest.NATSServer(t)
	count := func() (n int) {
		conn, err := nats.Connect(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		names := js.StreamNames(t.Context())
		for range names.Name() {
			n++
		}
		if err := names.Err(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	if before == 0 {
		t.Fatal("no streams")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := count(); after != before {
		t.Fatalf("%d streams after a restart, %d before", after, before)
	}
}

func TestEventually(t *testing.T) {
	t.Parallel()
	tries := 0
	localtest.Eventually(t, 10*time.Second, func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if tries != 3 {
		t.Fatalf("tried %d times", tries)
	}
}

func TestLoggerIsSilentAfterTheTest(t *testing.T) {
	t.Parallel()
	var say func()
	t.Run("owner", func(t *testing.T) {
		log := localtest.Logger(t)
		log.Info().Msg("heard")
		say = func() { log.Info().Msg("not heard") }
	})
	say()
}
