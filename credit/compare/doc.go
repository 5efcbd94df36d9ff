// Package compare compares ways of assigning credit on rollouts that are on
// record: what a step was trained on, and what it would have been trained on under
// another assignment or algorithm.
//
// It needs no engine and writes nothing. It is no judge of which way learns better,
// which only training shows; it says how far the signals differ: how much of them is
// zero, how they vary, whether they agree, and which calls of an attempt they reach.
//
// One may rely on this: the numbers are computed the same way as those that runs are
// trained on (package advantage), and the report says how far the run's own setting,
// computed anew, is from what stands in the batch.
package compare
