package devserver_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/fulgurite/fulgurite/internal/devserver"
)

// childDir makes this test binary a server on the directory it names, until it
// is killed.
const childDir = "FULGURITE_DEVSERVER_CHILD_DIR"

func TestMain(m *testing.M) {
	if address := os.Getenv(workerAddress); address != "" {
		fmt.Println("error:", workUntilKilled(address))
		os.Exit(1)
	}
	if dir := os.Getenv(childDir); dir != "" {
		s, err := devserver.Start(context.Background(), devserver.Options{Dir: dir})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(s.Address())
		select {} // the parent kills it
	}
	os.Exit(m.Run())
}

// startServer starts a server in a separate process.
func startServer(t *testing.T, dir string) (process *os.Process, address string) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childDir+"="+dir)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill() // most tests have done so
		_ = command.Wait()         // "signal: killed"
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return command.Process, strings.TrimSpace(line)
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}

func TestWorkflowsContinueAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	process, address := startServer(t, dir)
	c, err := client.Dial(client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	w := newWorker(c)
	require.NoError(t, w.Start())
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "one", TaskQueue: queue}, CollectSignals)
	require.NoError(t, err)
	require.NoError(t, c.SignalWorkflow(t.Context(), "one", "", signal, "before"))
	requireCollected(t, c, []string{"before"})

	_, err = devserver.Start(t.Context(), devserver.Options{Dir: dir})
	require.ErrorIs(t, err, devserver.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", process.Pid))

	require.NoError(t, process.Kill())
	_, err = process.Wait()
	require.NoError(t, err)
	w.Stop()
	c.Close()

	c = connect(t, start(t, devserver.Options{Dir: dir}))
	work(t, c)
	require.NoError(t, c.SignalWorkflow(t.Context(), "one", run.GetRunID(), signal, "after"))
	var got []string
	require.NoError(t, c.GetWorkflow(t.Context(), "one", run.GetRunID()).Get(t.Context(), &got))
	require.Equal(t, []string{"before", "after"}, got)
}

// requireCollected asks the workflow, which answers once its worker has handled
// the signals sent before.
func requireCollected(t *testing.T, c client.Client, want []string) {
	t.Helper()
	reply, err := c.QueryWorkflow(t.Context(), "one", "", query)
	require.NoError(t, err)
	var got []string
	require.NoError(t, reply.Get(&got))
	require.Equal(t, want, got)
}
