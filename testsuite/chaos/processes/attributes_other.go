//go:build !linux

package processes

import "syscall"

// attributes give a process a group of its own, so that an interrupt from the
// keyboard reaches this one alone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
