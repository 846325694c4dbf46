package daemon

import (
	"encoding"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Variable describes one setting; it comes from the tags of a struct field:
//
//	env:"NAME" or env:"NAME,notEmpty"   the variable; must not be empty
//	envDefault:"30s"                    the value when it is unset or empty
//	empty:"off"                         an empty value is kept (it means "off"); without this tag it becomes the default
//	doc:"..."                           one sentence for the table
//	secret:"true"                       or a field of type Secret: never shown, NAME_FILE reads it from a file
//	min:"1" max:"1000"                  bounds of a number or duration, inclusive
//	oneof:"json|console"                the words that are allowed
//	like:"host:port"                    an example for the fault line
//	envSeparator:","                    between the items of a list; items are trimmed, empty ones dropped
//
// A nested struct is walked with its envPrefix. An exported field of another
// kind without an env tag is a fault of the program, unless it says env:"-".
type Variable struct {
	Name     string
	Type     string // for people: "duration", "one of json, console"
	Default  string
	Doc      string
	Secret   bool
	Required bool
}

// setting is a Variable with the field that it fills.
type setting struct {
	Variable
	owner     string // struct and field, for faults of the program
	def       reflect.StructField
	value     reflect.Value
	prefix    string
	keepEmpty bool
}

// settingsOf walks a struct value in field order. Faults of the program (tags
// that would be ignored in silence) are returned as lines.
func settingsOf(v reflect.Value, prefix string) (list []setting, faults Faults) {
	for i := range v.NumField() {
		def, value := v.Type().Field(i), v.Field(i)
		tag, tagged := def.Tag.Lookup("env")
		name, options, _ := strings.Cut(tag, ",")
		owner := v.Type().String() + "." + def.Name
		switch {
		case !def.IsExported() || name == "-":
		case !tagged && nests(def.Type):
			inner, wrong := settingsOf(value, prefix+def.Tag.Get("envPrefix"))
			list, faults = append(list, inner...), append(faults, wrong...)
		case name == "":
			faults.add(`field %s has no name in an env tag; write env:"-" if it is no setting`, owner)
		case options != "" && options != "notEmpty":
			faults.add("%s: field %s has the option %q; only notEmpty is safe to use", prefix+name, owner, options)
		default:
			list = append(list, describe(def, value, prefix, name, owner, options == "notEmpty"))
		}
	}
	return list, faults
}

// nests tells a struct of settings from a struct that is a value.
func nests(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !readsText(t) && t != reflect.TypeFor[url.URL]()
}

func readsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func describe(def reflect.StructField, value reflect.Value, prefix, name, owner string, required bool) setting {
	_, keepEmpty := def.Tag.Lookup("empty")
	s := setting{
		Variable: Variable{
			Name:     prefix + name,
			Default:  def.Tag.Get("envDefault"),
			Doc:      def.Tag.Get("doc"),
			Required: required,
			Secret:   def.Tag.Get("secret") == "true" || holdsSecret(def.Type),
		},
		owner: owner, def: def, value: value, prefix: prefix, keepEmpty: keepEmpty,
	}
	s.Type = typeName(def.Type)
	if words := def.Tag.Get("oneof"); words != "" {
		s.Type = "one of " + strings.ReplaceAll(words, "|", ", ")
	}
	s.Type += bounds(def)
	return s
}

func bounds(def reflect.StructField) string {
	low, high := def.Tag.Get("min"), def.Tag.Get("max")
	switch {
	case low != "" && high != "":
		return ", " + low + " to " + high
	case low != "":
		return ", at least " + low
	case high != "":
		return ", at most " + high
	}
	return ""
}

func holdsSecret(t reflect.Type) bool {
	if k := t.Kind(); k == reflect.Slice || k == reflect.Pointer || k == reflect.Map {
		t = t.Elem()
	}
	return t == reflect.TypeFor[Secret]()
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[url.URL](), t == reflect.TypeFor[*url.URL]():
		return "URL"
	case t == reflect.TypeFor[Secret]():
		return "text"
	case readsText(t):
		return strings.ToLower(t.Name())
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "whole number"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "list of name:" + typeName(t.Elem())
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return "text"
}

// wanted says in a fault line what a variable should be.
func (s *setting) wanted() string {
	text, like := s.Type, s.def.Tag.Get("like")
	switch {
	case s.def.Tag.Get("oneof") != "" || strings.HasPrefix(text, "true or"):
	case strings.HasPrefix(text, "duration"):
		text, like = "a "+text, firstOf(like, "30s, 5m or 1h")
	case strings.HasPrefix(text, "whole number"), strings.HasPrefix(text, "number"):
		text = "a " + text
	case strings.HasPrefix(text, "list"):
		text = "a " + text + ", separated by " + fmt.Sprintf("%q", s.separator())
	case text == "URL":
		text = "a URL"
	}
	if like != "" {
		text += ", such as " + like
	}
	return text
}

func (s *setting) separator() string { return firstOf(s.def.Tag.Get("envSeparator"), ",") }

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// Describe lists the settings of a configuration (a struct or a pointer to
// one), in the order of its fields, each name once.
func Describe(cfg any) []Variable {
	v := reflect.ValueOf(cfg)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	list, _ := settingsOf(v, "")
	var all []Variable
	for _, s := range list {
		if !slices.ContainsFunc(all, func(v Variable) bool { return v.Name == s.Name }) {
			all = append(all, s.Variable)
		}
	}
	return all
}

// Names lists every variable that a configuration reads, the NAME_FILE form of
// its secrets included. It is what another service passes to Load as known.
func Names(cfg any) []string {
	var names []string
	for _, v := range Describe(cfg) {
		names = append(names, v.Name)
		if v.Secret {
			names = append(names, v.Name+fileSuffix)
		}
	}
	return names
}

// Table prints variables as a Markdown table.
func Table(w io.Writer, variables []Variable) error {
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	code := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + cell.Replace(s) + "`"
	}
	var b strings.Builder
	b.WriteString("| variable | type | default | meaning |\n|---|---|---|---|\n")
	for _, v := range variables {
		name, value := code(v.Name), code(v.Default)
		if v.Secret {
			name += ", " + code(v.Name+fileSuffix)
		}
		if v.Required && value == "" {
			value = "required"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, cell.Replace(v.Type), value, cell.Replace(v.Doc))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
