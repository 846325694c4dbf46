package delivery

import (
	"fmt"
	"time"
)

// QuotaCommand sets or removes the monthly ceiling of a bucket.
type QuotaCommand struct {
	Warrant
	Bucket  string `json:"bucket"`            // a tenant, or _platform
	Channel string `json:"channel"`           // mail, sms
	Monthly *int64 `json:"monthly,omitempty"` // absent: the default ceiling, or none
	Hold    bool   `json:"hold,omitempty"`    // what exceeds it waits; else it fails
	Zone    string `json:"zone,omitempty"`    // where its months begin, such as Europe/Vienna
	Remove  bool   `json:"remove,omitempty"`
}

// Check says what is wrong with it.
func (c QuotaCommand) Check() error {
	switch {
	case c.Bucket == "" || len(c.Bucket) > maxToken:
		return fmt.Errorf("bucket is empty or too long: name a tenant, or _platform")
	case !token(c.Bucket):
		return fmt.Errorf("bucket %.70q is no tenant and not _platform: want [A-Za-z0-9_-]", c.Bucket)
	case c.Channel != "mail" && c.Channel != "sms":
		return fmt.Errorf("channel %.40q is not mail or sms", c.Channel)
	case c.Monthly != nil && *c.Monthly < 0:
		return fmt.Errorf("monthly is negative")
	case c.Remove && (c.Monthly != nil || c.Hold || c.Zone != ""):
		return fmt.Errorf("remove comes alone: leave monthly, hold and zone out, or set the quota")
	}
	if c.Zone != "" {
		if _, err := time.LoadLocation(c.Zone); err != nil || c.Zone == "Local" {
			return fmt.Errorf("zone: %.60q is no time zone such as UTC or Europe/Vienna", c.Zone)
		}
	}
	return c.check(true)
}

// QuotaFilter asks for quotas or usage; empty fields match all.
type QuotaFilter struct {
	Bucket  string `json:"bucket,omitempty"`
	Channel string `json:"channel,omitempty"`
	Month   string `json:"month,omitempty"` // 2026-11
}

// MonthlyQuota is a ceiling that was set.
type MonthlyQuota struct {
	Bucket  string `json:"bucket"`
	Channel string `json:"channel"`
	Monthly *int64 `json:"monthly"`
	Hold    bool   `json:"hold"`
	Zone    string `json:"zone"`
}

// QuotaUsage is what a bucket has used of a month.
type QuotaUsage struct {
	Bucket  string `json:"bucket"`
	Channel string `json:"channel"`
	Month   string `json:"month"`
	Used    int64  `json:"used"`
	Ceiling *int64 `json:"ceiling"` // absent: none
	Default bool   `json:"default,omitempty"`
	Hold    bool   `json:"hold,omitempty"`
	Zone    string `json:"zone"`
}
