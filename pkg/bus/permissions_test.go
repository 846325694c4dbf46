package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

const conf = "../../streams/server/nats.conf"

// The passwords are set here and not in a test, since t.Setenv and t.Parallel
// exclude each other.
func TestMain(m *testing.M) {
	for _, u := range []string{"SERVICES", "OPERATOR", "READER", "ACME", "GLOBEX"} {
		if err := os.Setenv("NATS_"+u+"_PASSWORD", "secretOf"+u); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// shipped starts a server from the shipped file; only port and disk are the
// test's. feature flags switch the acknowledgement subjects to their second form.
func shipped(t *testing.T, flags map[string]bool) *box {
	t.Helper()
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	if opts.MaxPayload != 8<<20 || !opts.SyncAlways || !opts.JetStream {
		t.Fatalf("max_payload %d, sync always %v, jetstream %v", opts.MaxPayload, opts.SyncAlways, opts.JetStream)
	}
	opts.Host, opts.Port, opts.HTTPHost, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT, "", 0
	opts.StoreDir, opts.NoLog, opts.NoSigs, opts.FeatureFlags = t.TempDir(), true, true, flags
	b := &box{t: t, opts: opts}
	b.start()
	t.Cleanup(b.stop)
	return b
}

// as connects as one of the users, with inboxes of its own; the second value
// receives what the server refuses.
func (b *box) as(t *testing.T, user string) (*nats.Conn, jetstream.JetStream, <-chan error) {
	t.Helper()
	nc, js := connect(t, bus.Config{URL: b.url(), User: user, Password: "secretOf" + strings.ToUpper(user), InboxPrefix: "_INBOX." + user})
	if user != "services" {
		var err error
		if js, err = jetstream.NewWithDomain(nc, "posthouse"); err != nil {
			t.Fatal(err)
		}
	}
	refused := make(chan error, 100)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	return nc, js, refused
}

func mustRefuse(t *testing.T, nc *nats.Conn, refused <-chan error, subject string) {
	t.Helper()
	if err := nc.Publish(subject, nil); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(patience)
	for {
		select {
		case err := <-refused: // others may come between: an ordered consumer would like to delete itself
			if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`) {
				return
			}
		case <-deadline:
			t.Errorf("%s passes", subject)
			return
		}
	}
}

func mustRefuseToHear(t *testing.T, nc *nats.Conn, refused <-chan error, subject string) {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the server has ended it
	deadline := time.After(patience)
	for {
		select {
		case err := <-refused:
			if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `Subscription to "`+subject+`"`) {
				return
			}
		case <-deadline:
			t.Errorf("may hear %s", subject)
			return
		}
	}
}

func TestShippedPermissions(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]map[string]bool{"first ack form": nil, "second ack form": {"js_ack_fc_v2": true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			permissions(t, shipped(t, flags))
		})
	}
}

func permissions(t *testing.T, b *box) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// services: makes the streams, publishes in batches, serves, consumes.
	nc, js, refused := b.as(t, "services")
	if _, err := streams.Apply(ctx, js, streams.Options{MaxBytes: 128 << 20}); err != nil {
		t.Fatal(err)
	}
	pub, err := bus.NewPublisher(nc, patience)
	if err != nil {
		t.Fatal(err)
	}
	letter := nats.NewMsg(streams.DLQ(streams.Held, "mail", "acme"))
	letter.Header.Set(bus.HeaderMsgID, "letter")
	if err := pub.Publish(ctx, []*nats.Msg{event("1"), event("2"), letter}).Err(); err != nil {
		t.Fatal(err)
	}
	background, end := context.WithCancel(ctx)
	served, consumed := make(chan error, 1), make(chan error, 1)
	go func() { served <- bus.Serve(background, nc, echo("sender")) }()
	var got tally
	go func() {
		consumed <- bus.Consume(background, js, bus.Consumer{Stream: streams.Requests, Durable: "sender", Filters: []string{streams.AllSend()}, Log: zerolog.Nop()}, got.ack)
	}()
	if _, err := js.CreateConsumer(ctx, streams.Events, jetstream.ConsumerConfig{Durable: "dead-letter", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	rung := make(chan struct{}, 1)
	stop, err := bus.OnRing(nc, "queue", func([]byte) { rung <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Ring(nc, "queue", nil); err != nil {
		t.Fatal(err)
	}
	<-rung
	stop()

	// acme: its own requests, acknowledged; nothing else.
	acme, acmeJS, acmeRefused := b.as(t, "acme")
	if _, err := acmeJS.Publish(ctx, streams.Send("mail", "acme"), []byte("from acme")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is consumed", func() bool { return got.distinct() == 1 })
	for _, subject := range []string{streams.Send("mail", "globex"), streams.Send("mail", "_"), streams.Inbound("acme"), streams.Ops("sender", "echo"),
		streams.Event(streams.KindDelivery, "sent", "mail", "acme"), streams.DLQ(streams.Held, "mail", "acme"), streams.Doorbell("queue"),
		"$JS.API.STREAM.PURGE." + streams.Requests, "$JS.API.INFO", "$JS.ACK.x", "_INBOX.services.x", "$SRV.PING"} {
		mustRefuse(t, acme, acmeRefused, subject)
	}
	for _, subject := range []string{streams.AllEvents(), streams.AllSend(), "_INBOX.>", "_INBOX.globex.>", ">", streams.AllOps()} {
		mustRefuseToHear(t, acme, acmeRefused, subject)
	}

	// reader: events and dead letters, live and from the stream; says nothing.
	reader, readerJS, readerRefused := b.as(t, "reader")
	live, err := reader.SubscribeSync("posthouse.event.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	if err := pub.Publish(ctx, []*nats.Msg{event("3")}).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := live.NextMsgWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	readAll(t, ctx, readerJS, streams.Events, 3)
	readAll(t, ctx, readerJS, streams.DeadLetter, 1)
	for _, subject := range []string{streams.Event(streams.KindDelivery, "sent", "mail", "acme"), streams.DLQ(streams.Held, "mail", "acme"),
		streams.Send("mail", "acme"), streams.Ops("sender", "echo"), "$JS.API.STREAM.DELETE." + streams.Events, "$JS.posthouse.API.STREAM.DELETE." + streams.Events, "$JS.posthouse.API.STREAM.PURGE." + streams.DeadLetter,
		"$JS.posthouse.API.CONSUMER.CREATE." + streams.Events, "$JS.posthouse.API.CONSUMER.CREATE." + streams.Requests + ".mine", "$JS.posthouse.API.CONSUMER.DURABLE.CREATE." + streams.Events + ".mine",
		"$JS.posthouse.API.CONSUMER.CREATE." + streams.Events + ".dead-letter", "$JS.posthouse.API.CONSUMER.CREATE." + streams.Events + ".dead-letter.posthouse.event.>",
		"$JS.posthouse.API.CONSUMER.DELETE." + streams.Events + ".dead-letter", "$JS.posthouse.API.CONSUMER.MSG.NEXT." + streams.Events + ".dead-letter",
		"$JS.ACK." + streams.Events + ".dead-letter.1.1.1.1.1"} {
		mustRefuse(t, reader, readerRefused, subject)
	}
	mustRefuseToHear(t, reader, readerRefused, streams.AllSend())
	mustRefuseToHear(t, reader, readerRefused, "_INBOX.services.>")

	// operator: the operations, the list of services, reading.
	operator, operatorJS, operatorRefused := b.as(t, "operator")
	var answer string
	eventually(t, "sender answers", func() bool {
		err = bus.Call(ctx, operator, streams.Ops("sender", "echo"), "hello", &answer)
		return !errors.Is(err, bus.ErrNotRunning)
	})
	if err != nil || answer != "hello" {
		t.Fatal(answer, err)
	}
	pong, err := operator.RequestWithContext(ctx, "$SRV.PING.sender", nil)
	if err != nil || !json.Valid(pong.Data) || !strings.Contains(string(pong.Data), micro.PingResponseType) {
		t.Fatal(pong, err)
	}
	readAll(t, ctx, operatorJS, streams.Events, 3)
	for _, subject := range []string{streams.Send("mail", "acme"), streams.Event(streams.KindDelivery, "sent", "mail", "acme"),
		"$JS.API.STREAM.DELETE." + streams.Events, "$JS.posthouse.API.CONSUMER.CREATE." + streams.Events + ".dead-letter"} {
		mustRefuse(t, operator, operatorRefused, subject)
	}

	// A wrong password gets in nowhere, and goes on trying.
	stranger, err := bus.Connect(ctx, bus.Config{URL: b.url(), User: "acme", Password: "guess"}, "stranger", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if stranger.IsConnected() || stranger.IsClosed() {
		t.Error("a wrong password ends in", stranger.Status())
	}

	end()
	if err := errors.Join(<-served, <-consumed); err != nil {
		t.Error(err)
	}
	select {
	case err := <-refused:
		t.Error("services was refused:", err)
	default:
	}
}

// A client chooses where answers go. Whatever a reader or a publisher asks the
// server to send, it must not work as a command: neither to the server, nor to a
// service.
func TestAnswersAreNoCommands(t *testing.T) {
	t.Parallel()
	b := shipped(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nc, js, _ := b.as(t, "services")
	if _, err := streams.Apply(ctx, js, streams.Options{MaxBytes: 128 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(ctx, streams.Events, jetstream.ConsumerConfig{Durable: "dead-letter", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	pub, err := bus.NewPublisher(nc, patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := pub.Publish(ctx, []*nats.Msg{event("1"), event("2")}).Err(); err != nil {
		t.Fatal(err)
	}
	acme, _, _ := b.as(t, "acme")
	operator, _, _ := b.as(t, "operator")
	reader, readerJS, _ := b.as(t, "reader")

	// To the server. The status of an empty pull has no body, as commands want it.
	pull := jetstream.ConsumerConfig{HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy}
	for _, command := range []string{"STREAM.DELETE." + streams.DeadLetter, "STREAM.PURGE." + streams.Events, "CONSUMER.DELETE." + streams.Events + ".dead-letter"} {
		for _, prefix := range []string{"$JS.API.", "$JS.posthouse.API."} {
			reply := prefix + command
			c, err := readerJS.CreateConsumer(ctx, streams.Events, pull)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(nc *nats.Conn, subject, body string) {
				if err := nc.PublishRequest(subject, reply, []byte(body)); err != nil {
					t.Fatal(err)
				}
			}
			for _, nc := range []*nats.Conn{reader, operator} {
				for range 3 {
					ask(nc, fmt.Sprintf("$JS.posthouse.API.CONSUMER.MSG.NEXT.%s.%s", streams.Events, c.CachedInfo().Name), `{"batch":2,"no_wait":true}`)
				}
			}
			ask(acme, streams.Send("mail", "acme"), "")
			ask(operator, streams.Ops("sender", "echo"), "not JSON")
			for _, nc := range []*nats.Conn{reader, operator, acme} {
				if err := nc.FlushWithContext(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	readAll(t, ctx, readerJS, streams.Events, 2) // asked later, answered later
	if n := stored(t, js, streams.Events); n != 2 {
		t.Errorf("%d events are left", n)
	}
	if _, err := js.Stream(ctx, streams.DeadLetter); err != nil {
		t.Error(err)
	}
	if _, err := js.Consumer(ctx, streams.Events, "dead-letter"); err != nil {
		t.Error(err)
	}

	// To a service: events pushed to an operation are ignored, and it says so.
	heard := make(lines, 100)
	s := echo("sender")
	s.Log = zerolog.New(heard)
	s.Endpoints[0].Handle = func(context.Context, bus.Request) (any, error) {
		t.Error("an event is taken for an operation")
		return nil, nil
	}
	background, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- bus.Serve(background, nc, s) }()
	eventually(t, "sender listens", func() bool {
		_, err := nc.RequestWithContext(ctx, "$SRV.PING.sender", nil)
		return err == nil
	})
	for _, policy := range []jetstream.AckPolicy{jetstream.AckNonePolicy, jetstream.AckExplicitPolicy} {
		if _, err := readerJS.CreatePushConsumer(ctx, streams.Events, jetstream.ConsumerConfig{
			DeliverSubject: streams.Ops("sender", "echo"), DeliverGroup: micro.DefaultQueueGroup, AckPolicy: policy}); err != nil {
			t.Fatal(err)
		}
		select {
		case line := <-heard:
			if !strings.Contains(line, "request ignored") {
				t.Error(line)
			}
		case <-ctx.Done():
			t.Fatal("nothing heard with", policy)
		}
	}
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// lines is a log whose lines a test waits for.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func readAll(t *testing.T, ctx context.Context, js jetstream.JetStream, stream string, n int) {
	t.Helper()
	c, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for range batch.Messages() {
		got++
	}
	if got != n || batch.Error() != nil {
		t.Fatalf("%s: %d of %d, %v", stream, got, n, batch.Error())
	}
}

func echo(name string) bus.Service {
	return bus.Service{Name: name, Version: "1.0.0", Log: zerolog.Nop(), Endpoints: []bus.Endpoint{{
		Name: "echo", Subject: streams.Ops(name, "echo"),
		Handle: func(_ context.Context, r bus.Request) (any, error) {
			var s string
			if err := r.Decode(&s); err != nil {
				return nil, err
			}
			return s, nil
		},
	}}}
}
