package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// executable returns a path of this process's executable that works even after the file
// was replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// ownGroup returns the attributes of an agent that has its own process group and dies
// with its shim.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// becomeSubreaper makes orphaned descendants children of this process, so that those
// that left the agent's group are found too.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// killChildren kills every child of this process. This process then adopts their
// children, and the next call kills those.
func killChildren() {
	for _, pid := range childrenAmongAll(os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// childrenAmongAll looks for a process's children among all processes of the machine.
func childrenAmongAll(parentOf int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parent(pid) == parentOf {
			all = append(all, pid)
		}
	}
	return all
}

// parent reads a process's parent from /proc/pid/stat: "pid (name) state ppid …", where
// the name may hold anything. It returns 0 if the process is gone.
func parent(pid int) int {
	fields := statusOf(procOf(pid))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(fields[1])) // 0 for what isn't a number
	return ppid
}

// statusOf returns the fields of a process's stat after its name, none if it is gone.
func statusOf(process string) [][]byte {
	stat, err := os.ReadFile(process + "/stat")
	if err != nil {
		return nil
	}
	return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
}

// tick is the unit of times in a process's stat (USER_HZ), the same on every machine that
// Go runs on.
const tick = time.Second / 100

// processorTime returns the processor time, in nanoseconds, of a process and of those of its
// children that it has waited for.
func processorTime(process string) int64 {
	fields := statusOf(process)
	if len(fields) < 15 {
		return 0
	}
	sum := int64(0)
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, _ := strconv.ParseInt(string(field), 10, 64) // 0 for what isn't a number
		sum += ticks
	}
	return sum * int64(tick)
}

// threads returns how many threads a process has.
func threads(process string) int {
	fields := statusOf(process)
	if len(fields) < 18 {
		return 0
	}
	n, _ := strconv.Atoi(string(fields[17])) // 0 for what isn't a number
	return n
}

// shimNice is the priority of the shim of an isolated agent.
const shimNice = -10

// riseAbove gives this process a higher priority than the agent, so that it can count and
// end the agent's processes however many there are. Only root may, and only for root does
// the kernel not bound processes itself.
func riseAbove() {
	tasks, _ := filepath.Glob("/proc/self/task/*") // the pattern is good
	for _, task := range tasks {
		if id, err := strconv.Atoi(filepath.Base(task)); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, shimNice)
		}
	}
}

// identifiesShims says whether a shim can be distinguished from a later process with the
// same id.
const identifiesShims = true

// signalShim sends a signal to a process if it is a shim that holds the lock. It
// reports whether it is.
func signalShim(pid int, lock *os.File, s syscall.Signal) bool {
	held, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(lockFD))
	if err != nil {
		return false
	}
	mine, err := lock.Stat()
	return err == nil && os.SameFile(held, mine) && syscall.Kill(pid, s) == nil
}

// Conceal keeps other processes of the user, such as agents, from reading this one's
// environment and memory and from tracing it: the keys of all attempts and the addresses
// and passwords of stores are there. Only a process that may trace any other
// (CAP_SYS_PTRACE) still can. The process leaves no core dumps any more. All this ends
// when the process executes another program, so agents can't be protected like this.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide this process from others of its user: %w", err)
	}
	return nil
}

// outOfMemory makes the kernel end a process before all others (proc(5)).
const outOfMemory = "1000"

// preferForOOM makes the kernel end the agent when memory runs out, rather than the
// worker or anything else on the machine.
func preferForOOM(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(outOfMemory), 0)
}

// sumOver returns the sum of a figure over the descendants of a process. Processes that end
// meanwhile count 0.
func sumOver(pid int, of func(process string) int64) int64 {
	sum := int64(0)
	for _, child := range children(pid) {
		sum += of(procOf(child)) + sumOver(child, of)
	}
	return sum
}

// procOf returns the directory that describes a process.
func procOf(pid int) string { return "/proc/" + strconv.Itoa(pid) }

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
