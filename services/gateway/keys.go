package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/posthouse-io/posthouse/streams"
)

// Role is what the holder of a token may do.
type Role string

const (
	Operator  Role = "operator"  // sees everything, and acts on it
	Backend   Role = "backend"   // the receiver backend: sees documents, and tells what became of them
	Reader    Role = "reader"    // sees everything but the documents' content
	Publisher Role = "publisher" // brings documents
)

// Roles lists every role.
func Roles() []Role { return []Role{Operator, Backend, Reader, Publisher} }

// Bounds of what a stranger may present.
const (
	maxToken = 512 // bytes
	maxKeys  = 100
)

// Key is one token that is known, by its hash.
type Key struct {
	Name   string // for the log and the audit
	Roles  []Role
	Tenant string // the only one that it is for; empty is all
	hash   [sha256.Size]byte
}

// Allows tells whether the key has one of the roles.
func (k Key) Allows(roles []Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(k.Roles, r) })
}

// Keys are all tokens that are known. None refuses everything.
type Keys []Key

var keyName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

// ParseKeys reads name:role[,role][@tenant]=sha256 entries between semicolons. The
// error names the entry by its number, and its name where that is one.
func ParseKeys(s string) (Keys, error) {
	var keys Keys
	for i, entry := range strings.Split(s, ";") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		k, err := parseKey(entry)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		for _, other := range keys {
			if other.Name == k.Name || other.hash == k.hash {
				return nil, fmt.Errorf("entry %d (%s): its name or its token is that of an entry before", i+1, k.Name)
			}
		}
		if keys = append(keys, k); len(keys) > maxKeys {
			return nil, fmt.Errorf("there are more than %d entries", maxKeys)
		}
	}
	return keys, nil
}

func parseKey(entry string) (Key, error) {
	head, sum, ok := strings.Cut(entry, "=")
	name, rights, ok2 := strings.Cut(head, ":")
	if !ok || !ok2 || !keyName.MatchString(name) {
		return Key{}, errors.New("it is not name:role[,role][@tenant]=hash")
	}
	k := Key{Name: name}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != len(k.hash) {
		return Key{}, fmt.Errorf("%s: the hash is not the 64 hexadecimal digits of a SHA-256", name)
	}
	k.hash = [sha256.Size]byte(raw)
	if k.hash == sha256.Sum256(nil) {
		return Key{}, fmt.Errorf("%s: the hash is that of an empty token", name)
	}
	words, tenant, restricted := strings.Cut(rights, "@")
	if restricted && !isTenant(tenant) {
		return Key{}, fmt.Errorf("%s: what follows the @ is no tenant", name)
	}
	k.Tenant = tenant
	for word := range strings.SplitSeq(words, ",") {
		r := Role(strings.TrimSpace(word))
		if !slices.Contains(Roles(), r) {
			return Key{}, fmt.Errorf("%s: a role is one of %v", name, Roles())
		}
		k.Roles = append(k.Roles, r)
	}
	return k, nil
}

// Find tells whose token a request carries: one, in X-Token or as a bearer token.
// Every key is compared, and in constant time, so the answer's delay tells nothing.
func (k Keys) Find(h http.Header) (Key, bool) {
	token, ok := presented(h)
	if !ok {
		return Key{}, false
	}
	sum := sha256.Sum256([]byte(token))
	at := -1
	for i := range k {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(k[i].hash[:], sum[:]), i, at)
	}
	if at < 0 {
		return Key{}, false
	}
	return k[at], true
}

// presented is the one token of a request. Two are none, lest a proxy and we look at
// different ones.
func presented(h http.Header) (string, bool) {
	tokens := slices.Clone(h.Values("X-Token"))
	for _, v := range h.Values("Authorization") {
		scheme, token, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		tokens = append(tokens, strings.TrimSpace(token))
	}
	if len(tokens) != 1 || tokens[0] == "" || len(tokens[0]) > maxToken {
		return "", false
	}
	return tokens[0], true
}

// isTenant tells whether the bus would take a document for it.
func isTenant(s string) bool {
	parsed, err := streams.ParseInbound(streams.Inbound(s))
	return err == nil && parsed == s && s != "" && s != streams.None
}
