// Package memory controls Go's garbage collector. It keeps a process with large weights
// from growing with garbage, and a process with little memory in use from collecting all
// the time.
//
// Before it collects, Go's collector lets garbage grow to the size of what is in use: a
// process with 3 GB of weights grows to 6 GB, although a step makes only a few hundred
// megabytes of garbage. Code that drops weights therefore calls [Dropped]. From then on,
// garbage is collected when it reaches [Slack], however much is in use. This costs
// little, because the collector does not look into arrays of numbers.
//
// For less than [Large], Dropped does nothing. If the variable GOGC is set, it determines
// the pace. Results never depend on any of this.
//
// A gateway has some megabytes in use and makes as many megabytes of garbage in a tenth
// of a second, and each collection scans the stacks of all its goroutines. After a call
// of [Pace] it collects when there are 64 MB of garbage.
//
// [Total] is the machine's memory, and [Limit] is how much of it processes may take in a
// container.
package memory
