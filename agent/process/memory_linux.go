package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// outOfMemory makes the kernel end a process before all others (proc(5)).
const outOfMemory = "1000"

// preferForOOM makes the kernel end the agent when memory runs out, rather than the
// worker or anything else on the machine.
func preferForOOM(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(outOfMemory), 0)
}

// resident returns how many bytes of memory the descendants of a process have, measured
// by of. Processes that end meanwhile count 0.
func resident(pid int, of func(process string) int64) int64 {
	sum := int64(0)
	for _, child := range children(pid) {
		sum += of("/proc/"+strconv.Itoa(child)) + resident(child, of)
	}
	return sum
}

// children returns the processes that the threads of a process started or adopted.
// Kernels may be built without lists of them; then it looks at all processes.
func children(pid int) []int {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return childrenAmongAll(pid)
	}
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children") // the pattern is good
	var all []int
	for _, name := range lists {
		list, err := os.ReadFile(name)
		if err != nil {
			continue // the thread is gone
		}
		for _, field := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// residentSet returns the bytes of a process's resident pages, from the second field of
// its statm.
func residentSet(process string) int64 {
	statm, err := os.ReadFile(process + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64) // 0 for what isn't a number
	return pages * int64(os.Getpagesize())
}

// proportionalSet returns a process's share of its resident pages ("Pss: 123 kB"): what n
// processes have in common counts an n-th for each.
func proportionalSet(process string) int64 {
	rollup, err := os.ReadFile(process + "/smaps_rollup")
	if err != nil {
		return residentSet(process) // old kernel, or not ours to look at
	}
	for line := range bytes.Lines(rollup) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "Pss:" {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10
		}
	}
	return residentSet(process)
}
