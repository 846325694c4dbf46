package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Options are what differs from one place to another.
type Options struct {
	MaxBytes int64 `env:"STREAMS_MAX_BYTES" envDefault:"0" doc:"bytes that all streams together reserve on disk, shared out in the proportions of the files; 0 = as the files say (about 17 GiB)"`
	Replicas int   `env:"STREAMS_REPLICAS" envDefault:"0" doc:"copies of each stream in a cluster: 1, 3 or 5; 0 = leave as it is (1 when created)"`
}

// minBytes is what a stream gets of MaxBytes before the rest is shared out.
const minBytes = 1 << 20

// Validate reports every fault of the options at once, by variable.
func (o Options) Validate() error {
	var errs []error
	if o.MaxBytes != 0 && o.MaxBytes < 16*minBytes {
		errs = append(errs, fmt.Errorf("STREAMS_MAX_BYTES: %d is below 16 MiB", o.MaxBytes))
	}
	if !slices.Contains([]int{0, 1, 3, 5}, o.Replicas) {
		errs = append(errs, fmt.Errorf("STREAMS_REPLICAS: %d is not 0, 1, 3 or 5", o.Replicas))
	}
	return errors.Join(errs...)
}

// Change is one field that differs, in JSON names and values.
type Change struct{ Field, From, To string }

// Action is what Apply did, or Diff would do, with a stream.
type Action string

// The closed set of actions.
const (
	Unchanged Action = "unchanged"
	Created   Action = "created"
	Updated   Action = "updated"
)

// Entry tells about one stream.
type Entry struct {
	Stream  string
	Action  Action
	Changes []Change // only for Updated
	want    jetstream.StreamConfig
}

// Report has an entry per stream, in the order of Load.
type Report []Entry

func (r Report) String() string {
	var b strings.Builder
	for _, e := range r {
		fmt.Fprintf(&b, "%s %s\n", e.Stream, e.Action)
		for _, c := range e.Changes {
			fmt.Fprintf(&b, "  %s: %s -> %s\n", c.Field, c.From, c.To)
		}
	}
	return b.String()
}

// DriftError refuses a change that could lose messages or weaken a promise.
type DriftError struct {
	Stream string
	Change Change
	Reason string
}

func (e *DriftError) Error() string {
	return fmt.Sprintf("stream %s: %s from %s to %s refused: %s", e.Stream, e.Change.Field, e.Change.From, e.Change.To, e.Reason)
}

// Diff compares the files with the server and changes nothing. Destructive drift
// is a *DriftError per field (joined).
func Diff(ctx context.Context, js jetstream.JetStream, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var report Report
	var errs []error
	for _, d := range Load() {
		e, err := plan(ctx, js, d, o)
		errs = append(errs, err)
		report = append(report, e)
	}
	return report, errors.Join(errs...)
}

// Apply makes the server's streams equal to the files. It is idempotent, safe to
// run from several processes, and all or nothing where drift is destructive:
// then no stream is touched.
func Apply(ctx context.Context, js jetstream.JetStream, o Options) (Report, error) {
	report, err := Diff(ctx, js, o)
	if err != nil {
		return nil, err
	}
	for _, e := range report {
		switch e.Action {
		case Created:
			_, err = js.CreateStream(ctx, e.want)
		case Updated:
			_, err = js.UpdateStream(ctx, e.want)
		}
		if err != nil {
			return nil, explain(e, err)
		}
	}
	return report, nil
}

func explain(e Entry, err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == codeNoStorage {
		return fmt.Errorf("stream %s: the server has no room to reserve %d bytes (set STREAMS_MAX_BYTES lower, or max_file_store of the server higher): %w", e.Stream, e.want.MaxBytes, err)
	}
	return fmt.Errorf("stream %s (%s): %w", e.Stream, e.Action, err)
}

// codeNoStorage is JSStorageResourcesExceededErr of nats-server's errors.json.
const codeNoStorage jetstream.ErrorCode = 10047

func plan(ctx context.Context, js jetstream.JetStream, d Definition, o Options) (Entry, error) {
	e := Entry{Stream: d.Config.Name}
	s, err := js.Stream(ctx, d.Config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		e.Action, e.want = Created, o.on(d.Config)
		return e, nil
	}
	if err != nil {
		return e, fmt.Errorf("stream %s: look up: %w", d.Config.Name, err)
	}
	info := s.CachedInfo()
	if e.want, err = overlay(info.Config, d); err != nil {
		return e, err
	}
	e.want = o.on(e.want)
	if e.Changes, err = changes(info.Config, e.want); err != nil {
		return e, fmt.Errorf("stream %s: compare: %w", e.Stream, err)
	}
	e.Action = Unchanged
	if len(e.Changes) > 0 {
		e.Action = Updated
	}
	var errs []error
	for _, c := range e.Changes {
		if reason := destroys(c.Field, info, e.want); reason != "" {
			errs = append(errs, &DriftError{e.Stream, c, reason})
		}
	}
	return e, errors.Join(errs...)
}

