// Command durability measures what it costs that a run survives faults. It runs the same
// training with a whole fleet in two ways: with store, blobs and Temporal on a disk,
// where every commit waits for a sync, and in memory, where a sync costs nothing. The two
// kinds of run alternate, so that both see the same machine. It prints the ratio of their
// times, as a geometric mean over pairs with a 95 % interval.
//
//	make build && go run ./bench/durability -pairs 6
//
// It does not measure the cost of writing itself, because a fleet without records could
// not run. Package gateway measures how much of a call is recording. The agent does not
// think and the model is tiny, so the share in a real training is smaller.
package main
