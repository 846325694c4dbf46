// Package migrations is the schema: forward-only SQL, embedded, applied by
// goose under an advisory lock, so any number of processes may start it.
//
// It decides which binaries may run on which schema: every binary knows the
// newest migration it was built with (Newest), and the schema names the oldest
// binary it still bears (schema_compat). A new binary refuses a schema that it
// is ahead of; an old one keeps running on a newer schema until that names a
// newer oldest binary, which is what makes a rolling upgrade possible.
//
// Nothing here owns a goroutine. A migration that fails leaves its transaction
// rolled back and the version where it was.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed sql/*.sql
var files embed.FS

// ErrNoSchema means that the database has never been migrated.
var ErrNoSchema = errors.New("the database has no Posthouse schema yet: run `posthouse migrate`")

// Applied is one migration that Up has just run.
type Applied struct {
	Version int64
	Name    string
}

// Up brings the database at url to the newest version this binary knows and
// tells what it ran. It waits for another migrator, and refuses a schema that
// bears only newer binaries.
func Up(ctx context.Context, url string) ([]Applied, error) {
	return UpTo(ctx, url, Newest())
}

// UpTo is Up to a given version; for tests of the way from an earlier schema.
func UpTo(ctx context.Context, url string, version int64) ([]Applied, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("migrate: DATABASE_URL is not a PostgreSQL URL")
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("migrate: connect: %w", err)
	}
	err = Check(ctx, conn)
	_ = conn.Close(ctx)
	var behind *BehindError
	if err != nil && !errors.Is(err, ErrNoSchema) && !errors.As(err, &behind) {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600), lock.WithUnlockTimeout(1, 60)) // seconds, tries
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, sub, goose.WithSessionLocker(locker), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	results, err := provider.UpTo(ctx, version)
	var applied []Applied
	for _, r := range results {
		if r.Error == nil {
			applied = append(applied, Applied{r.Source.Version, r.Source.Path})
		}
	}
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

// Newest is the version of the newest migration in this binary.
func Newest() int64 {
	entries, err := files.ReadDir("sql")
	if err != nil || len(entries) == 0 {
		return 0
	}
	v, err := goose.NumericComponent(entries[len(entries)-1].Name())
	if err != nil {
		return 0
	}
	return v
}

// BehindError says that the schema lacks migrations that this binary needs.
type BehindError struct{ Schema, Binary int64 }

func (e *BehindError) Error() string {
	return fmt.Sprintf("the schema is at version %d and this binary needs %d: run `posthouse migrate`", e.Schema, e.Binary)
}

// TooOldError says that the schema no longer bears a binary as old as this one.
type TooOldError struct{ Oldest, Binary int64 }

func (e *TooOldError) Error() string {
	return fmt.Sprintf("this binary knows schema version %d, but the schema bears none older than %d: install a newer Posthouse", e.Binary, e.Oldest)
}

// Check tells whether this binary may run on the schema it finds: nil,
// ErrNoSchema, a *BehindError or a *TooOldError. A newer schema that still
// names this binary as compatible is fine.
func Check(ctx context.Context, conn *pgx.Conn) error {
	var schema, oldest int64
	err := conn.QueryRow(ctx, `SELECT coalesce((SELECT max(version_id) FROM goose_db_version WHERE is_applied), 0), oldest_binary FROM schema_compat`).Scan(&schema, &oldest)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42P01", errors.Is(err, pgx.ErrNoRows):
		return ErrNoSchema
	case err != nil:
		return fmt.Errorf("read the schema version: %w", err)
	case oldest > Newest():
		return &TooOldError{Oldest: oldest, Binary: Newest()}
	case schema < Newest():
		return &BehindError{Schema: schema, Binary: Newest()}
	}
	return nil
}
