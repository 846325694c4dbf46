package daemon

import (
	"fmt"
	"io"
)

const redacted = "[redacted]"

// Secret is a text that no formatting verb, JSON encoder or logger shows; only
// Reveal does. The zero value is the empty secret.
//
// It points to its text because a string could not keep it: fmt prints a string
// raw, past all methods, for %p, for %w, and in an unexported field.
type Secret struct{ text *string }

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text. The result belongs in the call that needs it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// UnmarshalText takes the text from a configuration.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format answers every verb that asks.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }
