package process

import "time"

// A shim measures what its agent has taken every limitsEvery, and less and less often, down
// to limitsIdle, while the agent uses no processor: each look costs about as much whatever
// the agent does, and many agents sleep most of their time. Between two looks an agent can
// exceed its limit by the pages that it fills meanwhile: some hundred MiB, or the fivefold
// if it was idle before.
const (
	limitsEvery = 100 * time.Millisecond
	limitsIdle  = 500 * time.Millisecond
)

// beyond watches the descendants of root until none is left. When they exceed a limit, it
// sends once what they took.
//
// A kernel limit on the memory of each process (RLIMIT_DATA, RLIMIT_AS) would be exact and
// wrong: it counts reserved memory, and the runtimes in which agents are written reserve a
// multiple of what they use. The kernel's limits on processes don't hold for root, and
// those on processor time hold for each process alone.
func beyond(terms Terms, root int, empty <-chan struct{}) <-chan Report {
	over := make(chan Report, 1)
	limits := limitsOf(terms)
	if limits == (Report{}) {
		return over
	}
	go func() {
		pause, before := limitsEvery, time.Duration(0)
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for {
			select {
			case <-empty:
				return
			case <-timer.C:
			}
			taken := usageBelow(root, limits.Processes)
			if report := exceeded(limits, taken, root); report != (Report{}) {
				over <- report
				return
			}
			if taken.cpu == before {
				pause = min(2*pause, limitsIdle)
			} else {
				pause = limitsEvery
			}
			before = taken.cpu
			timer.Reset(pause)
		}
	}()
	return over
}

// limitsOf returns the limits to watch, 0 where there is none.
func limitsOf(t Terms) Report {
	limits := Report{Memory: t.Memory}
	if t.Sandbox != nil {
		limits.Processes, limits.CPU = t.Sandbox.Limits.MaxProcesses(), t.Sandbox.Limits.CPU
	}
	return limits
}

// exceeded returns what the descendants of root take beyond a limit. Processes come first:
// with too many of them, the other figures are not whole.
func exceeded(limits Report, taken usage, root int) Report {
	if limits.Processes > 0 && taken.processes > limits.Processes {
		return Report{Processes: taken.processes}
	}
	// The quick figure counts shared memory once for each process. Only if it is too high
	// does the slow and exact figure decide.
	if limits.Memory > 0 && taken.resident > limits.Memory {
		if exact := proportionalSetBelow(root); exact > limits.Memory {
			return Report{Memory: exact}
		}
	}
	if limits.CPU > 0 && taken.cpu > limits.CPU {
		return Report{CPU: taken.cpu}
	}
	return Report{}
}

// usage is what processes take together.
type usage struct {
	processes int           // with their threads
	resident  int64         // bytes of memory; what processes share counts for each of them
	cpu       time.Duration // with that of processes that ended
}
