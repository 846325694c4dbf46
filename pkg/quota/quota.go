package quota

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// Platform is the bucket of what the platform sends on its own behalf.
const Platform = "_platform"

// Code is the seed's marker for a delivery that its quota refuses.
const Code = "MONTHLY_QUOTA_EXCEEDED"

// Config is the ceilings of buckets that have none of their own.
type Config struct {
	MailMonthly     *int64   `env:"QUOTA_MAIL_MONTHLY_DEFAULT" min:"0" doc:"mails a month of a tenant without a quota of its own; unset means no limit (they are counted)"`
	SMSMonthly      *int64   `env:"QUOTA_SMS_MONTHLY_DEFAULT" min:"0" doc:"the same for SMS"`
	Zone            string   `env:"QUOTA_ZONE" envDefault:"UTC" doc:"time zone in which the months of such a tenant begin"`
	PlatformTenants []string `env:"QUOTA_PLATFORM_TENANTS" envDefault:"platform" doc:"tenants whose sends draw on the platform's own quota (bucket _platform)"`
}

// Check says what is wrong with it.
func (c Config) Check() []error {
	if _, err := time.LoadLocation(c.Zone); err != nil || c.Zone == "" || c.Zone == "Local" {
		return []error{fmt.Errorf("QUOTA_ZONE: %.60q is no time zone such as UTC or Europe/Vienna", c.Zone)}
	}
	return nil
}

// Bucket is what a tenant's sends draw on.
func (c Config) Bucket(tenant string) string {
	if slices.Contains(c.PlatformTenants, tenant) {
		return Platform
	}
	return tenant
}

func (c Config) ceiling(channel delivery.Channel) int64 {
	d := c.MailMonthly
	if channel == "sms" {
		d = c.SMSMonthly
	}
	if d == nil {
		return -1
	}
	return *d
}

// Key names what is charged.
type Key struct {
	Bucket  string
	Channel delivery.Channel
}

// Grant is the answer to one charge.
type Grant struct {
	Key
	Granted int64
	Used    int64 // of the month, this charge included
	Ceiling int64 // negative: none
	Hold    bool  // what was not granted waits until Turn, or until the ceiling is raised
	Turn    time.Time
	Month   string // its first day
	told    int    // highest percentage told of before
	tell    int    // and after
}

// Charge asks for units of several buckets in a transaction. Queue first, send the
// batch, then read Grants.
type Charge struct {
	asked  map[Key]int64
	grants map[Key]*Grant
}

// Ask adds n units of a bucket to the charge.
func (c *Charge) Ask(k Key, n int64) {
	if c.asked == nil {
		c.asked = make(map[Key]int64)
	}
	c.asked[k] += n
}

// Grant is what was granted of a bucket; nil when nothing was asked.
func (c *Charge) Grant(k Key) *Grant { return c.grants[k] }

// Queue adds the charge to a pipeline of the transaction.
func (c *Charge) Queue(b *pgx.Batch, cfg Config) {
	if len(c.asked) == 0 {
		return
	}
	c.grants = make(map[Key]*Grant, len(c.asked))
	keys := c.keys()
	var buckets, channels, zones []string
	var counts, most []int64
	for _, k := range keys {
		buckets, channels, zones = append(buckets, k.Bucket), append(channels, string(k.Channel)), append(zones, cmp.Or(cfg.Zone, "UTC"))
		counts, most = append(counts, c.asked[k]), append(most, cfg.ceiling(k.Channel))
	}
	b.Queue(ensureUsage, buckets, channels, zones)
	b.Queue(lockUsage, buckets, channels, zones)
	b.Queue(charge, buckets, channels, zones, counts, most).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			g := &Grant{}
			var action string
			if err := rows.Scan(&g.Bucket, &g.Channel, &g.Granted, &g.Used, &g.Ceiling, &action, &g.told, &g.tell, &g.Turn, &g.Month); err != nil {
				return err
			}
			g.Hold = action == "hold"
			c.grants[g.Key] = g
		}
		return rows.Err()
	})
}

func (c *Charge) keys() []Key {
	keys := make([]Key, 0, len(c.asked))
	for k := range c.asked {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Channel, b.Channel))
	})
	return keys
}

