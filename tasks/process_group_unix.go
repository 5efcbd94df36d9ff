//go:build unix

package tasks

import (
	"os/exec"
	"syscall"
)

// ownGroup starts the command in its own process group. The whole group is killed when
// the command's context ends.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		killGroup(command)
		return nil
	}
}

// killGroup kills the remaining processes of the command's group. Usually there are none
// left, so it ignores the error.
func killGroup(command *exec.Cmd) {
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
}
