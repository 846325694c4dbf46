package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// Consumer describes one durable pull consumer and how this process takes part
// in it. Any number of processes may share the durable.
type Consumer struct {
	Stream        string
	Durable       string        // named after the service: the server's permissions protect that name (streams/server/nats.conf)
	Filters       []string      // subjects; none = all of the stream
	MaxBatch      int           // messages per call of the handler; 0 = 32
	Prefetch      int           // messages held here that no handler has yet; 0 = 2*MaxBatch, at least MaxBatch+4
	PrefetchBytes int           // bytes asked for at once, at least the stream's largest message; 0 = no bound
	MaxAckPending int           // in flight over all processes; 0 = 4096
	AckWait       time.Duration // from delivery to redelivery; 0 = 30 s
	Hold          time.Duration // bound of one handler call, which says InProgress if it is longer than AckWait; 0 = AckWait
	Parallel      int           // handler calls at a time; 0 = 1
	Log           zerolog.Logger
}

// Times of supervision. A pull request lives for pullExpiry and the server beats in
// between. When two beats are missing nats.go pulls again by itself; when that does
// not help within secondMiss the consumer counts as lost.
const (
	pullExpiry    = 10 * time.Second
	pullHeartbeat = 2 * time.Second
	secondMiss    = 5 * pullHeartbeat
	apiTimeout    = 5 * time.Second
	healthySpell  = 10 * time.Second
	drainTime     = time.Second
	firstBackoff  = 100 * time.Millisecond
	lastBackoff   = 10 * time.Second

	// nats.go forgets to pull again when a whole pull is answered before it has
	// noted that it asked, which a pull of one message does now and then.
	smallestPull = 4
)

func (c Consumer) withDefaults() (Consumer, error) {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.MaxBatch, 32)
	def(&c.Prefetch, 2*c.MaxBatch)
	c.Prefetch = max(c.Prefetch, c.MaxBatch+smallestPull)
	def(&c.MaxAckPending, 4096)
	def(&c.Parallel, 1)
	if c.AckWait <= 0 {
		c.AckWait = 30 * time.Second
	}
	if c.Hold <= 0 {
		c.Hold = c.AckWait
	}
	if c.Stream == "" || c.Durable == "" {
		return c, errors.New("consume: stream and durable are needed")
	}
	return c, nil
}

// config is what the server holds. MaxDeliver is never bounded: an exhausted
// message would stay in the stream unseen. Who handles it counts deliveries and
// gives up in its own way.
func (c Consumer) config() jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Durable:       c.Durable,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: c.MaxAckPending,
	}
	if len(c.Filters) == 1 {
		cfg.FilterSubject = c.Filters[0]
	} else {
		cfg.FilterSubjects = c.Filters
	}
	return cfg
}

// Consume creates or updates the durable and hands its messages over until ctx
// ends; then it waits for the handler in progress and returns nil. A batch is the
// first message at once and whatever else is already here: there is no linger.
//
// The handler acknowledges; what it leaves alone comes again after AckWait. Its
// context does not end with ctx, so that a message that was begun is finished,
// but after AckWait, when the message is somebody else's. A deleted consumer or
// stream, lost heartbeats or a lost server are logged and rebuilt with jittered
// backoff. The only other error is a connection closed for good.
func Consume(ctx context.Context, js jetstream.JetStream, c Consumer, handle func(ctx context.Context, batch []jetstream.Msg)) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	c.Log = c.Log.With().Str("stream", c.Stream).Str("consumer", c.Durable).Logger()
	wait := firstBackoff
	for {
		if err := connected(ctx, js.Conn()); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("consume %s/%s: %w", c.Stream, c.Durable, err)
		}
		began := time.Now()
		err := c.session(ctx, js, handle)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > healthySpell {
			wait = firstBackoff
		}
		pause := wait/2 + rand.N(wait)
		c.Log.Warn().Err(err).Dur("pause", pause).Msg("consumer lost, rebuilding")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		wait = min(2*wait, lastBackoff)
	}
}

