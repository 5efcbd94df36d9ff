package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// testTimeout is the longest that a test waits for what must happen.
const testTimeout = 30 * time.Second

func job(run string) agent.Job {
	return agent.Job{
		Address: record.Address{
			RolloutID: record.RolloutID{Run: run, Kind: record.Train, Step: 3, Task: 17, Sample: 2},
			Attempt:   1,
		},
		Task:    agent.Task{ID: "t17", Input: "6*7", Metadata: map[string]any{"level": "easy"}},
		BaseURL: "http://127.0.0.1:1/r/" + run + "/train-3/17/2/1/v1",
		Key:     "secret-of-the-attempt",
	}
}

// liveness lets processes report that they are alive, and notices by their connections
// when they end.
type liveness struct {
	listener net.Listener
	limit    time.Duration
}

// alive is a process that reported.
type alive struct {
	name   string
	parent int
	conn   net.Conn
}

func newLiveness(t *testing.T) liveness {
	t.Helper()
	return newPatientLiveness(t, testTimeout)
}

// newPatientLiveness waits for up to a limit.
func newPatientLiveness(t *testing.T, limit time.Duration) liveness {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(limit)))
	t.Cleanup(func() { _ = listener.Close() })
	return liveness{listener, limit}
}

// environment lets a job's processes report.
func (w liveness) environment() map[string]string {
	return map[string]string{"LIVENESS": w.listener.Addr().String()}
}

// await waits for n processes to report.
func (w liveness) await(t *testing.T, n int) map[string]alive {
	t.Helper()
	living := map[string]alive{}
	for range n {
		conn, err := w.listener.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(w.limit)))
		var l alive
		_, err = fmt.Fscanln(bufio.NewReader(conn), &l.name, &l.parent)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "seen\n")
		require.NoError(t, err)
		l.conn = conn
		living[l.name] = l
	}
	return living
}

// requireDead waits for the end of the process, which closes its connection.
func (l alive) requireDead(t *testing.T) {
	t.Helper()
	_, err := l.conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s still lives", l.name)
}
