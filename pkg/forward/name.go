package forward

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// Escape makes a foreign text one safe part of a file name, object key or header
// value: letters, digits, '-', '_' and inner dots stay, every other byte becomes
// %XX, as in a URL. Different texts give different names, and a URL decoder gives
// the text back. More than max bytes are cut and marked with a hash of the
// whole; an empty text is "~". max is at least 20.
func Escape(s string, max int) string {
	if s == "" {
		return "~"
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		part := string(rune(c))
		if !plain(c) && (c != '.' || i == 0 || s[i-1] == '.') {
			part = string([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
		if b.Len()+len(part) > max {
			return cut(b.String(), s, max)
		}
		b.WriteString(part)
	}
	return b.String()
}

// cut makes room for the mark, without halving an escape.
func cut(done, whole string, max int) string {
	sum := sha256.Sum256([]byte(whole))
	keep := min(len(done), max-17)
	if i := strings.LastIndexByte(done[:keep], '%'); i >= 0 && i > keep-3 {
		keep = i
	}
	return done[:keep] + "~" + hex.EncodeToString(sum[:8])
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// IncomingID is the placeholder that every Pattern needs: it alone makes the
// name of a document its own, and the same at each attempt. An SBDH id does not,
// since two senders may use the same one.
const IncomingID = "{incoming-id}"

// maxPart bounds each foreign part of a name, so that the whole stays below the
// 255 bytes of most file systems.
const maxPart = 60

// Pattern is how stored documents are named, without the ending: plain text
// (letters, digits, '-', '_', '.') and the placeholders {datetime} (reception,
// UTC, yyyyMMddHHmmss), {incoming-id}, {sbdh-instance-id} and {tenant}.
type Pattern struct {
	parts []string
}

// ParsePattern reads a pattern. Start and end must not be a dot.
func ParsePattern(s string) (Pattern, error) {
	var p Pattern
	seen := map[string]bool{}
	for rest := s; rest != ""; {
		end := strings.IndexByte(rest, '{')
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			end = strings.IndexByte(rest, '}') + 1
			switch word := rest[:end]; {
			case word == "{datetime}", word == IncomingID, word == "{sbdh-instance-id}", word == "{tenant}":
				if seen[word] {
					return Pattern{}, fmt.Errorf("%s stands twice", word)
				}
				seen[word] = true
			default:
				return Pattern{}, fmt.Errorf("%.32q is no placeholder; there are {datetime}, {incoming-id}, {sbdh-instance-id} and {tenant}", rest)
			}
		}
		for i := range end {
			if c := rest[i]; rest[0] != '{' && !plain(c) && c != '.' {
				return Pattern{}, fmt.Errorf("%q must not be in a file name", c)
			}
		}
		p.parts, rest = append(p.parts, rest[:end]), rest[end:]
	}
	switch {
	case !seen[IncomingID]:
		return Pattern{}, fmt.Errorf("%s is missing: without it two documents could have one name", IncomingID)
	case strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, ".."):
		return Pattern{}, fmt.Errorf("a dot at the start or end, or two of them, would hide the file or leave the folder")
	case len(s) > 100:
		return Pattern{}, fmt.Errorf("is longer than 100 bytes")
	}
	return p, nil
}

// Name is the name of a document, without the ending.
func (p Pattern) Name(d *Document) string {
	var b strings.Builder
	for _, part := range p.parts {
		switch part {
		case "{datetime}":
			b.WriteString(d.ReceivedAt.UTC().Format("20060102150405"))
		case IncomingID:
			b.WriteString(d.ID.String())
		case "{sbdh-instance-id}":
			b.WriteString(Escape(d.SBDHInstanceID, maxPart))
		case "{tenant}":
			b.WriteString(Escape(d.Tenant, maxPart))
		default:
			b.WriteString(part)
		}
	}
	return b.String()
}

// ReceiverFolder is the folder of a receiver: no two receivers share one.
func (d *Document) ReceiverFolder() string { return Escape(d.ReceiverID, 120) }
