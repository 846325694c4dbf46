package watchdog

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// pulse remembers how far each consumer was, to tell one that is slow from one that
// has stopped. It is this watchdog's own memory: one that has just started says
// neither that a consumer stands still nor that it moves.
type pulse struct {
	beats map[string]*beat
}

// beat is when a consumer was last seen to move, and where it stood then.
type beat struct {
	delivered, floor uint64
	moved, acked     time.Time
	seen             bool // moved is a movement, not just the first look
}

const consumerAlarm = "consumer_stalled-"

func isConsumerAlarm(name string) bool { return strings.HasPrefix(name, consumerAlarm) }

// look compares with the look before. A consumer stands still when it has messages
// to give and gives none, or when as many as it may have out at once are out and
// none of them comes back. One that is ahead of its stream would wait for messages
// that will never have those numbers (the stream has lost its end).
func (p *pulse) look(now time.Time, infos []*jetstream.ConsumerInfo, threshold time.Duration) []reading {
	if p.beats == nil {
		p.beats = make(map[string]*beat)
	}
	present := make(map[string]bool, len(infos))
	var readings []reading
	for _, i := range infos {
		key := i.Stream + "/" + i.Name
		present[key] = true
		b := p.beats[key]
		switch {
		case b == nil:
			b = &beat{delivered: i.Delivered.Consumer, floor: i.AckFloor.Consumer, moved: now, acked: now}
			p.beats[key] = b
		default:
			if b.delivered != i.Delivered.Consumer {
				b.delivered, b.moved, b.seen = i.Delivered.Consumer, now, true
			}
			if b.floor != i.AckFloor.Consumer {
				b.floor, b.acked, b.seen = i.AckFloor.Consumer, now, true
			}
		}
		r := reading{name: consumerAlarm + i.Name, threshold: threshold.Seconds(), unit: "seconds", unsure: !b.seen,
			text: fmt.Sprintf("consumer %s of %s makes progress: %d messages wait", i.Name, i.Stream, i.NumPending)}
		full := i.Config.MaxAckPending > 0 && i.NumAckPending >= i.Config.MaxAckPending
		switch {
		case full:
			last := b.acked
			if b.moved.After(last) { // acknowledged out of order: the floor stays, others go out
				last = b.moved
			}
			r.value = now.Sub(last).Seconds()
			r.text = fmt.Sprintf("consumer %s of %s: all %d messages that may be out are out, and none came back for %.0f s", i.Name, i.Stream, i.NumAckPending, r.value)
		case i.NumRedelivered > 0 && now.Sub(b.acked) > 4*threshold: // what is given out again and again is no progress
			r.value = now.Sub(b.acked).Seconds()
			r.text = fmt.Sprintf("consumer %s of %s: %d messages are given out again and again; the oldest was not acknowledged for %.0f s", i.Name, i.Stream, i.NumRedelivered, r.value)
		case i.NumPending > 0:
			r.value = now.Sub(b.moved).Seconds()
			r.text = fmt.Sprintf("consumer %s of %s: %d messages wait and none was given out for %.0f s; %d pull requests wait", i.Name, i.Stream, i.NumPending, r.value, i.NumWaiting)
		default: // idle: the clock starts when there is something to do
			b.moved, b.acked, r.unsure = now, now, false
		}
		readings = append(readings, r)
	}
	for key := range p.beats {
		if !present[key] {
			delete(p.beats, key)
		}
	}
	return readings
}
