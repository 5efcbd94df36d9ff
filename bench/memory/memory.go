// Package memory reads what Linux says of a process's memory.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Of is the resident memory of a process in bytes, now and at most so far; process is its
// id, or "self". Both are 0 where there is no /proc.
func Of(process string) (resident, peak int64) {
	is := lines(process, "status")
	return is["VmRSS:"], is["VmHWM:"]
}

// Own is the part of a process's resident memory that no file backs, in bytes.
func Own(process string) int64 { return lines(process, "status")["RssAnon:"] }

// Share is a process's resident memory when each page is divided among the
// processes that have it, in bytes.
func Share(process string) int64 { return lines(process, "smaps_rollup")["Pss:"] }

// lines are the numbers of kB in a file of /proc, in bytes.
func lines(process, file string) map[string]int64 {
	out := map[string]int64{}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/%s", process, file))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // 0 where it is no number: another line
		out[fields[0]] = kilobytes << 10
	}
	return out
}
