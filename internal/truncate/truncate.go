// Package truncate shortens texts to a number of bytes without leaving half a
// character behind.
package truncate

import "strings"

// Head is the beginning of s, of at most n bytes. What it cuts is valid UTF-8
// afterwards.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// Ellipsis is Head, which says by "…" that there was more.
func Ellipsis(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Head(s, n) + "…"
}

// Tail is the end of s, of at most n bytes. What it cuts is valid UTF-8 afterwards.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-n:], "")
}
