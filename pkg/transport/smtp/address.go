package smtp

import (
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// mailbox is an address that passed the check, ready for the wire.
type mailbox struct {
	addr string // local@domain as RFC 5321 spells it: local part quoted where needed, domain in ASCII
	utf8 bool   // the local part is not ASCII: only a server with SMTPUTF8 (RFC 6531) can take it
}

// parseMailbox accepts exactly one bare address: no display name, no comment, no
// list. An international domain becomes its ASCII form (IDNA 2008); a domain
// literal is refused, since a relay has no use for it.
func parseMailbox(s string) (mailbox, error) {
	if s == "" {
		return mailbox{}, errors.New("the address is empty")
	}
	if len(s) > 320 || !utf8.ValidString(s) || hasControl(s) {
		return mailbox{}, errors.New("the address is too long or contains control characters")
	}
	a, err := mail.ParseAddress(s)
	if err != nil {
		return mailbox{}, fmt.Errorf("%.128q is no mail address", s)
	}
	at := strings.LastIndexByte(a.Address, '@')
	local, domain := a.Address[:at], a.Address[at+1:]
	// What the parser leaves out (a name, angle brackets, a comment, blanks) was
	// not meant to be here.
	if quoted := quoteLocal(local) + "@" + domain; a.Name != "" || s != a.Address && s != quoted {
		return mailbox{}, fmt.Errorf("%.128q is not one bare mail address", s)
	}
	if hasControl(local) || strings.ContainsRune(local, utf8.RuneError) {
		return mailbox{}, fmt.Errorf("%.128q has control characters in its local part", s)
	}
	ascii, err := asciiDomain(domain)
	if err != nil {
		return mailbox{}, fmt.Errorf("%.128q: %w", s, err)
	}
	if len(local) > 64 || len(local)+1+len(ascii) > 254 {
		return mailbox{}, fmt.Errorf("%.128q is longer than RFC 5321 allows", s)
	}
	return mailbox{addr: quoteLocal(local) + "@" + ascii, utf8: !isASCII(local)}, nil
}

func asciiDomain(domain string) (string, error) {
	if strings.HasPrefix(domain, "[") {
		return "", errors.New("a domain literal is not accepted")
	}
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil || ascii == "" || len(ascii) > 253 {
		return "", errors.New("the domain is not valid")
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return "", errors.New("the domain is not valid")
		}
		for _, r := range label {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
				return "", errors.New("the domain is not valid")
			}
		}
	}
	return ascii, nil
}

// quoteLocal spells a local part the way net/mail does for a header.
func quoteLocal(local string) string {
	s := (&mail.Address{Address: local + "@x"}).String() // <local@x>
	return strings.TrimSuffix(strings.TrimPrefix(s, "<"), "@x>")
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}
