//go:build unix && !linux

package agent

import (
	"os"
	"syscall"
)

// self names this process's executable.
func self() (string, error) { return os.Executable() }

// ownGroup is a process group for the agent.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adopt and killAdopted need Linux: elsewhere descendants that leave the
// agent's group are not found.
func adopt()       {}
func killAdopted() {}

// tellsShims says that a shim is told from a later process of the same number.
const tellsShims = false

// endShim sends no signal, which might hit another process. It reports whether
// there is one of that number.
func endShim(pid int, _ *os.File, _ syscall.Signal) bool { return syscall.Kill(pid, 0) == nil }
