package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

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
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(fields[1])) // 0 for what isn't a number
	return ppid
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
