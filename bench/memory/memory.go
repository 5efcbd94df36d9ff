// Package memory reads what Linux says of a process's memory.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Of returns the resident memory of a process in bytes, now and at its peak. process is a
// process id, or "self". Both are 0 if there is no /proc.
func Of(process string) (resident, peak int64) {
	is := lines(process, "status")
	return is["VmRSS:"], is["VmHWM:"]
}

// Own returns the part of a process's resident memory that no file backs, in bytes.
func Own(process string) int64 { return lines(process, "status")["RssAnon:"] }

// Share returns a process's resident memory in bytes, with each shared page divided among
// the processes that share it.
func Share(process string) int64 { return lines(process, "smaps_rollup")["Pss:"] }

// lines returns the amounts in a file of /proc, converted from kB to bytes, by name.
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