// session runs one subscription until it is lost or ctx ends, and all that it
// started has ended when it returns.
func (c Consumer) session(ctx context.Context, js jetstream.JetStream, handle func(context.Context, []jetstream.Msg)) error {
	api, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	cons, err := js.CreateOrUpdateConsumer(api, c.Stream, c.config())
	if err != nil {
		return fmt.Errorf("create or update: %w", err)
	}

	// The buffer holds one batch, the subscription the rest of Prefetch.
	stop, end := context.WithCancelCause(ctx)
	defer end(nil)
	buffer := make(chan jetstream.Msg, c.MaxBatch)
	var missed beats
	cc, err := cons.Consume(func(m jetstream.Msg) {
		select {
		case buffer <- m:
		case <-stop.Done():
			_ = m.Nak() // another process has it at once
		}
	}, c.pullOptions(func(err error) {
		// nats.go reports from two goroutines.
		if lost(err) || errors.Is(err, jetstream.ErrNoHeartbeat) && missed.again() {
			end(err)
			return
		}
		c.Log.Debug().Err(err).Msg("consumer reports")
	})...)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}

	var workers sync.WaitGroup
	for range c.Parallel {
		workers.Go(func() { c.work(stop, buffer, handle) })
	}
	closed := cc.Closed()
	select {
	case <-stop.Done():
	case <-closed:
		end(errors.New("subscription closed"))
	}
	// Draining gives each message that is here already to the function above, which
	// gives it back; left alone it would come again after AckWait only.
	if js.Conn().IsConnected() {
		cc.Drain()
	} else {
		cc.Stop()
	}
	workers.Wait()
	select {
	case <-closed:
	case <-time.After(drainTime):
		cc.Stop()
		<-closed
	}
	giveBack(buffer)
	return context.Cause(stop)
}

func (c Consumer) pullOptions(report func(error)) []jetstream.PullConsumeOpt {
	opts := []jetstream.PullConsumeOpt{
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { report(err) }),
	}
	if n := c.Prefetch - c.MaxBatch; c.PrefetchBytes > 0 {
		opts = append(opts, jetstream.PullMaxMessagesWithBytesLimit(n, c.PrefetchBytes))
	} else {
		opts = append(opts, jetstream.PullMaxMessages(n))
	}
	return opts
}

// lost tells the reports that need a rebuild from those that nats.go overcomes.
func lost(err error) bool {
	for _, e := range []error{jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound, jetstream.ErrBadRequest,
		jetstream.ErrConnectionClosed, nats.ErrNoResponders} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// beats remembers when heartbeats were missing last.
type beats struct {
	mu   sync.Mutex
	last time.Time
}

// again notes a miss and tells whether it follows another one closely.
func (b *beats) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	soon := time.Since(b.last) < secondMiss
	b.last = time.Now()
	return soon
}

func (c Consumer) work(stop context.Context, buffer <-chan jetstream.Msg, handle func(context.Context, []jetstream.Msg)) {
	for {
		// Asked for by itself: a select with both ready would take either.
		if stop.Err() != nil {
			return
		}
		select {
		case <-stop.Done():
			return
		case m := <-buffer:
			batch := c.gather(m, buffer)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), c.Hold)
			handle(ctx, batch)
			cancel()
		}
	}
}

func (c Consumer) gather(first jetstream.Msg, buffer <-chan jetstream.Msg) []jetstream.Msg {
	batch := append(make([]jetstream.Msg, 0, c.MaxBatch), first)
	for len(batch) < c.MaxBatch {
		select {
		case m := <-buffer:
			batch = append(batch, m)
		default:
			return batch
		}
	}
	return batch
}

// giveBack lets another process have at once what nobody here began. Where that
// cannot be said any more the server's AckWait says it.
func giveBack(buffer <-chan jetstream.Msg) {
	for {
		select {
		case m := <-buffer:
			_ = m.Nak() // the server gives it out again by itself
		default:
			return
		}
	}
}
