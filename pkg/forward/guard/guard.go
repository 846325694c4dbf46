// Package guard keeps outgoing connections away from addresses that a public
// endpoint never has: loopback, private and link-local networks, the metadata
// service of a cloud, and whatever else is reserved.
//
// It decides on the address that is dialled, after the name was resolved, so a
// name that points inside is refused as well, at each dial anew. It assumes that
// no proxy stands in between. It fails with ErrAddress and owns no goroutine.
package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// ErrAddress is the refusal of an address.
var ErrAddress = errors.New("this address is not allowed")

// Policy says which addresses may be dialled.
type Policy int

const (
	Public  Policy = iota // public ones only
	Any                   // every unicast address
	Private               // private ones only: for what must not leave the house in plain text
)

// Dialer is a dialer that keeps the policy. timeout bounds one dial.
func Dialer(p Policy, timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:   timeout,
		KeepAlive: 30 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %q is no address", ErrAddress, address)
			}
			return p.Check(a.Addr())
		},
	}
}

// Check refuses an address that the policy does not allow.
func (p Policy) Check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	inside := a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%w: %s is not the address of one host", ErrAddress, a)
	case p == Private && !inside:
		return fmt.Errorf("%w: %s is public, and the connection would be in plain text", ErrAddress, a)
	case p == Public && (inside || reserved(a)):
		return fmt.Errorf("%w: %s is not a public address", ErrAddress, a)
	}
	return nil
}

// reserved names the networks of the IANA special-purpose registries that the
// standard library does not know as private. Those that wrap an IPv4 address
// (NAT64, 6to4, Teredo) are here since they could wrap a private one.
func reserved(a netip.Addr) bool {
	for _, n := range [...]string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		if netip.MustParsePrefix(n).Contains(a) {
			return true
		}
	}
	return false
}
