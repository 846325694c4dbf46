package lane

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// States of a lane's breaker.
const (
	Closed   = "closed"
	Open     = "open"
	HalfOpen = "half_open"
)

// View is a lane as it was read with a claim, or after a change.
type View struct {
	ID        int32
	Key       string
	Guarded   bool // its traffic is counted by the claim
	Breaker   string
	Version   int32
	ShutUntil time.Time
	OpenedAt  time.Time
	Failures  int
	Cause     string // of the failures; the operator's reason, if Forced
	Forced    bool   // opened by an operator
	Cap       int    // in work at most over all instances; 0: no such cap
	RateCap   int    // sends a minute at most; 0: no such cap
}

// Slowed tells whether success should raise what it may take.
func (v View) Slowed() bool { return v.Cap > 0 || v.RateCap > 0 }

// Scan reads a view and, behind it, the seconds until there is room.
func Scan(rows pgx.Rows) (v View, wait *float64, err error) {
	err = scan(rows.Scan, &v, &wait)
	return v, wait, err
}

func scan(row func(...any) error, v *View, more ...any) error {
	var shut, opened *time.Time
	err := row(append([]any{&v.ID, &v.Key, &v.Guarded, &v.Breaker, &v.Version, &shut, &opened, &v.Failures, &v.Cause, &v.Forced, &v.Cap, &v.RateCap}, more...)...)
	if shut != nil {
		v.ShutUntil = *shut
	}
	if opened != nil {
		v.OpenedAt = *opened
	}
	return err
}
