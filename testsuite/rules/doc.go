// Package rules holds the rules of the repository that no compiler holds: who may import
// whom, that every package says what it is, that documents name targets which exist. Its
// tests read the sources themselves, because a test that ran `go list` would be served
// from the cache although a file has changed. It exports nothing.
package rules
