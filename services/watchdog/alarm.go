package watchdog

import (
	"context"
	"errors"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// reading is one thing looked at once.
type reading struct {
	name      string
	value     float64
	threshold float64 // raised from here on; 0: the alarm is switched off
	unit      string
	text      string
	unsure    bool // not watched for long enough to say that all is well
}

// judge says what a reading asks for. An alarm that is raised stays so until the
// value has come down to half of the threshold, so that one that wavers does not
// ring all night.
func judge(r reading, raised bool) (delivery.AlertState, bool) {
	switch {
	case r.threshold <= 0:
		return delivery.AlertCleared, raised
	case !raised && r.value >= r.threshold:
		return delivery.AlertRaised, true
	case raised && r.value <= r.threshold/2 && !r.unsure:
		return delivery.AlertCleared, true
	}
	return "", false
}

// announce raises and clears what the readings ask for. alarms is how they stood a
// moment ago; the ledger lets only one watchdog change each.
func (w *watchdog) announce(ctx context.Context, alarms []delivery.Alarm, readings []reading) error {
	raised := make(map[string]bool, len(alarms))
	for _, a := range alarms {
		raised[a.Name] = a.Raised
	}
	var errs []error
	for _, r := range readings {
		state, change := judge(r, raised[r.name])
		w.count.read(ctx, r, raised[r.name] != change)
		if !change {
			continue
		}
		batch, changed, err := w.book.Announce(ctx, delivery.Alert{Name: r.name, State: state, Channel: streams.None, Tenant: streams.None,
			At: time.Now().UTC(), Value: r.value, Threshold: r.threshold, Unit: r.unit, Text: r.text})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !changed {
			continue
		}
		w.hand(batch)
		line := w.log.Error()
		if state == delivery.AlertCleared {
			line = w.log.Info()
		}
		line.Str("alarm", r.name).Str("state", string(state)).Float64("value", r.value).Float64("threshold", r.threshold).Str("unit", r.unit).Msg(r.text)
	}
	return errors.Join(errs...)
}
