package delivery

import "strings"

// maxToken is the longest tenant or channel, in bytes: each is a token of subjects.
const maxToken = 64

// token tells whether a name can be one token of a subject: of [A-Za-z0-9_-], and
// not the "_" that stands for none.
func token(s string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return s != "" && s != "_" && len(s) <= maxToken && strings.Trim(s, allowed) == ""
}
