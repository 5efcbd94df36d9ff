// Package fleet wires the parts of Fulgurite into processes. Each process of a
// fleet (cmd/fulgurite-worker) takes the parts it needs, and so does the one
// process that has them all (package stack): what belongs to a gateway, a worker
// or a sampler is said here once.
//
// It never brings the embedded Temporal server, and it decides nothing that a
// flag should decide.
//
// Processes find each other through leases in the store. A [Holder] keeps one: it
// is renewed every [Renewal] and over [TTL] after the last renewal. A gateway
// holds its lease alone, the latest comer winning; one that lost it answers 503
// with the fault header until it is the only one again, so that a rollout has one
// owning gateway. Samplers hold any number. [Finder] and [Samplers] are the
// readers: they look again every second, and at once after a failure.
//
// One may rely on this: a process that is killed is no longer found after TTL,
// one that is drained at once, and one that hangs is fenced by its own clock
// when it wakes up.
package fleet
