package guard_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/forward/guard"
)

func TestPolicies(t *testing.T) {
	t.Parallel()
	allowed := func(p guard.Policy, a string) bool {
		err := p.Check(netip.MustParseAddr(a))
		if err != nil && !errors.Is(err, guard.ErrAddress) {
			t.Errorf("%s: %v", a, err)
		}
		return err == nil
	}
	for _, c := range []struct {
		address              string
		public, any, private bool
	}{
		{"1.1.1.1", true, true, false}, {"2606:4700::1111", true, true, false}, {"2001:4860:4860::8888", true, true, false},
		{"127.0.0.1", false, true, true}, {"127.9.9.9", false, true, true}, {"::1", false, true, true}, {"::ffff:127.0.0.1", false, true, true},
		{"10.0.0.1", false, true, true}, {"172.16.0.1", false, true, true}, {"172.32.0.1", true, true, false}, {"192.168.1.1", false, true, true}, {"fd00::1", false, true, true},
		{"::ffff:10.0.0.1", false, true, true}, {"169.254.169.254", false, true, true}, {"fe80::1%eth0", false, true, true},
		{"100.64.0.1", false, true, false}, {"0.0.0.1", false, true, false}, {"198.18.0.1", false, true, false}, {"192.0.2.1", false, true, false}, {"240.0.0.1", false, true, false},
		{"64:ff9b::a00:1", false, true, false}, {"2002:a00:1::", false, true, false}, {"2001::1", false, true, false}, {"::7f00:1", false, true, false}, {"fec0::1", false, true, false},
		{"0.0.0.0", false, false, false}, {"::", false, false, false}, {"224.0.0.1", false, false, false}, {"ff02::1", false, false, false}, {"255.255.255.255", false, false, false}, {"::ffff:0.0.0.0", false, false, false},
	} {
		if got := [3]bool{allowed(guard.Public, c.address), allowed(guard.Any, c.address), allowed(guard.Private, c.address)}; got != [3]bool{c.public, c.any, c.private} {
			t.Errorf("%s: public, any, private %v", c.address, got)
		}
	}
}

// The address is looked at after the name was resolved.
func TestDialer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	named := strings.Replace(l.Addr().String(), "127.0.0.1", "localhost", 1)
	for _, to := range []string{named, l.Addr().String()} {
		if c, err := guard.Dialer(guard.Public, time.Second).DialContext(t.Context(), "tcp", to); !errors.Is(err, guard.ErrAddress) {
			t.Errorf("%s: %v %v", to, c, err)
		}
		c, err := guard.Dialer(guard.Private, time.Second).DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		_ = c.Close()
	}
}
