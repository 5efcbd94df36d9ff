// Package processes starts a whole fleet of real processes on one machine, including
// PostgreSQL and Temporal. A test can kill, suspend and restart them.
//
//	f, err := processes.Start(ctx, processes.Options{Dir: dir, Bin: "bin"})
//	…
//	f.Kill(processes.Gateway)
//	f.Restart(ctx, processes.Gateway)
//	f.Hang(processes.Sampler)
//	f.Resume(processes.Sampler)
//	err = f.Close()
//
// It only starts processes and sends them signals. Tests read the outcome of a run from
// the store at [Fleet.Store], from Temporal at [Fleet.Temporal] and from the sampler's
// log in [Fleet.Generations].
//
// Guarantees: All files of a fleet are in its directory, where each process has its own
// log. No process outlives the one that started it (on Linux; on other systems, Close
// ends them). The addresses of PostgreSQL and Temporal stay the same after a restart. The
// gateway and the sampler get new ones, and are found through their leases.
package processes
