package streams

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// The names of our streams.
const (
	Requests   = "POSTHOUSE_REQUESTS"
	Events     = "POSTHOUSE_EVENTS"
	DeadLetter = "POSTHOUSE_DLQ"
	Advisories = "POSTHOUSE_ADVISORIES"
)

//go:embed requests.json events.json dlq.json advisories.json
var files embed.FS

// Definition is one stream as its file says it.
type Definition struct {
	File   string // "events.json"
	Raw    []byte // the bytes of the file: which fields are ours
	Config jetstream.StreamConfig
}

// Load returns every stream, in the order in which they are made. The files are
// part of the binary and a test decodes each, so a fault in one is a panic.
func Load() []Definition {
	var all []Definition
	for _, name := range []string{"requests.json", "events.json", "dlq.json", "advisories.json"} {
		raw, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		cfg, err := Decode(raw)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		all = append(all, Definition{File: name, Raw: raw, Config: cfg})
	}
	return all
}

// Decode reads one stream in the server's JSON form; durations are nanoseconds,
// sizes bytes. An unknown field is an error that names it.
func Decode(raw []byte) (jetstream.StreamConfig, error) {
	var cfg jetstream.StreamConfig
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&cfg); err != nil {
		return cfg, fmt.Errorf("stream definition: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return cfg, fmt.Errorf("stream definition: more than one value")
	}
	if cfg.Name == "" || len(cfg.Subjects) == 0 {
		return cfg, fmt.Errorf("stream definition: name and subjects are needed")
	}
	return cfg, nil
}

// Holds tells whether this stream stores a subject.
func (d Definition) Holds(subject string) bool {
	return covered(subject, d.Config.Subjects)
}

// Matches tells whether a subject falls under a pattern with the wildcards of
// NATS: * is one token, > is one or more at the end.
func Matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case token == ">" && i == len(p)-1:
			return len(s) > i
		case i >= len(s) || s[i] == "":
			return false
		case token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}
