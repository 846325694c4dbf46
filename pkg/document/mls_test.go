package document_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// Every situation of the seed's table of answers, and what each setting makes of it.
func TestWhenC2IsToldWhat(t *testing.T) {
	t.Parallel()
	at := noon.Add(time.Minute)
	final := document.Attempt{Verdict: delivery.Refused, NoRetry: true}
	refusedRE := func(p *document.Policy) { p.RefusedCode = document.RE }
	overdueRE := func(p *document.Policy) { p.APICode = document.RE }
	verify := func(r []document.Result, p *document.Policy) func(document.Facts) (document.Decision, error) {
		return func(f document.Facts) (document.Decision, error) { return f.Verified(r, p, at) }
	}
	attempt := func(a document.Attempt, p *document.Policy) func(document.Facts) (document.Decision, error) {
		return func(f document.Facts) (document.Decision, error) { return f.Attempted(a, p, at) }
	}
	watch := func(p *document.Policy) func(document.Facts) (document.Decision, error) {
		return func(f document.Facts) (document.Decision, error) {
			d, ok := f.Overdue(p, at.Add(time.Hour))
			if !ok {
				return d, document.ErrState
			}
			return d, nil
		}
	}
	received, passed := the(document.Received), the(document.Received, verdict("passed"))
	waiting := the(document.Forwarded, verdict("passed"), func(f *document.Facts) { f.MLS.Status = document.MLSWaiting })

	for name, c := range map[string]struct {
		facts  document.Facts
		do     func(document.Facts) (document.Decision, error)
		status document.MLSStatus
		code   document.Code
		sends  bool
	}{
		"verification rejected":                     {received, verify(says, with()), "claimed", "RE", true},
		"verification rejected, failures only":      {the(document.Received, failureOnly), verify(says, with()), "claimed", "RE", true},
		"verification rejected, trigger api":        {received, verify(says, with(api)), "claimed", "RE", true},
		"verification rejected, sending off":        {received, verify(says, with(mlsOff)), "off", "", false},
		"verification rejected an MLS":              {the(document.Received, kind(document.KindMLS)), verify(says, with()), "not_applicable", "", false},
		"confirmed by the backend":                  {passed, attempt(taken(true), with()), "claimed", "AP", true},
		"put where the backend looks":               {passed, attempt(taken(false), with()), "claimed", "AB", true},
		"confirmed, failures only":                  {the(document.Received, verdict("passed"), failureOnly), attempt(taken(true), with()), "suppressed", "AP", false},
		"confirmed, trigger api":                    {passed, attempt(taken(true), with(api)), "waiting", "", false},
		"confirmed, trigger api, failures only":     {the(document.Received, verdict("passed"), failureOnly), attempt(taken(true), with(api)), "suppressed", "", false},
		"confirmed, sending off":                    {passed, attempt(taken(true), with(mlsOff)), "off", "", false},
		"confirmed an MLS":                          {the(document.Retry, kind(document.KindMLS)), attempt(taken(true), with()), "not_applicable", "", false},
		"confirmed an MLR":                          {the(document.Retry, kind(document.KindMLR)), attempt(taken(true), with()), "not_applicable", "", false},
		"confirmed, told AB before":                 {the(document.Retry, code("AB")), attempt(taken(true), with()), "claimed", "AB", false},
		"confirmed, was off and is on":              {the(document.Retry, func(f *document.Facts) { f.MLS.Status = document.MLSOff }), attempt(taken(true), with()), "claimed", "AP", true},
		"forwarded although rejected, RE was off":   {the(document.Retry, verdict("rejected"), func(f *document.Facts) { f.MLS.Status = document.MLSOff }), attempt(taken(true), with()), "off", "", false},
		"attempts used up":                          {passed, attempt(failed(time.Time{}), with()), "claimed", "AB", true},
		"attempts used up, trigger api":             {passed, attempt(failed(time.Time{}), with(api)), "claimed", "AB", true},
		"attempts used up, failures only":           {the(document.Retry, failureOnly), attempt(failed(time.Time{}), with()), "suppressed", "AB", false},
		"backend will never take it":                {passed, attempt(final, with()), "claimed", "AB", true},
		"backend will never take it, configured RE": {passed, attempt(final, with(refusedRE)), "claimed", "RE", true},
		"a failure that is retried":                 {passed, attempt(failed(at), with()), "", "", false},
		"silent backend":                            {waiting, watch(with(api)), "claimed", "AB", true},
		"silent backend, configured RE":             {waiting, watch(with(api, overdueRE)), "claimed", "RE", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := must(t)(c.do(c.facts))
			if d.MLS.Status != c.status || d.MLS.Code != c.code || (d.Send != nil) != c.sends {
				t.Fatalf("%+v, sends %v", d.MLS, d.Send != nil)
			}
			if d.Send == nil {
				return
			}
			r := d.Send
			if r.Code != c.code || r.Reference != "sbdh-1" || r.Document != c.facts.ID || r.Tenant != "acme" || r.Text == "" || r.Receiver != "iso6523-actorid-upis::0242:000306" || r.Fallback != "" {
				t.Errorf("%+v", r)
			}
			fatal := false
			for _, i := range r.Issues {
				fatal = fatal || i.Reason != document.BW
				if i.Field == "" || i.Text == "" {
					t.Errorf("%+v", i)
				}
			}
			if fatal != (c.code == document.RE) {
				t.Errorf("%s with %+v", c.code, r.Issues)
			}
		})
	}
}

