package doctor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/fulgurite/fulgurite/internal/capacity"
	"github.com/fulgurite/fulgurite/internal/readable"
)

// Limits says how much a process does at once here, and which limits that follows.
type Limits struct {
	// Agents is how many agents a process runs at once unless it is told otherwise. Limit
	// says what makes it less than 32 for each core, and is empty otherwise.
	Agents int    `json:"agents"`
	Limit  string `json:"limit,omitempty"`
	// Calls is how many calls a gateway can have in flight; 0 if nothing limits them.
	Calls int `json:"calls,omitempty"`
	// Files is how many files a process may have open, Threads how many processes and
	// threads may be started in addition to those of today, and Memory how many bytes the
	// machine or the container has. 0 means no limit, or that it is not known.
	Files   int   `json:"files,omitempty"`
	Threads int   `json:"threads,omitempty"`
	Memory  int64 `json:"memory,omitempty"`
}

func findLimits(context.Context) []Finding {
	return limitFindings(capacity.Find(), runtime.GOMAXPROCS(0))
}

// limitFindings describes limits on a machine with so many cores.
func limitFindings(l capacity.Limits, cores int) []Finding {
	facts := Limits{Files: l.Files, Threads: l.Threads, Memory: l.Memory}
	facts.Agents, facts.Limit = l.Agents(cores)
	wanted := capacity.PerCore * cores
	text := fmt.Sprintf("%s at once, %d for each of %s", readable.Count(facts.Agents, "agent"), capacity.PerCore, readable.Count(cores, "core"))
	if facts.Limit != "" {
		text = fmt.Sprintf("%s at once, because the system limits %s", readable.Count(facts.Agents, "agent"), facts.Limit)
	}
	agents := Finding{Subject: "limits", State: Found, Text: text + "; --agents, or --concurrency of a worker, sets another number"}
	files := Finding{Subject: "limits", State: Found, Text: "open files of a process (ulimit -n): no limit"}
	if l.Files > 0 {
		facts.Calls = l.Calls()
		files.Text = fmt.Sprintf("open files of a process (ulimit -n): %d, enough for %s, or for %s in flight in a gateway", l.Files, readable.Count(l.AgentsByFiles(), "agent"), readable.Count(l.Calls(), "call"))
		switch needed := capacity.FilesFor(wanted); {
		case l.Files < capacity.FilesFor(1):
			files.State = Missing
			files.Text = fmt.Sprintf("open files of a process (ulimit -n): %d, and a process with one agent needs %d, with %d agents %d", l.Files, capacity.FilesFor(1), wanted, needed)
			fallthrough
		case l.Files < needed:
			files.Fix = []string{
				fmt.Sprintf("ulimit -n %d", needed), fmt.Sprintf("LimitNOFILE=%d in the unit of systemd; `docker run --ulimit nofile=%d` for a container", needed, needed),
			}
		}
	}
	threads := Finding{Subject: "limits", State: Found, Text: "processes and threads (ulimit -u, pids.max of control groups): no limit that is known"}
	if l.Threads > 0 {
		threads.Text = fmt.Sprintf("processes and threads (ulimit -u, pids.max of control groups): %d more than now, enough for %s", l.Threads, readable.Count(l.AgentsByThreads(), "agent"))
	}
	room := Finding{Subject: "limits", State: Unknown, Text: "memory for agents: this system does not report how much there is"}
	if l.Memory > 0 {
		room.State = Found
		room.Text = fmt.Sprintf("memory (of the machine, or memory.max of control groups): %s, enough for %s without weights", bytesText(l.Memory), readable.Count(l.AgentsByMemory(), "small agent"))
	}
	agents.Facts = facts
	return []Finding{agents, files, threads, room}
}
