// Package fleet wires the parts of Fulgurite into processes. Each process of a
// fleet (cmd/fulgurite-worker) takes the parts it needs, and so does the one
// process that has them all (package stack).
//
// It never links the embedded Temporal server, and it decides nothing that a flag should
// decide.
//
// Processes find each other through leases in the store. A [HeldLease] is renewed
// every [Renewal] and ends [TTL] after the last renewal. Only one gateway has a lease,
// the one that came last. A gateway that lost its lease answers 503 with the fault
// header until it is the only one again, so that a rollout has one owning gateway.
// There may be any number of samplers. [Finder] and [Samplers] read leases every
// second, and at once after a failure.
//
// Guarantees: a killed process is no longer found after TTL and a drained one at once; a
// process that hung is fenced by its own clock when it wakes up.
package fleet
