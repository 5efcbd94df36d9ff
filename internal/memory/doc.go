// Package memory keeps a process that holds large weights from growing with garbage, and
// one that holds little from collecting all the time.
//
// Go's collector lets garbage grow to the size of what is in use before it collects:
// a process with 3 GB of weights goes to 6 GB, though a step makes but a few hundred
// megabytes of garbage. Whoever drops weights says so with [Dropped]. From then on
// garbage is collected when it comes to [Slack], however much is in use. That costs
// little: the collector passes over numbers without looking at them.
//
// Below [Large] nothing is done, and where the variable GOGC is set, the pace is its
// own. Results never depend on any of this.
//
// A gateway has some megabytes in use and makes as many of garbage in a tenth of a
// second, and each collection looks at the stacks of all its goroutines. With [Pace] it
// collects when there are 64 MB of garbage.
//
// [Total] is the machine's memory, [Limit] what processes may take of it in a container.
package memory
