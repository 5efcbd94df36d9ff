// Package cache keeps the last few values that were expensive to make.
//
// It has nothing to do with HTTP caching. A [Cache] holds values in memory. It makes each
// value once, even if several callers ask for it at the same time, and does not keep
// errors. A [Background] makes values in the background.
package cache
