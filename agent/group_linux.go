package agent

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// self names this process's executable even after the file was replaced.
func self() (string, error) { return "/proc/self/exe", nil }

// ownGroup is a process group for the agent, which dies with its shim.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopt makes orphaned descendants children of this process, so that those
// that left the agent's group are found too.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// killAdopted kills every child of this process. Their own children are adopted
// by that, and killed by the next call.
func killAdopted() {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	me := os.Getpid()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parent(pid) == me {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// parent reads a process's parent from /proc/pid/stat: "pid (name) state ppid …",
// where the name may hold anything. It is 0 when the process is gone.
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
