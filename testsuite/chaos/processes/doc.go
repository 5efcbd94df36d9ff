// Package processes starts a whole fleet of real processes on one machine, PostgreSQL
// and Temporal among them, and lets a test kill, suspend and restart them.
//
//	f, err := processes.Start(ctx, processes.Options{Dir: dir, Bin: "bin"})
//	…
//	f.Kill(processes.Gateway)
//	f.Restart(ctx, processes.Gateway)
//	f.Hang(processes.Sampler)
//	f.Resume(processes.Sampler)
//	err = f.Close()
//
// It only starts and signals processes. Tests read the outcome of a run from the store
// at [Fleet.Store], Temporal at [Fleet.Temporal] and the sampler's log in
// [Fleet.Generations].
//
// Guarantees: everything of a fleet lies in its directory, each process appends to a log
// of its own there, and no process outlives the one that started it (on Linux; elsewhere,
// Close ends them). Addresses of PostgreSQL and Temporal stay the same over restarts;
// gateway and sampler come back at others, and are found through their leases.
package processes
