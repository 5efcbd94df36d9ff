package process

import "time"

// limitsEvery is how often a shim measures what its agent has taken. Between two looks an
// agent can exceed its limit by the pages that it fills in a tenth of a second, some
// hundred MiB at the most.
const limitsEvery = 100 * time.Millisecond

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
		tick := time.NewTicker(limitsEvery)
		defer tick.Stop()
		for {
			select {
			case <-empty:
				return
			case <-tick.C:
			}
			if taken := exceeded(limits, root); taken != (Report{}) {
				over <- taken
				return
			}
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
// with too many of them, the other figures take long.
func exceeded(limits Report, root int) Report {
	if limits.Processes > 0 {
		if taken := threadsUpTo(root, limits.Processes); taken > limits.Processes {
			return Report{Processes: taken}
		}
	}
	// The quick figure counts shared memory once for each process. Only if it is too high
	// does the slow and exact figure decide.
	if limits.Memory > 0 && sumOver(root, residentSet) > limits.Memory {
		if taken := sumOver(root, proportionalSet); taken > limits.Memory {
			return Report{Memory: taken}
		}
	}
	if limits.CPU > 0 {
		if taken := time.Duration(processorTime(procOf(root)) + sumOver(root, processorTime)); taken > limits.CPU {
			return Report{CPU: taken}
		}
	}
	return Report{}
}

// threadsUpTo counts the threads of the descendants of root, and stops beyond the limit.
func threadsUpTo(root, limit int) int {
	count := 0
	for queue := children(root); len(queue) > 0 && count <= limit; {
		pid := queue[0]
		count += threads(procOf(pid))
		queue = append(queue[1:], children(pid)...)
	}
	return count
}
