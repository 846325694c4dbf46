package daemon

import (
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

const (
	fileSuffix      = "_FILE"
	secretFileLimit = 64 << 10 // bytes
)

// Load reads a configuration from an environment (lines "NAME=value", as
// os.Environ gives them) by the tags that Variable describes. known are names
// that are settings of somebody else and so no misspellings (see Names).
//
// It returns every fault at once as Faults; warnings are lines to log. Structs
// at any depth may add their own: Faults() []string or Validate() error,
// called when all fields are filled, and Warnings() []string. Such a line names
// its variable; it is dropped when that variable has a fault already.
func Load[T any](environ []string, known []string) (T, []string, error) {
	var cfg T
	root := reflect.ValueOf(&cfg).Elem()
	if root.Kind() != reflect.Struct {
		return cfg, nil, Faults{"program: " + root.Type().String() + " is no struct"}
	}
	l := loader{environ: env.ToMap(environ), faulty: map[string]bool{}}
	list, wrong := settingsOf(root, "")
	l.faults = wrong
	for i := range list {
		l.fill(&list[i])
	}
	l.ask(root)
	l.faults = append(l.faults, misspelt(l.environ, Names(cfg), known)...)
	if len(l.faults) > 0 {
		return cfg, l.warnings, l.faults
	}
	return cfg, l.warnings, nil
}

type loader struct {
	environ  map[string]string
	faults   Faults
	warnings []string
	faulty   map[string]bool // variables with a fault
	secrets  []string        // values that no line may show
}

func (l *loader) fault(s *setting, format string, args ...any) {
	l.faulty[s.Name] = true
	l.faults.add(s.Name+": "+format, args...)
}

// fill sets one field. The library parses one field at a time, so that each of
// its errors has a known variable: its own name only the Go field, and quote
// the value.
func (l *loader) fill(s *setting) {
	value := l.environ[s.Name]
	if s.Secret {
		value = l.secret(s, value)
	}
	if s.value.Kind() == reflect.Slice || s.value.Kind() == reflect.Map {
		value = tidyList(value, s.separator())
	}
	if _, set := l.environ[s.Name]; set && value == "" && s.keepEmpty {
		return
	}
	if l.faulty[s.Name] {
		return
	}
	err := s.parse(value)
	if err == nil {
		if value == "" {
			value = s.Default
		}
		l.check(s, value)
		return
	}
	l.explain(s, value, err)
	_ = s.parse("") // the default, so that cross-checks do not stumble over a zero
}

func (l *loader) explain(s *setting, value string, err error) {
	var parse env.ParseError
	var empty env.EmptyVarError
	switch {
	case errors.As(err, &parse) && value == "":
		l.fault(s, "the default %q of field %s is not %s", s.Default, s.owner, s.wanted())
	case errors.As(err, &parse):
		l.fault(s, "%s is not valid; it must be %s", shown(value, s.Secret), s.wanted())
	case errors.As(err, &empty):
		hint := ""
		if s.Secret {
			hint = " (or name a file that holds it in " + s.Name + fileSuffix + ")"
		}
		l.fault(s, "not set or empty; it must be %s%s", s.wanted(), hint)
	default:
		l.fault(s, "field %s has a type that cannot be read from a variable", s.owner)
	}
}

// parse fills the field from one value, or from its default when that is empty.
func (s *setting) parse(value string) error {
	one := s.def
	one.Anonymous, one.Offset, one.Index = false, 0, nil
	box := reflect.New(reflect.StructOf([]reflect.StructField{one}))
	err := env.ParseWithOptions(box.Interface(), env.Options{
		Environment: map[string]string{s.Name: value},
		Prefix:      s.prefix,
	})
	if err == nil {
		s.value.Set(box.Elem().Field(0))
	}
	return err
}

// secret is the value of a secret variable: its own, or what its file holds.
func (l *loader) secret(s *setting, value string) string {
	path := l.environ[s.Name+fileSuffix]
	switch {
	case path == "":
	case value != "":
		l.fault(s, "set twice, here and by %s; set one of the two", s.Name+fileSuffix)
	default:
		var err error
		if value, err = readSecret(path); err != nil {
			l.fault(s, "%s names the file %q, which cannot be used: %v", s.Name+fileSuffix, path, err)
		}
	}
	l.secrets = append(l.secrets, value)
	return value
}

// readSecret reads a small file and drops the line break that editors and
// "echo" leave at its end.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", errors.Unwrap(err) // the reason alone: the line has the path
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, secretFileLimit+1))
	if err != nil {
		return "", errors.Unwrap(err)
	}
	if len(text) > secretFileLimit {
		return "", errors.New("it is larger than 64 KiB")
	}
	value := strings.TrimRight(string(text), "\r\n")
	if value == "" {
		return "", errors.New("it is empty")
	}
	return value, nil
}

