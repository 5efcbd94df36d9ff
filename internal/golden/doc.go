// Package golden compares what a person sees, such as the output of a command or the text of a
// page, with a file that holds it as a whole. The words of a view are therefore in one place:
// whoever changes them runs the test with -update, which writes the file anew, and reads the
// difference.
//
// A golden file proves that words are as somebody has read them, not that they are right. Numbers,
// addresses and decisions are therefore asserted by the tests themselves, too.
//
// What differs from one run to the next, such as times, durations, ports and temporary directories,
// is replaced by words in capitals. Steady does that and is the only place that knows how.
//
// The package is for tests. It defines their flag -update.
package golden
