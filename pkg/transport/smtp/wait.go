package smtp

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

const (
	maxWait      = time.Hour       // no text makes us wait longer
	greylistWait = 5 * time.Minute // for a greylisting server that names no time
)

var (
	// A number with a unit counts only after a word about waiting, so that "message
	// of 30 s" or a size is not taken for one.
	waitWords = regexp.MustCompile(`(?i)(try|retry|again|wait|delay|later|gr[ea]ylist)`)
	waitUnits = regexp.MustCompile(`(?i)\b(\d+)\s*(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)\b`)
	waitClock = regexp.MustCompile(`\b(\d{1,2}):(\d{2}):(\d{2})\b`)

	greylistWords = regexp.MustCompile(`(?i)gr[ea]y[- ]?list`)
)

// ParseWait reads the time that a text asks us to wait ("try again in 300
// seconds", "wait 5 minutes", "retry in 00:04:59"); 0 when it names none, one hour
// at most.
func ParseWait(text string) time.Duration {
	at := waitWords.FindStringIndex(text)
	if at == nil {
		return 0
	}
	rest := text[at[0]:]
	if m := waitUnits.FindStringSubmatch(rest); m != nil {
		unit := time.Second
		switch strings.ToLower(m[2])[0] {
		case 'm':
			unit = time.Minute
		case 'h':
			unit = time.Hour
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n > int(maxWait/unit) {
			return maxWait
		}
		return time.Duration(n) * unit
	}
	if m := waitClock.FindStringSubmatch(rest); m != nil {
		var part [3]int
		for i := range part {
			part[i], _ = strconv.Atoi(m[i+1])
		}
		d := time.Duration(part[0])*time.Hour + time.Duration(part[1])*time.Minute + time.Duration(part[2])*time.Second
		return min(d, maxWait)
	}
	return 0
}

// retryAfter is what an answer asks for. A greylisting server that names no time
// gets the customary five minutes.
func retryAfter(a delivery.Answer) time.Duration {
	if a.Category != delivery.Transient && a.Category != delivery.Quota {
		return 0
	}
	if d := ParseWait(a.Text); d > 0 {
		return d
	}
	if greylistWords.MatchString(a.Text) {
		return greylistWait
	}
	return 0
}
