package ledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestMigrateFromEmptyAndAgain(t *testing.T) {
	t.Parallel()
	url := localtest.EmptyDatabase(t)
	conn := connect(t, url)
	if err := migrations.Check(t.Context(), conn); !errors.Is(err, migrations.ErrNoSchema) || !strings.Contains(err.Error(), "`posthouse migrate`") {
		t.Fatalf("an empty database: %v", err)
	}
	first, err := migrations.Up(t.Context(), url)
	if err != nil || int64(len(first)) != migrations.Newest() {
		t.Fatalf("from empty: %v %v", first, err)
	}
	second, err := migrations.Up(t.Context(), url)
	if err != nil || len(second) != 0 {
		t.Fatalf("again: %v %v", second, err)
	}
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateFromEachEarlierVersion(t *testing.T) {
	t.Parallel()
	for version := int64(1); version <= migrations.Newest(); version++ {
		url := localtest.EmptyDatabase(t)
		if _, err := migrations.UpTo(t.Context(), url, version); err != nil {
			t.Fatalf("up to %d: %v", version, err)
		}
		rest, err := migrations.Up(t.Context(), url)
		if err != nil || int64(len(rest)) != migrations.Newest()-version {
			t.Fatalf("from %d: %v %v", version, rest, err)
		}
		if err := migrations.Check(t.Context(), connect(t, url)); err != nil {
			t.Fatalf("from %d: %v", version, err)
		}
	}
}

func TestMigrateByFourAtOnce(t *testing.T) {
	t.Parallel()
	url := localtest.EmptyDatabase(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 4 {
		wg.Go(func() {
			applied, err := migrations.Up(t.Context(), url)
			mu.Lock()
			defer mu.Unlock()
			total += len(applied)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if int64(total) != migrations.Newest() {
		t.Fatalf("%d migrations were applied, there are %d", total, migrations.Newest())
	}
}

func TestAnOlderBinaryIsRefused(t *testing.T) {
	t.Parallel()
	url := localtest.Postgres(t)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `UPDATE schema_compat SET oldest_binary = $1`, migrations.Newest()+1); err != nil {
		t.Fatal(err)
	}
	var old *migrations.TooOldError
	if err := migrations.Check(t.Context(), conn); !errors.As(err, &old) || old.Binary != migrations.Newest() {
		t.Fatalf("check: %v", err)
	}
	if _, err := migrations.Up(t.Context(), url); !errors.As(err, &old) {
		t.Fatalf("migrate: %v", err)
	}
}

func TestASchemaThatIsBehindNamesTheCommand(t *testing.T) {
	t.Parallel()
	conn := connect(t, localtest.Postgres(t))
	if _, err := conn.Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = $1`, migrations.Newest()); err != nil {
		t.Fatal(err)
	}
	var behind *migrations.BehindError
	err := migrations.Check(t.Context(), conn)
	if !errors.As(err, &behind) || !strings.Contains(err.Error(), "`posthouse migrate`") {
		t.Fatalf("check: %v", err)
	}
}

func TestANewerSchemaThatBearsThisBinaryIsFine(t *testing.T) {
	t.Parallel()
	conn := connect(t, localtest.Postgres(t))
	if _, err := conn.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, migrations.Newest()+1); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
}

func TestEveryTableIsExplained(t *testing.T) {
	t.Parallel()
	conn := connect(t, localtest.Postgres(t))
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname FROM pg_class c LEFT JOIN pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		  AND c.relname <> 'goose_db_version' AND coalesce(d.description, '') = ''`)
	if err != nil {
		t.Fatal(err)
	}
	if silent, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(silent) > 0 {
		t.Fatalf("tables without a comment: %v %v", silent, err)
	}
}
