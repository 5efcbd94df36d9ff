// Package capacity says how many agents a process should run at once by default: as many as
// the processor is good for, and no more than the limits on open files, processes, threads
// and memory allow. It changes no limit, and does not know what agents really need: weights
// of models in the same process come on top.
package capacity

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/fulgurite/fulgurite/internal/memory"
)

const (
	// PerCore is how many agents run at once on a core: agents mostly wait.
	PerCore = 32
	// filesPerAgent covers the pipes of an agent, and the connections of its calls.
	filesPerAgent = 16
	// threadsPerAgent covers an agent's shim, and an interpreter with its threads.
	threadsPerAgent = 16
	// memoryPerAgent, in bytes, covers an interpreter with a library for HTTP.
	memoryPerAgent = 32 << 20
	// filesPerCall covers a gateway's connection from the forwarder, and that to the sampler.
	filesPerCall = 2
	// ownFiles, ownThreads and ownMemory stay for the process that runs the agents.
	ownFiles, ownThreads, ownMemory = 256, 128, 512 << 20
)

// Limits are the limits on this process and what it starts. 0 means none, or not known.
type Limits struct {
	Files   int   // that one process may have open
	Threads int   // that may be started in addition to those of today
	Memory  int64 // in bytes, of the machine or of the control group around this process
}

// Find returns the limits of this process.
func Find() Limits {
	l := Limits{Threads: freeThreads(), Memory: memory.Limit()}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < 1<<30 {
		l.Files = int(files.Cur) //nolint:gosec // it is below 2^30
	}
	return l
}

// Agents returns how many agents should run at once here. why says which limit makes it less
// than 32 for each core, with numbers, and is empty otherwise.
func Agents() (agents int, why string) { return Find().Agents(runtime.GOMAXPROCS(0)) }

// Agents does what the function of this name does, for so many cores.
func (l Limits) Agents(cores int) (agents int, why string) {
	wanted := PerCore * cores
	agents = wanted
	if n := l.AgentsByFiles(); l.Files > 0 && n < agents {
		agents, why = n, fmt.Sprintf("open files to %d (ulimit -n), and %d agents need %d", l.Files, wanted, FilesFor(wanted))
	}
	if n := l.AgentsByThreads(); l.Threads > 0 && n < agents {
		agents, why = n, fmt.Sprintf("processes and threads to %d more (ulimit -u, pids.max of the control group), and %d agents need %d", l.Threads, wanted, ownThreads+wanted*threadsPerAgent)
	}
	if n := l.AgentsByMemory(); l.Memory > 0 && n < agents {
		agents, why = n, fmt.Sprintf("memory to %d MiB (of the machine, or of the control group), and %d agents need about %d", l.Memory>>20, wanted, (ownMemory+int64(wanted)*memoryPerAgent)>>20)
	}
	return agents, why
}

// AgentsByFiles returns for how many agents there are enough files: at least 1.
func (l Limits) AgentsByFiles() int { return max((l.Files-ownFiles)/filesPerAgent, 1) }

// AgentsByThreads returns for how many agents there are enough processes and threads: at
// least 1.
func (l Limits) AgentsByThreads() int { return max((l.Threads-ownThreads)/threadsPerAgent, 1) }

// AgentsByMemory returns for how many small agents there is enough memory: at least 1.
func (l Limits) AgentsByMemory() int { return int(max((l.Memory-ownMemory)/memoryPerAgent, 1)) }

// Calls returns how many calls a gateway can have in flight: at least 1.
func (l Limits) Calls() int { return max((l.Files-ownFiles)/filesPerCall, 1) }

// FilesFor returns how many files a process with so many agents has to be able to open.
func FilesFor(agents int) int { return ownFiles + agents*filesPerAgent }
