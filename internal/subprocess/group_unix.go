//go:build unix

package subprocess

import (
	"os/exec"
	"syscall"
)

func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		KillGroup(command)
		return nil
	}
}

// KillGroup kills the remaining processes of the command's group. Usually there are none
// left, so it ignores the error.
func KillGroup(command *exec.Cmd) {
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
}
