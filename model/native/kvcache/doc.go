// Package kvcache holds the keys and values of a decoder's requests in pages, and those
// of finished sequences for as long as there is room, so that what sequences begin with
// alike is computed once.
//
// A full page may have several holders and is not written to any more. A sequence that
// continues a page which is not full gets a copy of it. Caching changes no bit: the keys
// and values of a position are a function of the weights and of the tokens up to it, so a
// cache is for one version alone.
//
// It computes nothing and is not safe for concurrent use: the owner of a decoder's batch
// calls it, and threads only read and write the numbers of pages that their request holds.
package kvcache