// A pass with warnings tells of them; a verifier that rejects without a word still
// gives a reason.
func TestIssuesOfTheAnswer(t *testing.T) {
	t.Parallel()
	warned := the(document.Received, verdict("passed"), func(f *document.Facts) {
		f.Issues = []document.Issue{{Code: "W-1", Severity: document.BW, Text: "old code list"}}
	})
	d := must(t)(warned.Attempted(taken(true), with(), noon))
	if len(d.Send.Issues) != 1 || d.Send.Issues[0] != (document.MLSIssue{Reason: "BW", Field: "NA", Text: "W-1 old code list"}) {
		t.Errorf("%+v", d.Send.Issues)
	}
	for name, issues := range map[string][]document.Issue{
		"none": nil, "warnings only": {{Severity: document.BW, Text: "hm"}}, "without words": {{Severity: document.SV}}, "unknown severity": {{Severity: "?", Text: "bad"}},
	} {
		d := must(t)(the(document.Received).Verified([]document.Result{{Verifier: "a", Verdict: document.VerdictRejected, Issues: issues}}, with(), noon))
		fatal := 0
		for _, i := range d.Send.Issues {
			if i.Reason == document.SV || i.Reason == document.BV {
				fatal++
			}
		}
		if fatal == 0 {
			t.Errorf("%s: %+v", name, d.Send.Issues)
		}
	}
	d = must(t)(the(document.Received).Verified(says, with(), noon))
	if got := d.Send.Issues[0]; got != (document.MLSIssue{Reason: "BV", Field: "/Invoice", Text: "BR-1 no total"}) {
		t.Errorf("%+v", got)
	}
	if s := document.Summary(d.Issues); s != "BR-1 no total" {
		t.Errorf("%q", s)
	}
}

