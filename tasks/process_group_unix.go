//go:build unix

package tasks

import (
	"os/exec"
	"syscall"
)

// ownGroup starts the command in a process group of its own, which is killed as
// a whole when the command's context ends.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		killGroup(command)
		return nil
	}
}

// killGroup kills whatever of the command's group is left. The group may be gone,
// which is the usual case.
func killGroup(command *exec.Cmd) {
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
}
