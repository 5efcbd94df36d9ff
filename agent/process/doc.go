// Package process runs an agent's program so that nothing of it survives its worker.
//
// # Shims
//
// A program runs under a shim: the worker's own executable, started again as a small
// supervisor, before its main function. The shim ends the program and all its descendants when the
// program has ended or has taken too much memory, and when the worker closes its end of a
// pipe, which also happens if the worker dies.
//
// # Homes
//
// Each rollout has a [Home] on the machine, one directory for all of its attempts. A
// later attempt takes it over from an earlier one that still runs: it ends the earlier
// one and has the home within seconds, even if the earlier one's worker is stopped and
// never notices.
//
// # What systems can do
//
// It needs the processes and signals of Unix. On Linux, the shim also finds and ends
// descendants that left the program's process group, limits the memory of all of them,
// and [Conceal] hides the worker's secrets from them. On other systems only the group is
// ended, memory isn't limited, and a later attempt waits for an earlier one.
package process