// The answers of the backend's call, in the order of the checks.
func TestReportOfTheBackend(t *testing.T) {
	t.Parallel()
	line := document.MLSIssue{Reason: document.FD, Field: "NA", Text: "no such account"}
	warning := document.MLSIssue{Reason: document.BW, Field: "NA", Text: "hm"}
	ap, re := document.Report{Code: document.AP}, document.Report{Code: document.RE, Text: "no", Issues: []document.MLSIssue{line}}
	waiting := the(document.Forwarded, verdict("passed"), func(f *document.Facts) { f.MLS.Status = document.MLSWaiting })
	for name, c := range map[string]struct {
		facts  document.Facts
		report document.Report
		policy *document.Policy
		reply  document.Reply
		err    error
	}{
		"503 before all else":                 {the(document.Forwarded, kind(document.KindMLS)), document.Report{}, with(mlsOff), "", document.ErrMLSDisabled},
		"400 unknown code":                    {waiting, document.Report{Code: "XX"}, with(api), "", document.ErrMLSInvalid},
		"400 RE without issues":               {waiting, document.Report{Code: document.RE}, with(api), "", document.ErrMLSInvalid},
		"400 RE with warnings only":           {waiting, document.Report{Code: document.RE, Issues: []document.MLSIssue{warning}}, with(api), "", document.ErrMLSInvalid},
		"400 AP with something fatal":         {waiting, document.Report{Code: document.AP, Issues: []document.MLSIssue{line}}, with(api), "", document.ErrMLSInvalid},
		"400 unknown reason":                  {waiting, document.Report{Code: document.RE, Issues: []document.MLSIssue{{Reason: "ZZ", Field: "NA", Text: "x"}}}, with(api), "", document.ErrMLSInvalid},
		"400 issue without field":             {waiting, document.Report{Code: document.RE, Issues: []document.MLSIssue{{Reason: document.BV, Text: "x"}}}, with(api), "", document.ErrMLSInvalid},
		"400 too many issues":                 {waiting, document.Report{Code: document.RE, Issues: make([]document.MLSIssue, document.MaxIssues+1)}, with(api), "", document.ErrMLSInvalid},
		"400 before 422":                      {the(document.Forwarded, kind(document.KindMLS)), document.Report{}, with(api), "", document.ErrMLSInvalid},
		"422 an MLS":                          {the(document.Forwarded, kind(document.KindMLS)), ap, with(api), "", document.ErrMLSNotEligible},
		"422 an MLR":                          {the(document.Forwarded, kind(document.KindMLR)), ap, with(api), "", document.ErrMLSNotEligible},
		"409 answered":                        {the(document.Forwarded, code("AB")), ap, with(api), "", document.ErrMLSConflict},
		"409 rejected but forwarded":          {the(document.Forwarded, verdict("rejected"), func(f *document.Facts) { f.MLS.Status = document.MLSOff }), ap, with(api), "", document.ErrMLSConflict},
		"409 positive was recorded":           {the(document.Forwarded, failureOnly, func(f *document.Facts) { f.MLS = document.MLS{Status: document.MLSSuppressed, Code: "AP"} }), re, with(api), "", document.ErrMLSConflict},
		"200 sent AP":                         {waiting, ap, with(api), document.ReplySent, nil},
		"200 sent AP with a warning":          {waiting, document.Report{Code: document.AP, Issues: []document.MLSIssue{warning}}, with(api), document.ReplySent, nil},
		"200 sent RE":                         {waiting, re, with(api), document.ReplySent, nil},
		"200 recorded: failures only":         {the(document.Forwarded, failureOnly), ap, with(api), document.ReplyRecorded, nil},
		"200 sent RE: failures only":          {the(document.Forwarded, failureOnly, func(f *document.Facts) { f.MLS.Status = document.MLSSuppressed }), re, with(api), document.ReplySent, nil},
		"200 sent before it is forwarded":     {the(document.Retry, verdict("passed")), ap, with(api), document.ReplySent, nil},
		"200 sent with trigger auto, was off": {the(document.Forwarded, func(f *document.Facts) { f.MLS.Status = document.MLSOff }), ap, with(), document.ReplySent, nil},
		"no document":                         {the(""), ap, with(api), "", document.ErrState},
		"200 a text that could not be stored": {waiting, document.Report{Code: document.AP, Text: "a\x00b"}, with(api), document.ReplySent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, reply, err := c.facts.Report(c.report, c.policy)
			if reply != c.reply || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("%q %v", reply, err)
			}
			if err != nil {
				return
			}
			if d.To != c.facts.State || !d.Note || d.MLS.Code != c.report.Code || (d.Send != nil) != (reply == document.ReplySent) || !d.MLSDue.IsZero() {
				t.Errorf("%+v", d)
			}
			if d.Send != nil && (len(d.Send.Issues) != len(c.report.Issues) || strings.ContainsRune(d.Send.Text, 0)) {
				t.Errorf("%+v", d.Send)
			}
			if _, _, err := c.facts.After(d).Report(c.report, c.policy); !errors.Is(err, document.ErrMLSConflict) {
				t.Errorf("told twice: %v", err)
			}
		})
	}
}

