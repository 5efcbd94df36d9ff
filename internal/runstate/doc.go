// Package runstate tells the status of runs: that of the record, corrected by what
// Temporal says. A workflow closes the record of its run when it ends. A workflow that
// was terminated, timed out or deleted can't, and one that was reset goes on although
// its record is closed.
//
// [Of] answers for one run and changes nothing. [Reconciler] corrects the record of all
// runs at its start and from then on; it may run in any number of processes. [Retrier]
// lets a run that ended go on. If Temporal does not answer, no workflow is taken for
// gone.
package runstate
