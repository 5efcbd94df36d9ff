// Package capacity says how many agents a process should run at once by default: as many as
// the processor is good for, and no more than the limits on open files, processes and
// threads allow. It changes no limit, and knows nothing about memory.
package capacity

import (
	"runtime"
	"syscall"
)

const (
	// perCore is how many agents run at once on a core: agents mostly wait.
	perCore = 32
	// filesPerAgent covers the pipes of an agent, and the connections of its calls.
	filesPerAgent = 16
	// threadsPerAgent covers an agent's shim, and an interpreter with its threads.
	threadsPerAgent = 16
	// ownFiles and ownThreads stay for the process that runs the agents.
	ownFiles, ownThreads = 256, 128
)

// Limits are the limits on this process and what it starts. 0 means none.
type Limits struct {
	Files   int // that one process may have open
	Threads int // that may be started in addition to those of today
}

// Agents returns how many agents should run at once here. why names the limit that makes it
// less than 32 for each core, and is empty otherwise.
func Agents() (agents int, why string) {
	l := Limits{Threads: freeThreads()}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < 1<<30 {
		l.Files = int(files.Cur) //nolint:gosec // it is below 2^30
	}
	return l.Agents(runtime.GOMAXPROCS(0))
}

// Agents does what the function of this name does, for so many cores.
func (l Limits) Agents(cores int) (agents int, why string) {
	agents = perCore * cores
	if l.Files > 0 {
		if most := max((l.Files-ownFiles)/filesPerAgent, 1); most < agents {
			agents, why = most, "open files (ulimit -n)"
		}
	}
	if l.Threads > 0 {
		if most := max((l.Threads-ownThreads)/threadsPerAgent, 1); most < agents {
			agents, why = most, "processes and threads (ulimit -u, pids.max of the control group)"
		}
	}
	return agents, why
}
