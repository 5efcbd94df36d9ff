//go:build !unix

package subprocess

import "os/exec"

func ownGroup(*exec.Cmd) {}

// KillGroup does nothing: these systems have no process groups.
func KillGroup(*exec.Cmd) {}
