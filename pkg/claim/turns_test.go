package claim

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func plenty(int32) int { return 1 << 20 }

func grp(lane int32, tenant string, class int16) Group {
	return Group{Lane: lane, Tenant: tenant, Class: class}
}

// deal asks for slots one at a time and tells who got them, with every group
// always having more.
func deal(t *Turns, slots int, now time.Time) []Group {
	var order []Group
	for range slots {
		for _, turn := range t.Next(1, plenty, now) {
			order = append(order, turn.Group)
			t.Served(turn, turn.N, now)
		}
	}
	return order
}

func TestTurnsTable(t *testing.T) {
	t.Parallel()
	a0, a1, a2 := grp(1, "a", 0), grp(1, "a", 1), grp(1, "a", 2)
	b1, c1, d1 := grp(1, "b", 1), grp(2, "c", 1), grp(3, "d", 1)
	for _, c := range []struct {
		name  string
		known []Group
		want  []Group
	}{
		{"nothing", nil, nil},
		{"one group takes all", []Group{a1}, []Group{a1, a1, a1}},
		{"tenants in rotation", []Group{a1, b1}, []Group{a1, b1, a1, b1}},
		{"lanes in rotation", []Group{a1, c1, d1}, []Group{a1, c1, d1, a1, c1, d1}},
		{"a lane's turn is one tenant's", []Group{a1, b1, c1}, []Group{a1, c1, b1, c1, a1, c1}},
		{"lower class first", []Group{a1, a0}, []Group{a0, a0, a0}},
		{"bulk one time in ten", []Group{a2, a1}, []Group{a1, a1, a1, a1, a1, a1, a1, a1, a1, a2, a1, a1, a1, a1, a1, a1, a1, a1, a1, a2}},
		{"bulk alone", []Group{a2}, []Group{a2, a2}},
		{"no class at all", []Group{grp(1, "a", 3), grp(1, "a", -1)}, nil},
	} {
		turns := NewTurns(64)
		for _, g := range c.known {
			turns.Announce(g)
		}
		if got := deal(turns, len(c.want), time.Now()); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTurnsRoomAndBounds(t *testing.T) {
	t.Parallel()
	turns := NewTurns(3)
	for i := range 10 {
		turns.Announce(grp(int32(i%2), fmt.Sprint(i), 1))
	}
	room := map[int32]int{0: 4, 1: 100}
	lanes := map[int32]int{}
	got := turns.Next(50, func(lane int32) int { return room[lane] }, time.Now())
	for _, turn := range got {
		lanes[turn.Lane] += turn.N
	}
	if len(got) != 3 || lanes[0] > 4 || lanes[0]+lanes[1] > 50 || lanes[0]+lanes[1] < 40 {
		t.Fatalf("%+v", got)
	}
	if got := turns.Next(5, func(int32) int { return 0 }, time.Now()); len(got) != 0 {
		t.Fatalf("no lane has room: %+v", got)
	}
	if got := turns.Next(0, plenty, time.Now()); len(got) != 0 {
		t.Fatalf("no slot is free: %+v", got)
	}
}

func TestTurnsMark(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	turns := NewTurns(64)
	turns.Announce(grp(1, "a", 1))
	first := turns.Next(2, plenty, now)[0]
	if !first.Mark.IsZero() || first.N != 2 {
		t.Fatalf("%+v", first)
	}
	newest := now.Add(-time.Minute)
	turns.Served(first, 2, newest)
	second := turns.Next(2, plenty, now.Add(rescan/2))[0]
	if second.Mark != newest.Add(-slack) {
		t.Fatalf("mark %s", second.Mark)
	}
	turns.Served(second, 2, newest)
	if third := turns.Next(2, plenty, now.Add(rescan))[0]; !third.Mark.IsZero() {
		t.Fatalf("not read from the start after %s: %s", rescan, third.Mark)
	}
}

// What is announced while a claim is under way is not forgotten when that claim
// comes back short.
func TestAnnounceDuringAClaim(t *testing.T) {
	t.Parallel()
	g := grp(1, "a", 1)
	turns := NewTurns(64)
	turns.Announce(g)
	turn := turns.Next(5, plenty, time.Now())[0]
	turns.Announce(g)
	turns.Served(turn, 0, time.Time{})
	if turns.Empty() {
		t.Fatal("forgotten")
	}
	turn = turns.Next(5, plenty, time.Now())[0]
	turns.Served(turn, 4, time.Now())
	if !turns.Empty() {
		t.Fatal("a group that came back short is still known")
	}
	turns.Served(turn, 0, time.Time{}) // of a group that has gone
}

// hall is a random hall of waiting people, for the properties.
func hall(r *rapid.T) (*Turns, []Group) {
	turns := NewTurns(10_000)
	seen := map[Group]bool{}
	var groups []Group
	for range rapid.IntRange(1, 30).Draw(r, "groups") {
		g := grp(int32(rapid.IntRange(1, 4).Draw(r, "lane")), fmt.Sprint("t", rapid.IntRange(1, 5).Draw(r, "tenant")), int16(rapid.IntRange(0, 2).Draw(r, "class")))
		turns.Announce(g)
		if !seen[g] {
			seen[g] = true
			groups = append(groups, g)
		}
	}
	return turns, groups
}

// Who always has work waiting gets as many turns as the others, whatever the
// number of free slots: lanes alike, tenants of a lane alike, bulk its tenth.
func TestTurnsAreFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		turns, groups := hall(r)
		lanes, tenants, slots, bulks := map[int32]int{}, map[string]int{}, map[string]int{}, map[string]int{}
		both := map[string]int{} // 1: has bulk, 2: has other
		for _, g := range groups {
			lanes[g.Lane], tenants[fmt.Sprint(g.Lane, g.Tenant)] = 0, 0
			if g.Class == bulk {
				both[fmt.Sprint(g.Lane, g.Tenant)] |= 1
			} else {
				both[fmt.Sprint(g.Lane, g.Tenant)] |= 2
			}
		}
		for range rapid.IntRange(1, 60).Draw(r, "claims") {
			free := rapid.IntRange(1, 20).Draw(r, "free")
			sum := 0
			for _, turn := range turns.Next(free, plenty, time.Now()) {
				key := fmt.Sprint(turn.Lane, turn.Tenant)
				sum += turn.N
				lanes[turn.Lane] += turn.N
				tenants[key] += turn.N
				slots[key] += turn.N
				if turn.Class == bulk {
					bulks[key] += turn.N
				}
				turns.Served(turn, turn.N, time.Now())
			}
			if sum != free {
				r.Fatalf("%d slots were handed out of %d", sum, free)
			}
			within(r, "lanes", lanes)
			for lane := range lanes {
				of := map[string]int{}
				for key, n := range tenants {
					if key[:1] == fmt.Sprint(lane) {
						of[key] = n
					}
				}
				within(r, "tenants", of)
			}
		}
		for key, n := range slots {
			if both[key] == 3 && (bulks[key] < n/bulkShare || bulks[key] > n/bulkShare+1) {
				r.Fatalf("bulk got %d of %d slots of %s", bulks[key], n, key)
			}
		}
	})
}

