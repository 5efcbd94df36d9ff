// Package runstate finds out the status of runs: the status on record, corrected by what
// Temporal says. A workflow closes the record of its run when it ends. A workflow that
// was terminated, timed out or deleted can't do that, and one that was reset goes on
// although its record is closed.
//
// [Of] answers for one run and changes nothing. [Reconciler] corrects the record of all
// runs, when it starts and regularly after that; it may run in any number of processes.
// [Retrier] continues a run that has ended. If Temporal does not answer, no workflow is
// assumed to be gone.
package runstate
