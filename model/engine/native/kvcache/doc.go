// Package kvcache holds the keys and values of a decoder's requests in pages. It also
// keeps those of finished sequences for as long as there is room, so that a prefix that
// sequences have in common is computed once.
//
// A full page may have several holders and is not written to any more. A sequence that
// continues a page which is not full gets a copy of it. Caching changes no bit: the keys
// and values of a position are a function of the weights and of the tokens up to it. So a
// cache serves only one version.
//
// It computes nothing and is not safe for concurrent use: the owner of a decoder's batch
// calls it, and threads only read and write the numbers of pages that their request holds.
package kvcache
