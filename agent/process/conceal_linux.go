package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Conceal keeps other processes of the user, such as agents, from reading this one's
// environment and memory and from tracing it: the keys of all attempts and the
// addresses and passwords of stores are there. Only who may trace anything
// (CAP_SYS_PTRACE) still can. It leaves no core dumps. It lasts until another program
// is executed in the process's place, so that it can't be done for agents.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("conceal this process from others of its user: %w", err)
	}
	return nil
}
