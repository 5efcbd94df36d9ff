//go:build unix

package subprocess_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/subprocess"
)

// holder is a script whose child holds the write end of a named pipe open, and so shows
// when it ends.
const holder = `sleep 1000 > "$1" & `

// requireEnds waits until nobody holds the named pipe open.
func requireEnds(t *testing.T, pipe *os.File) {
	t.Helper()
	require.NoError(t, pipe.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := pipe.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorContains(t, err, "EOF", "the child is still there")
}

// fifo makes a named pipe, and opens it as soon as somebody writes there.
func fifo(t *testing.T) (name string, opened <-chan *os.File) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, exec.CommandContext(t.Context(), "mkfifo", name).Run())
	files := make(chan *os.File, 1)
	go func() {
		f, err := os.Open(name)
		if err == nil {
			files <- f
		}
		close(files)
	}()
	return name, files
}

func TestWhatACommandLeavesRunningIsKilled(t *testing.T) {
	t.Parallel()
	name, opened := fifo(t)
	command := exec.CommandContext(t.Context(), "sh", "-c", holder+"exit 3", "sh", name)
	subprocess.OwnGroup(command)
	started, err := subprocess.Run(command)
	require.True(t, started)
	require.ErrorContains(t, err, "exit status 3")
	select {
	case f := <-opened:
		defer f.Close()
		requireEnds(t, f)
	case <-time.After(time.Second): // it was killed before it opened the pipe
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

func TestAContextEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	name, opened := fifo(t)
	ctx, cancel := context.WithCancel(t.Context())
	command := exec.CommandContext(ctx, "sh", "-c", holder+"wait", "sh", name)
	subprocess.OwnGroup(command)
	done := make(chan error, 1)
	go func() {
		_, err := subprocess.Run(command)
		done <- err
	}()
	f := <-opened
	defer f.Close()
	cancel()
	require.Error(t, <-done)
	requireEnds(t, f)
}

func TestACommandThatDoesNotExistDoesNotStart(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), filepath.Join(t.TempDir(), "none"))
	subprocess.OwnGroup(command)
	started, err := subprocess.Run(command)
	require.False(t, started)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestATailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	tail := subprocess.NewTail(4)
	_, err := tail.Write([]byte("abcd"))
	require.NoError(t, err)
	require.False(t, tail.Cut())
	require.Equal(t, "abcd", tail.String())
	_, err = tail.Write([]byte(strings.Repeat("x", 100) + "wxyz"))
	require.NoError(t, err)
	require.True(t, tail.Cut())
	require.Equal(t, "wxyz", tail.String())
}