func tidyList(value, separator string) string {
	items := strings.Split(value, separator)
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return strings.Join(slices.DeleteFunc(items, func(s string) bool { return s == "" }), separator)
}

// check holds a parsed value against the words and bounds of its tags.
func (l *loader) check(s *setting, value string) {
	if words := s.def.Tag.Get("oneof"); words != "" {
		items := []string{value}
		if s.value.Kind() == reflect.Slice {
			items = strings.Split(value, s.separator())
		}
		for _, item := range items {
			if item != "" && !slices.Contains(strings.Split(words, "|"), item) {
				l.fault(s, "%s is not valid; it must be %s", shown(item, s.Secret), s.wanted())
			}
		}
	}
	low, high := s.def.Tag.Get("min"), s.def.Tag.Get("max")
	set := s.value
	if set.Kind() == reflect.Pointer {
		if set.IsNil() {
			return
		}
		set = set.Elem()
	}
	if low != "" && compare(set, low) < 0 {
		l.fault(s, "%s is too small; it must be %s", shown(value, s.Secret), s.wanted())
	}
	if high != "" && compare(set, high) > 0 {
		l.fault(s, "%s is too large; it must be %s", shown(value, s.Secret), s.wanted())
	}
}

// compare orders a number or a duration against a bound in a tag. A bound that
// cannot be read is a fault of the program and fails every value.
func compare(v reflect.Value, bound string) int {
	var have, want float64
	var err error
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(bound)
		have, want = float64(v.Int()), float64(d)
	case v.CanInt():
		have = float64(v.Int())
		want, err = strconv.ParseFloat(bound, 64)
	case v.CanUint():
		have = float64(v.Uint())
		want, err = strconv.ParseFloat(bound, 64)
	case v.CanFloat():
		have = v.Float()
		want, err = strconv.ParseFloat(bound, 64)
	default:
		err = errors.ErrUnsupported
	}
	switch {
	case err != nil:
		panic("daemon: bound " + strconv.Quote(bound) + " of a field of type " + v.Type().String())
	case have < want:
		return -1
	case have > want:
		return 1
	}
	return 0
}

// ask calls the hooks of a struct and of every struct in it, inner ones first.
func (l *loader) ask(v reflect.Value) {
	for i := range v.NumField() {
		def := v.Type().Field(i)
		if _, tagged := def.Tag.Lookup("env"); def.IsExported() && !tagged && nests(def.Type) {
			l.ask(v.Field(i))
		}
	}
	hooks := v.Addr().Interface()
	if h, ok := hooks.(interface{ Faults() []string }); ok {
		for _, line := range h.Faults() {
			l.hear(line)
		}
	}
	if h, ok := hooks.(interface{ Validate() error }); ok {
		for _, line := range lines(h.Validate()) {
			l.hear(line)
		}
	}
	if h, ok := hooks.(interface{ Warnings() []string }); ok {
		for _, line := range h.Warnings() {
			if line = l.scrub(line); !slices.Contains(l.warnings, line) {
				l.warnings = append(l.warnings, line)
			}
		}
	}
}

func (l *loader) hear(line string) {
	for name := range l.faulty {
		if mentions(line, name) {
			return // a consequence of what is told already
		}
	}
	l.faults.add("%s", l.scrub(line))
}

// scrub is the last defence: a hook that quotes a secret does not show it.
func (l *loader) scrub(line string) string {
	for _, secret := range l.secrets {
		if len(secret) >= 4 {
			line = strings.ReplaceAll(line, secret, redacted)
		}
	}
	return line
}

// lines takes joined errors apart.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, lines(e)...)
		}
		return all
	}
	return []string{err.Error()}
}

// sortedNames lists the variables of an environment in a stable order.
func sortedNames(environ map[string]string) []string {
	return slices.Sorted(maps.Keys(environ))
}
