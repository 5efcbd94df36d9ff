package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Conceal keeps other processes of the user, such as agents, from reading this one's
// environment and memory and from tracing it: the keys of all attempts and the addresses
// and passwords of stores are there. Only a process that may trace any other
// (CAP_SYS_PTRACE) still can. The process leaves no core dumps any more. All this ends
// when the process executes another program, so agents can't be protected like this.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide this process from others of its user: %w", err)
	}
	return nil
}
