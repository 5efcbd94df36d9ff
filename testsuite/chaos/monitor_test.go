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
	m := newMonitor(nil)
	at := func(ms int) time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	m.observe(at(0), at(1), 7)
	m.killed(processes.Gateway, at(100))
	// This count was requested before the kill, so it may not include the last work that
	// was recorded before it.
	m.observe(at(99), at(101), 8)
	require.Empty(t, m.recoveries())
	m.observe(at(200), at(201), 9)
	m.observe(at(300), at(301), 9)
	require.Empty(t, m.recoveries(), "9 had been reached before")
	m.killed(processes.CPU1, at(350))
	m.observe(at(400), at(401), 10)
	m.observe(at(500), at(501), 12)
	require.Equal(t, map[processes.Role][]time.Duration{
		processes.Gateway: {301 * time.Millisecond}, processes.CPU1: {151 * time.Millisecond},
	}, m.recoveries())
	m.observe(at(600), at(601), 20)
	require.Len(t, m.recoveries()[processes.Gateway], 1, "each kill is measured once")
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
