// Package inflight makes model calls and lets requests wait for them.
//
// A request is admitted to one [Slot] for each choice that it wants. A slot has a
// recorded call, or waits for a pending one: joined, if it is the same request as one
// in flight, or else reserved for it. A pending call is started once all choices of its
// request have theirs. It is sampled, recorded and completed whether or not its
// requests still wait, and abandoned only if all of them left before it was sampled.
// Released slots say whether the reply was delivered: a call whose reply was not is the
// answer to the next equal request.
package inflight
