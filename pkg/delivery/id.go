package delivery

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ID names a delivery: a version 7 UUID (RFC 9562), so ids sort by the time of
// acceptance and the history tables can be partitioned by them.
type ID uuid.UUID

// NewID returns a fresh id that carries the current time.
func NewID() ID { return ID(uuid.Must(uuid.NewV7())) }

// ParseID reads the canonical text form of an id.
func ParseID(s string) (ID, error) {
	u, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return ID{}, fmt.Errorf("delivery id %.64q is not a UUID", s)
	}
	return ID(u), nil
}

func (id ID) String() string { return uuid.UUID(id).String() }

// MarshalText writes the canonical form.
func (id ID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText reads the canonical form.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := ParseID(string(b))
	*id = v
	return err
}

// Time is the moment of acceptance that a version 7 id carries (millisecond
// precision, UTC).
func (id ID) Time() time.Time {
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return time.UnixMilli(ms).UTC()
}
