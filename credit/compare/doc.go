// Package compare compares ways of assigning credit to one step of a run on record: the
// setting under which the step was trained, and what another assignment or algorithm
// would have given it.
//
// It needs no engine and writes nothing. It does not say which way learns better, which
// only training shows. It says how far the advantages differ: how much of them is zero,
// how they vary, whether they agree, and which calls of an attempt they reach.
//
// The numbers are computed by the same code as those that runs are trained on (package
// assign). The report says how far the run's own setting, computed anew, is from the
// advantages in the batch.
package compare
