//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// executable names this process's executable.
func executable() (string, error) { return os.Executable() }

// ownGroup is a process group for the agent.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// becomeSubreaper and killChildren need Linux: elsewhere descendants that leave the
// agent's group are not found.
func becomeSubreaper() {}
func killChildren()    {}

// identifiesShims says that a shim is told from a later process of the same number.
const identifiesShims = false

// signalShim sends no signal, which might hit another process. It reports whether a
// process with that number exists.
func signalShim(pid int, _ *os.File, _ syscall.Signal) bool { return syscall.Kill(pid, 0) == nil }
