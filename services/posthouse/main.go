// Command posthouse runs Posthouse on one machine and talks to any Posthouse:
// what it asks and sends goes over NATS, never to the database.
//
//	posthouse up | demo                   everything in this process
//	posthouse migrate | streams apply     the two steps before the services start
//	posthouse send | status | explain | tail | dlq list
//	posthouse retry | cancel | settle | jobs | audit | dlq resolve
//	posthouse document status | replay | reverify | mls | c4
//	posthouse lanes | breaker | pause | resume | pauses | quota
//	posthouse env | health | sink | bench
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/posthouse-io/posthouse/pkg/daemon"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Up       upCommand       `cmd:"" help:"Run everything in this process: private PostgreSQL, NATS, all services."`
	Demo     demoCommand     `cmd:"" help:"Show the whole way of a message, with a mail server that misbehaves, and exit."`
	Migrate  migrateCommand  `cmd:"" help:"Bring the database schema up to date."`
	Streams  streamsCommand  `cmd:"" help:"Create or update the JetStream streams."`
	Send     sendCommand     `cmd:"" help:"Publish a send request."`
	Status   statusCommand   `cmd:"" help:"Tell where a delivery is."`
	Explain  explainCommand  `cmd:"" help:"Tell what holds a delivery, until when, and what would release it."`
	Tail     tailCommand     `cmd:"" help:"Show state changes as they happen."`
	Retry    retryCommand    `cmd:"" help:"Put deliveries back into the queue, due at once: by id, or all that a filter finds."`
	Cancel   cancelCommand   `cmd:"" help:"Call deliveries back that wait: by id, or all that a filter finds."`
	Settle   settleCommand   `cmd:"" help:"Say of held deliveries that they arrived or did not."`
	Jobs     jobsCommand     `cmd:"" help:"Retries and cancellations over all that a filter finds."`
	Lanes    lanesCommand    `cmd:"" help:"Destinations: what protects them, and what waits there."`
	Breaker  breakerCommand  `cmd:"" help:"Circuit breakers of lanes: list, open, reset."`
	Pause    pauseCommand    `cmd:"" help:"Let a lane, a tenant or a channel rest; what arrives is kept."`
	Resume   resumeCommand   `cmd:"" help:"End a pause."`
	Pauses   pausesCommand   `cmd:"" help:"Tenants and channels that rest."`
	Quota    quotaCommand    `cmd:"" help:"Monthly quotas of tenants, and what is used of them."`
	Document documentCommand `cmd:"" help:"Received documents: status, replay, reverify, the answer to the sender, the receiver's country."`
	Audit    auditCommand    `cmd:"" help:"What operators have done."`
	Dlq      dlqCommand      `cmd:"" name:"dlq" help:"Dead letters."`
	Events   eventsCommand   `cmd:"" help:"Events: publish them again, and whether the stream holds them all."`
	Alarms   alarmsCommand   `cmd:"" help:"What is not as it should be."`
	Env      envCommand      `cmd:"" help:"Print every setting with its default."`
	Health   healthCommand   `cmd:"" help:"Ask a service whether it is ready; for health checks."`
	Sink     sinkCommand     `cmd:"" help:"Run a mail server that keeps a ledger instead of mail."`
	Bench    benchCommand    `cmd:"" help:"Measure Posthouse on this machine, beside its bars and goals."`

	BenchNATS   benchNATSCommand   `cmd:"" name:"bench-nats" hidden:""`
	BenchSender benchSenderCommand `cmd:"" name:"bench-sender" hidden:""`
}

// terminal is what a command writes to and reads from.
type terminal struct {
	ctx     context.Context
	out     io.Writer
	err     io.Writer
	in      io.Reader
	environ []string
}

func main() {
	daemon.Tune(os.Environ())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The second signal ends at once: the handler is taken off at the first.
	defer context.AfterFunc(ctx, stop)()
	os.Exit(run(os.Args[1:], &terminal{ctx: ctx, out: os.Stdout, err: os.Stderr, in: os.Stdin, environ: os.Environ()}))
}

// run executes one command line and returns the exit code.
func run(args []string, t *terminal) int {
	var c commands
	parser, err := kong.New(&c, kong.Name("posthouse"), kong.Description("A delivery pipeline over NATS JetStream with PostgreSQL as its book."),
		kong.UsageOnError(), kong.Writers(t.out, t.err), kong.Bind(t))
	if err != nil {
		fmt.Fprintln(t.err, "posthouse:", err)
		return exitUsage
	}
	cmd, err := parser.Parse(args)
	if err != nil {
		var parse *kong.ParseError
		if errors.As(err, &parse) {
			_ = parse.Context.PrintUsage(true)
		}
		fmt.Fprintln(t.err, "posthouse:", err)
		return exitUsage
	}
	err = cmd.Run()
	var faults daemon.Faults
	switch {
	case err == nil:
		return 0
	case errors.As(err, &faults):
		fmt.Fprintln(t.err, "posthouse:", err)
		return exitUsage
	}
	fmt.Fprintln(t.err, "posthouse:", err)
	return exitFailed
}
