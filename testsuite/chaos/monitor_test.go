package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

func TestARecoveryIsMeasuredFromTheKillToTheNextProgress(t *testing.T) {
	t.Parallel()
	w := newWatch(nil)
	at := func(ms int) time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	w.see(at(0), at(1), 7)
	w.killed(processes.Gateway, at(100))
	// Asked for before the kill: what it says may be older than the last piece of
	// work that was kept before it.
	w.see(at(99), at(101), 8)
	require.Empty(t, w.recoveries())
	w.see(at(200), at(201), 9)
	w.see(at(300), at(301), 9)
	require.Empty(t, w.recoveries(), "9 had been reached before")
	w.killed(processes.CPU1, at(350))
	w.see(at(400), at(401), 10)
	w.see(at(500), at(501), 12)
	require.Equal(t, map[processes.Role][]time.Duration{
		processes.Gateway: {301 * time.Millisecond}, processes.CPU1: {151 * time.Millisecond},
	}, w.recoveries())
	w.see(at(600), at(601), 20)
	require.Len(t, w.recoveries()[processes.Gateway], 1, "each kill is measured once")
}

func TestChildrenAreFound(t *testing.T) {
	t.Parallel()
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	require.Contains(t, children(os.Getpid()), child.Process.Pid)
	require.Empty(t, children(child.Process.Pid))
	require.Empty(t, children(0))
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
}
