package processes

import "syscall"

// attributes give a process a group of its own, so that an interrupt from the
// keyboard reaches this one alone, and end it when this one dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
