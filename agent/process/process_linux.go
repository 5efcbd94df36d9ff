package process

import (
	"fmt"
	"os"
	"path/filepath"
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
