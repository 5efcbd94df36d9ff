// Package process runs an agent's program so that nothing of it survives its worker.
//
// # Shims
//
// A program runs under a shim: the worker's own executable, started again as a small
// supervisor ([ShimMain]). It ends the program and all its descendants when the program
// has ended or has taken too much memory, and when the worker lets go of it, which it
// also does by dying without warning.
//
// # Homes
//
// Each rollout has a [Home] on the machine, one directory for all of its attempts. A
// later attempt takes it over from an earlier one that still runs: it has the earlier
// one ended at once, and has the home within seconds even if that one's worker is
// stopped and never notices.
//
// # What systems can do
//
// Processes and signals are those of Unix. On Linux descendants that left the program's
// process group are found and ended too, the memory of all of them is limited, and
// [Conceal] keeps the worker's secrets from them. Elsewhere only the group is ended,
// memory isn't looked at, and an earlier attempt is waited for.
package process