// Refund gives back what was granted and turned out not to be needed, in the same
// transaction.
func (c *Charge) Refund(b *pgx.Batch, used map[Key]int64) {
	for _, k := range c.keys() {
		g := c.grants[k]
		if spare := g.Granted - used[k]; spare > 0 {
			b.Queue(refund, k.Bucket, string(k.Channel), g.Month, spare)
			g.Used, g.Granted = g.Used-spare, g.Granted-spare
		}
	}
}

// Tell queues the outbox row of the warnings that this charge gives cause to.
func (c *Charge) Tell(b *pgx.Batch) (outbox.Batch, error) {
	batch := outbox.Batch{ID: uuid.Must(uuid.NewV7())}
	var ids, subjects []string
	var bodies [][]byte
	for _, k := range c.keys() {
		g := c.grants[k]
		if g == nil || g.tell <= g.told || g.Ceiling < 0 {
			continue
		}
		e := Event{State: Warned, Percent: g.tell, Bucket: k.Bucket, Channel: string(k.Channel), Tenant: k.Bucket, Month: g.Month[:7],
			Used: g.Used, Ceiling: g.Ceiling, At: time.Now().UTC(), Text: fmt.Sprintf("%s has used %d of %d %s of this month", k.Bucket, g.Used, g.Ceiling, k.Channel)}
		if g.tell >= 100 {
			e.State = Exhausted
		}
		e.Event = "quota." + batch.ID.String() + "." + k.Bucket + "." + string(k.Channel)
		body, err := e.encode()
		if err != nil {
			return batch, err
		}
		m := outbox.Message{ID: e.Event, Subject: streams.Event(streams.KindQuota, e.State, e.Channel, k.Bucket), Body: body}
		batch.Messages = append(batch.Messages, m)
		ids, subjects, bodies = append(ids, m.ID), append(subjects, m.Subject), append(bodies, m.Body)
	}
	if len(ids) > 0 {
		b.Queue(outbox.InsertMessages, [16]byte(batch.ID), ids, subjects, bodies)
	}
	return batch, nil
}

// States of an event about a quota.
const (
	Warned    = "warned"    // 80 % are used
	Exhausted = "exhausted" // all
)

// Event is the body of a message on posthouse.event.quota.<state>.<channel>.<bucket>.
type Event struct {
	Schema  int       `json:"schema"` // 1
	Event   string    `json:"event"`
	Kind    string    `json:"kind"` // "quota"
	State   string    `json:"state"`
	Percent int       `json:"percent"`
	Bucket  string    `json:"bucket"` // a tenant, or _platform
	Tenant  string    `json:"tenant"`
	Channel string    `json:"channel"`
	Month   string    `json:"month"` // 2026-11
	Used    int64     `json:"used"`
	Ceiling int64     `json:"ceiling"`
	At      time.Time `json:"at"`
	Text    string    `json:"text"`
}

func (e *Event) encode() ([]byte, error) {
	e.Schema, e.Kind = 1, "quota"
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Event, err)
	}
	return b, nil
}

// Answer is the marker of a delivery that was not granted.
func (g *Grant) Answer() *delivery.Answer {
	text := fmt.Sprintf("the quota of %d %s a month is used up", g.Ceiling, g.Channel)
	if g.Hold {
		text += "; it waits until " + g.Turn.UTC().Format(time.RFC3339) + " or until the quota is raised"
	}
	return &delivery.Answer{Category: delivery.Config, Phase: "prepare", Code: Code, Text: text}
}

// One charges a single delivery in a transaction; false: it was not granted.
func One(ctx context.Context, tx pgx.Tx, cfg Config, k Key) (*Grant, outbox.Batch, error) {
	var c Charge
	c.Ask(k, 1)
	var b pgx.Batch
	c.Queue(&b, cfg)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, outbox.Batch{}, fmt.Errorf("charge %s: %w", k.Bucket, err)
	}
	var tell pgx.Batch
	events, err := c.Tell(&tell)
	if err == nil && tell.Len() > 0 {
		err = tx.SendBatch(ctx, &tell).Close()
	}
	return c.Grant(k), events, err
}
