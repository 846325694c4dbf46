//go:build !planted

package planted

// Is tells whether this fault is planted: never.
func Is(string) bool { return false }

// Among gives the list where this fault is planted, else nothing.
func Among[T any](string, []T) []T { return nil }

// SQL gives the statement as it is.
func SQL(_, statement string, _ ...string) string { return statement }
