//go:build !linux

package processes

import "syscall"

// attributes put a process in its own group, so that an interrupt from the keyboard
// reaches only this program.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