func within[K comparable](r *rapid.T, what string, counts map[K]int) {
	least, most := 1<<30, 0
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	if most-least > 1 {
		r.Fatalf("%s: %v", what, counts)
	}
}

// No lane gets more than its room, no claim more than its slots, no group two turns.
func TestTurnsKeepTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		turns, groups := hall(r)
		turns.maxTurns = rapid.IntRange(1, 12).Draw(r, "most turns")
		for range rapid.IntRange(1, 40).Draw(r, "claims") {
			free := rapid.IntRange(-2, 20).Draw(r, "free")
			room := map[int32]int{}
			for lane := range int32(5) {
				room[lane] = rapid.IntRange(-3, 8).Draw(r, "room")
			}
			seen, sum, lanes := map[Group]bool{}, 0, map[int32]int{}
			given := turns.Next(free, func(lane int32) int { return room[lane] }, time.Now())
			for _, turn := range given {
				if seen[turn.Group] || turn.N < 1 {
					r.Fatalf("%+v", given)
				}
				seen[turn.Group] = true
				sum += turn.N
				lanes[turn.Lane] += turn.N
			}
			for lane, n := range lanes {
				if n > room[lane] {
					r.Fatalf("lane %d has room for %d, got %d", lane, room[lane], n)
				}
			}
			if sum > max(free, 0) || len(given) > turns.maxTurns {
				r.Fatalf("%d slots in %d turns, free %d", sum, len(given), free)
			}
			for _, turn := range given {
				if rapid.Bool().Draw(r, "announced meanwhile") {
					turns.Announce(turn.Group)
				}
				turns.Served(turn, rapid.IntRange(0, turn.N).Draw(r, "got"), time.Now())
			}
			if rapid.IntRange(0, 3).Draw(r, "again") == 0 {
				turns.Announce(rapid.SampledFrom(groups).Draw(r, "group"))
			}
		}
	})
}

// A tenant with a hundred thousand rows delays another by one turn at most.
func TestALargeTenantDelaysNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		turns := NewTurns(64)
		large := grp(1, "large", int16(rapid.IntRange(0, 2).Draw(r, "its class")))
		turns.Announce(large)
		left := 100_000
		for range rapid.IntRange(0, 50).Draw(r, "claims before") {
			for _, turn := range turns.Next(rapid.IntRange(1, 100).Draw(r, "free"), plenty, time.Now()) {
				left -= turn.N
				turns.Served(turn, turn.N, time.Now())
			}
		}
		small := grp(1, "small", int16(rapid.IntRange(0, 2).Draw(r, "class")))
		turns.Announce(small)
		got := deal(turns, 2, time.Now())
		if got[0] != small && got[1] != small {
			r.Fatalf("turns went to %v", got)
		}
	})
}
