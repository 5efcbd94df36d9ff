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
