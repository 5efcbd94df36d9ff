//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// executable returns the path of this process's executable.
func executable() (string, error) { return os.Executable() }

// ownGroup returns the attributes of an agent that has its own process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// becomeSubreaper and killChildren need Linux. On other systems, descendants that leave
// the agent's group are not found.
func becomeSubreaper() {}
func killChildren()    {}

// identifiesShims says whether a shim can be distinguished from a later process with the
// same id.
const identifiesShims = false

// signalShim sends no signal, which might hit another process. It reports whether a
// process with that number exists.
func signalShim(pid int, _ *os.File, _ syscall.Signal) bool { return syscall.Kill(pid, 0) == nil }
