// Package compare compares ways of assigning credit to one recorded step of a run: the
// setting under which the step was trained, and other assignments or algorithms.
//
// It needs no engine and writes nothing. It does not say which way learns better; only
// training shows that. It says how far the advantages differ: how many of them are zero,
// how they vary, whether they agree, and which calls of an attempt get any.
//
// The numbers are computed by the same code as those that runs are trained on (package
// assign). The report says how far the run's own setting, computed again, is from the
// advantages in the batch.
package compare
