//go:build unix && !linux

package sandbox

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// Check says that this system has no sandboxes.
func Check(context.Context) error { return unavailable() }

// CheckContainer says that this system has no sandboxes.
func CheckContainer(context.Context, Container) error { return unavailable() }

// LimitedBy returns nothing.
func LimitedBy() string { return "" }

// Fix returns nothing: there is no remedy.
func Fix(error) []string { return nil }

func unavailable() error {
	return fmt.Errorf("%w: sandboxes need Linux, and this is %s", ErrUnavailable, runtime.GOOS)
}

// Sandbox is a program in a sandbox.
type Sandbox struct{ Pid int }

// Start returns ErrUnavailable.
func Start(context.Context, Policy, []string, *os.File, *os.File, *os.File) (*Sandbox, error) {
	return nil, unavailable()
}

// Contained returns false.
func (*Sandbox) Contained() bool { return false }

// Send does nothing.
func (*Sandbox) Send(syscall.Signal) {}

// Over returns nil.
func (*Sandbox) Over() <-chan struct{} { return nil }

// Code returns 0.
func (*Sandbox) Code() int { return 0 }

// Signal returns 0.
func (*Sandbox) Signal() int { return 0 }

// Close does nothing.
func (*Sandbox) Close() {}
