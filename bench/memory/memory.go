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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%s/status", process))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // 0 where it is no number: another line
		switch fields[0] {
		case "VmRSS:":
			resident = kilobytes << 10
		case "VmHWM:":
			peak = kilobytes << 10
		}
	}
	return resident, peak
}
