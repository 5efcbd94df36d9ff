// Package truncate shortens texts to a number of bytes without cutting a character in
// two.
package truncate

import "strings"

// Head returns the first n bytes of s, or less so that no character is cut. A shorter s is
// returned unchanged.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// Ellipsis is like Head, and appends "…" if it cuts.
func Ellipsis(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Head(s, n) + "…"
}

// Tail returns the last n bytes of s, or less so that no character is cut. A shorter s is
// returned unchanged.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-n:], "")
}
