// Command durability measures what it costs that a run survives: the same
// training on a whole fleet, with store, blobs and Temporal on a disk that every
// promise waits for, and in memory, where a sync is free. Runs alternate, so that
// both meet the same machine; what is printed is the ratio of their times, as a
// geometric mean over pairs with a 95 % interval.
//
//	make build && go run ./bench/durability -pairs 6
//
// It does not measure what it costs to write at all, since a fleet that keeps no
// record could not run; the share of a call that is recording is measured in
// package gateway. Nor does its agent think or its model amount to anything: the
// share in a real training is smaller.
package main
