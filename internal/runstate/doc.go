// Package runstate says how runs stand: what the record says, put right by what
// Temporal says. A workflow closes the record of its run when it ends, but one that is
// terminated, that times out or that is deleted can't, and one that is reset goes on
// although its record is closed.
//
// [Of] answers for one run and changes nothing. [Reconciler] puts the record of all
// runs right, at its start and from then on; it may run in any number of processes.
// Neither takes a Temporal that does not answer for a workflow that is gone.
package runstate
