//go:build linux

// Package ptytest opens pseudo-terminals, so that tests see what a person at a terminal
// would see. It is for tests on Linux. It is not a terminal emulator: it shows which
// bytes arrive, not how they would look.
//
// Both ends are closed when the test ends.
package ptytest

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Open returns the two ends of a terminal of the given size in characters: what
// a program writes to tty can be read from screen, with line feeds as carriage
// return and line feed.
func Open(t *testing.T, width, height int) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() }) // a test may have closed it
	fd := int(screen.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{
		Col: uint16(width), Row: uint16(height),
	}))
	return screen, tty
}