// on puts the options over a definition.
func (o Options) on(c jetstream.StreamConfig) jetstream.StreamConfig {
	if o.MaxBytes > 0 {
		var sum, own float64
		rest := o.MaxBytes
		for _, d := range Load() {
			sum += float64(d.Config.MaxBytes)
			rest -= minBytes
			if d.Config.Name == c.Name {
				own = float64(d.Config.MaxBytes)
			}
		}
		c.MaxBytes = minBytes + int64(own/sum*float64(rest))
	}
	if o.Replicas > 0 {
		c.Replicas = o.Replicas
	}
	return c
}

// overlay puts the fields that the file mentions over what the server has, so
// that what the file does not mention stays the operator's.
func overlay(current jetstream.StreamConfig, d Definition) (jetstream.StreamConfig, error) {
	merged := current
	merged.Subjects = nil // else the decoder would write into the slice of current
	if err := json.Unmarshal(d.Raw, &merged); err != nil {
		return merged, fmt.Errorf("%s: %w", d.File, err)
	}
	return merged, nil
}

func changes(from, to jetstream.StreamConfig) ([]Change, error) {
	a, err := fields(from)
	if err != nil {
		return nil, err
	}
	b, err := fields(to)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(a)
	maps.Copy(names, b)
	var out []Change
	for _, f := range slices.Sorted(maps.Keys(names)) {
		if string(a[f]) != string(b[f]) {
			out = append(out, Change{f, shown(a[f]), shown(b[f])})
		}
	}
	return out, nil
}

func fields(c jetstream.StreamConfig) (map[string]json.RawMessage, error) {
	c.Subjects = slices.Sorted(slices.Values(c.Subjects)) // their order means nothing
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	m := map[string]json.RawMessage{}
	return m, json.Unmarshal(raw, &m)
}

func shown(raw json.RawMessage) string {
	if raw == nil {
		return "unset"
	}
	return string(raw)
}

// destroys says why a change of field would lose something, or "" when it would
// not. have is what the server holds now.
func destroys(field string, have *jetstream.StreamInfo, want jetstream.StreamConfig) string {
	cur, st := have.Config, have.State
	empty := st.Msgs == 0
	switch field {
	case "retention", "storage":
		return "the server would have to drop the stream"
	case "discard":
		if want.Discard == jetstream.DiscardOld {
			return "a full stream would drop its oldest messages silently"
		}
	case "subjects":
		if !empty {
			for _, s := range cur.Subjects {
				if !covered(s, want.Subjects) {
					return s + " would no longer be stored, and the stream holds messages"
				}
			}
		}
	case "max_bytes":
		if less(cur.MaxBytes, want.MaxBytes) && st.Bytes > uint64(want.MaxBytes) {
			return fmt.Sprintf("it holds %d bytes", st.Bytes)
		}
	case "max_msgs":
		if less(cur.MaxMsgs, want.MaxMsgs) && st.Msgs > uint64(want.MaxMsgs) {
			return fmt.Sprintf("it holds %d messages", st.Msgs)
		}
	case "max_msgs_per_subject":
		if less(cur.MaxMsgsPerSubject, want.MaxMsgsPerSubject) && !empty {
			return "it holds messages"
		}
	case "max_msg_size":
		if less(int64(cur.MaxMsgSize), int64(want.MaxMsgSize)) && !empty {
			return "messages as large as those it may hold would be refused"
		}
	case "max_age":
		if less(int64(cur.MaxAge), int64(want.MaxAge)) && !empty && have.TimeStamp.Sub(st.FirstTime) > want.MaxAge {
			return "its oldest message is of " + st.FirstTime.UTC().Format(time.RFC3339)
		}
	case "duplicate_window":
		if want.Duplicates < cur.Duplicates && !empty && have.TimeStamp.Sub(st.LastTime) < cur.Duplicates {
			return "ids that publishers may still repeat would be forgotten"
		}
	case "num_replicas":
		if want.Replicas < cur.Replicas && !empty {
			return "it holds messages, which would have fewer copies"
		}
	}
	return ""
}

// less compares limits of which zero and below mean none.
func less(cur, want int64) bool {
	return want > 0 && (cur <= 0 || want < cur)
}

func covered(subject string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return p == subject || Matches(p, subject) })
}