func TestMLSOutcome(t *testing.T) {
	t.Parallel()
	f := the(document.Forwarded, code("AP"))
	d := must(t)(f.MLSOutcome(false, with()))
	if d.MLS.Status != document.MLSUndeliverable || d.MLS.Code != "AP" || d.Letter != document.LetterMLSOverdue {
		t.Errorf("%+v", d)
	}
	f = f.After(d)
	if _, err := f.MLSOutcome(false, with()); !errors.Is(err, document.ErrState) {
		t.Errorf("undeliverable twice: %v", err)
	}
	f = f.After(must(t)(f.MLSOutcome(true, with())))
	if f.MLS.Status != document.MLSSent || f.MLS.Code != "AP" {
		t.Errorf("%+v", f.MLS)
	}
	if _, err := f.MLSOutcome(false, with()); !errors.Is(err, document.ErrState) {
		t.Errorf("sent and then not: %v", err)
	}
}

func TestMLSReceiver(t *testing.T) {
	t.Parallel()
	const scheme, main = "iso6523-actorid-upis::", "iso6523-actorid-upis::0242:000306"
	for to, want := range map[string][2]string{
		"":                             {main, ""},
		main:                           {main, ""},
		scheme + "0242:000306-MLS":     {scheme + "0242:000306-MLS", main},
		scheme + "0242:000306-mls.eu1": {scheme + "0242:000306-mls.eu1", main},
		scheme + "0242:000307-MLS":     {main, ""}, // another provider
		scheme + "0088:000306-MLS":     {main, ""}, // no provider
		"other::0242:000306-MLS":       {main, ""},
		scheme + "0242:000306-ML":      {main, ""}, // too short
		scheme + "0242:000306-MLS\n":   {main, ""},
		scheme + "0242:000306-MLS." + strings.Repeat("x", 25): {main, ""},
	} {
		if r, f := document.MLSReceiver(to, "POP000306"); r != want[0] || f != want[1] {
			t.Errorf("%q: %q %q", to, r, f)
		}
	}
	for _, seat := range []string{"", "POP00306", "POP000306 ", "000306", "CN=POP000306", "POPABCDEF"} {
		if r, f := document.MLSReceiver(scheme+"0242:000306-MLS", seat); r != "" || f != "" {
			t.Errorf("seat %q: %q %q", seat, r, f)
		}
	}
}

func TestWhoseMLSTypeCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from            document.TypeSource
		own, sbdh, want document.MLSType
	}{
		{document.TypeOwn, document.AlwaysSend, document.FailureOnly, document.AlwaysSend},
		{document.TypeOwn, document.FailureOnly, document.AlwaysSend, document.FailureOnly},
		{document.TypeSBDH, document.AlwaysSend, document.FailureOnly, document.FailureOnly},
		{document.TypeSBDH, document.FailureOnly, "", document.FailureOnly},
		{document.TypeSBDH, document.AlwaysSend, "failure_only", document.AlwaysSend},
	} {
		p := document.Policy{MLSTypeFrom: c.from, MLSType: c.own}
		if got := p.MLSTypeFor(c.sbdh); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
