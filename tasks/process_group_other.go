//go:build !unix

package tasks

import "os/exec"

// ownGroup does nothing: without process groups, only the command itself is killed.
func ownGroup(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}
