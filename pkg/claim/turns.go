package claim

import "time"

const (
	// rescan is how often a group is read from its very start: a row that
	// committed late lies below the mark and waits at most that long.
	rescan = time.Second
	// slack is kept below the newest due time seen, for commits in flight.
	slack = 250 * time.Millisecond
	// bulk is the class that is served last, and one time in bulkShare first.
	bulk      = 2
	bulkShare = 10
)

// Turns knows which groups have ready work and hands out slots: lanes in
// rotation, tenants of a lane in rotation, classes of a tenant by priority with
// bulk getting at least every tenth slot. It is pure and not safe for
// concurrent use.
type Turns struct {
	lanes    ring[int32, *laneTurn]
	maxTurns int
}

type laneTurn struct {
	tenants ring[string, *tenantTurn]
}

type tenantTurn struct {
	classes [3]*classTurn // nil: no ready work known
	since   int           // slots since bulk was served
}

type classTurn struct {
	mark   time.Time // zero: read from the start
	fullAt time.Time // when it was last read from the start
	seen   uint64
}

// NewTurns bounds how many groups one claim may name.
func NewTurns(maxTurns int) *Turns { return &Turns{maxTurns: maxTurns} }

// Announce notes that the group has ready work. What names no class is ignored:
// announcements also come from outside the process.
func (t *Turns) Announce(g Group) {
	if g.Class < 0 || g.Class > bulk {
		return
	}
	lane := t.lanes.get(g.Lane, func() *laneTurn { return &laneTurn{} })
	tenant := lane.tenants.get(g.Tenant, func() *tenantTurn { return &tenantTurn{} })
	c := tenant.classes[g.Class]
	if c == nil {
		c = &classTurn{}
		tenant.classes[g.Class] = c
	}
	c.seen++
}

// Empty tells whether no group with ready work is known.
func (t *Turns) Empty() bool { return t.lanes.len() == 0 }

// Knows tells whether a lane is known to have ready work.
func (t *Turns) Knows(lane int32) bool {
	_, ok := t.lanes.find(lane)
	return ok
}

// Next hands out at most free slots. room tells how many more rows a lane may
// have in flight.
func (t *Turns) Next(free int, room func(lane int32) int, now time.Time) []Turn {
	var turns []Turn
	at := make(map[Group]int)
	left := make(map[int32]int)
	give := func(g Group, c *classTurn) {
		i, ok := at[g]
		if !ok {
			i = len(turns)
			at[g] = i
			turn := Turn{Group: g, Mark: c.mark, seen: c.seen}
			if now.Sub(c.fullAt) >= rescan {
				turn.Mark, c.fullAt = time.Time{}, now
			}
			turns = append(turns, turn)
		}
		turns[i].N++
		left[g.Lane]--
	}
	for idle := 0; free > 0 && idle < t.lanes.len() && len(turns) < t.maxTurns; {
		id, lane := t.lanes.next()
		if _, ok := left[id]; !ok {
			left[id] = room(id)
		}
		if left[id] <= 0 {
			idle++
			continue
		}
		idle = 0
		name, tenant := lane.tenants.next()
		class := tenant.pick()
		give(Group{id, name, class}, tenant.classes[class])
		free--
	}
	// The claim names as many groups as it may: what is left goes to those.
	for progress := true; free > 0 && progress && len(turns) == t.maxTurns; {
		progress = false
		for i := 0; i < len(turns) && free > 0; i++ {
			if left[turns[i].Lane] > 0 {
				turns[i].N++
				left[turns[i].Lane]--
				free--
				progress = true
			}
		}
	}
	return turns
}

// Served tells what a turn brought: the number of rows and the newest due time
// among them. A turn that was not filled takes its group out until it is
// announced again.
func (t *Turns) Served(turn Turn, got int, newest time.Time) {
	lane, ok := t.lanes.find(turn.Lane)
	if !ok {
		return
	}
	tenant, ok := lane.tenants.find(turn.Tenant)
	if !ok || tenant.classes[turn.Class] == nil {
		return
	}
	c := tenant.classes[turn.Class]
	if !newest.IsZero() {
		c.mark = newest.Add(-slack)
	}
	if got >= turn.N || c.seen != turn.seen {
		return
	}
	tenant.classes[turn.Class] = nil
	if tenant.classes == [3]*classTurn{} {
		lane.tenants.remove(turn.Tenant)
	}
	if lane.tenants.len() == 0 {
		t.lanes.remove(turn.Lane)
	}
}

// pick chooses the class that the tenant's next slot goes to.
func (t *tenantTurn) pick() int16 {
	if t.classes[bulk] != nil {
		if t.since++; t.since >= bulkShare {
			t.since = 0
			return bulk
		}
	}
	for class, c := range t.classes {
		if c != nil {
			if class == bulk {
				t.since = 0
			}
			return int16(class)
		}
	}
	return bulk // not reached: a tenant without a class is removed
}

// ring is a set whose members take turns.
type ring[K comparable, V any] struct {
	keys []K
	at   map[K]V
	pos  int
}

func (r *ring[K, V]) len() int { return len(r.keys) }

func (r *ring[K, V]) find(k K) (V, bool) {
	v, ok := r.at[k]
	return v, ok
}

func (r *ring[K, V]) get(k K, fresh func() V) V {
	if v, ok := r.at[k]; ok {
		return v
	}
	if r.at == nil {
		r.at = make(map[K]V)
	}
	v := fresh()
	r.at[k] = v
	r.keys = append(r.keys, k)
	return v
}

func (r *ring[K, V]) next() (K, V) {
	if r.pos >= len(r.keys) {
		r.pos = 0
	}
	k := r.keys[r.pos]
	r.pos++
	return k, r.at[k]
}

func (r *ring[K, V]) remove(k K) {
	delete(r.at, k)
	for i, have := range r.keys {
		if have == k {
			r.keys = append(r.keys[:i], r.keys[i+1:]...)
			if i < r.pos {
				r.pos--
			}
			return
		}
	}
}
