// Command river measures River (https://riverqueue.com), the fastest Go queue on
// PostgreSQL that we know, so that our own figures have something to stand
// beside. It is a module of its own: the product does not depend on it.
//
//	DATABASE_URL=... go run . -shape 1k|bench|tx -jobs N
//
// The settings are those of River's own benchmark: 2,000 workers that do nothing,
// fetch cooldown 2 ms, poll 20 ms, jobs inserted beforehand, ANALYZE after that. It
// prints a line when they are inserted, and its result when they are worked.
// The shape tx keeps the promise that Posthouse makes: each job is completed in
// one transaction with the row of its event.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	cooldown  = 2 * time.Millisecond
	poll      = 20 * time.Millisecond
	loadBatch = 5000
	bodyBytes = 1024
)

// shape is one way to use River.
type shape struct {
	body    int   // bytes in the arguments of a job
	workers int   // at once
	conns   int32 // of the pool
	inTx    bool
}

// A transaction per job needs a connection per worker; with 2,000 workers on one
// pool it is slower than with this many.
func shapes() map[string]shape {
	return map[string]shape{
		"1k":    {body: bodyBytes, workers: 2000, conns: 10},
		"bench": {workers: 2000, conns: 10},
		"tx":    {body: bodyBytes, workers: 100, conns: 30, inTx: true},
	}
}

// jobArgs is the work: nothing, with a payload or without.
type jobArgs struct {
	Body string `json:"body,omitempty"`
}

func (jobArgs) Kind() string { return "noop" }

// worker counts the jobs and, in the shape tx, completes them together with an
// event row.
type worker struct {
	river.WorkerDefaults[jobArgs]

	db   *pgxpool.Pool
	inTx bool
	left atomic.Int64
	done chan struct{}
}

func (w *worker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	if w.inTx {
		err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO bench_event (job, body) VALUES ($1, $2)", job.ID, event(job.ID)); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
		if err != nil {
			return err
		}
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

// event has the size of one of ours.
func event(id int64) []byte {
	return fmt.Appendf(nil, `{"schema":1,"event":"%d.2","kind":"delivery","state":"sent","pad":"%s"}`, id, strings.Repeat("e", 260))
}

// result is what is printed.
type result struct {
	Shape   string  `json:"shape"`
	Jobs    int     `json:"jobs"`
	Workers int     `json:"workers"`
	Seconds float64 `json:"seconds"`
	PerS    float64 `json:"per_s"`
}

func main() {
	name := flag.String("shape", "1k", "1k, bench or tx")
	jobs := flag.Int("jobs", 20000, "jobs to work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, os.Getenv("DATABASE_URL"), *name, *jobs)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func measure(ctx context.Context, url, name string, jobs int) (result, error) {
	s, ok := shapes()[name]
	if !ok || jobs < 1 {
		return result{}, errors.New("want -shape 1k, bench or tx and -jobs of at least 1")
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return result{}, errors.New("DATABASE_URL is not a PostgreSQL URL")
	}
	cfg.MaxConns = s.conns
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return result{}, err
	}
	defer db.Close()
	w := &worker{db: db, inTx: s.inTx, done: make(chan struct{})}
	w.left.Store(int64(jobs))
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, inserted, err := prepare(ctx, db, s, workers, jobs)
	if err != nil {
		return result{}, err
	}
	fmt.Printf("{\"insert_per_s\":%.0f}\n", inserted)
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return result{}, fmt.Errorf("start: %w", err)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	// River's completer is asynchronous, as our settling is: the work is over
	// when the last job is stored as completed.
	err = stored(ctx, db)
	took := time.Since(began).Seconds()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := errors.Join(err, client.Stop(stopping)); err != nil {
		return result{}, err
	}
	return result{Shape: name, Jobs: jobs, Workers: s.workers, Seconds: took, PerS: float64(jobs) / took}, nil
}

// stored returns when no job is left that is not completed.
func stored(ctx context.Context, db *pgxpool.Pool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var left bool
		if err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE state <> 'completed')").Scan(&left); err != nil {
			return fmt.Errorf("look for jobs that are left: %w", err)
		}
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// prepare migrates and loads the jobs, and tells how many a second it inserted.
func prepare(ctx context.Context, db *pgxpool.Pool, s shape, workers *river.Workers, jobs int) (*river.Client[pgx.Tx], float64, error) {
	driver := riverpgxv5.New(db)
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, 0, fmt.Errorf("migrate: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, 0, fmt.Errorf("migrate: %w", err)
	}
	if _, err := db.Exec(ctx, "CREATE TABLE bench_event (id bigserial PRIMARY KEY, job bigint NOT NULL, body bytea NOT NULL)"); err != nil {
		return nil, 0, fmt.Errorf("event table: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{FetchCooldown: cooldown, FetchPollInterval: poll, Logger: quiet, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: s.workers}}})
	if err != nil {
		return nil, 0, fmt.Errorf("client: %w", err)
	}
	body := strings.Repeat("x", s.body)
	began := time.Now()
	for left := jobs; left > 0; left -= loadBatch {
		batch := make([]river.InsertManyParams, min(left, loadBatch))
		for i := range batch {
			batch[i].Args = jobArgs{Body: body}
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return nil, 0, fmt.Errorf("insert: %w", err)
		}
	}
	inserted := float64(jobs) / time.Since(began).Seconds()
	for _, sql := range []string{"ANALYZE", "CHECKPOINT"} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return client, inserted, nil
}
