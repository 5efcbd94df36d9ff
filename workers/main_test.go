package workers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers"
)

// asCommand makes this binary the command, for tests that need a separate process.
const asCommand = "FULGURITE_WORKER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		workers.Main(builtin.Agents())
	}
	os.Exit(m.Run())
}

// output is what a process logs. It may be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await returns when text was logged.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(o.String(), text) }, 20*time.Second, 5*time.Millisecond, "%s", text)
}

// running is a command in this process.
type running struct {
	log  output
	stop context.CancelFunc // as a signal does
	code chan int
}

func begin(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{stop: cancel, code: make(chan int, 1)}
	var ended sync.WaitGroup
	ended.Go(func() { r.code <- workers.Run(ctx, args, &r.log) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return r
}

// state returns the database of a store, and the flags that name it and its blobs.
func state(t *testing.T) (database string, flags []string) {
	t.Helper()
	dir := t.TempDir()
	database = filepath.Join(dir, "store.db")
	return database, []string{"--store", database, "--blobs", filepath.Join(dir, "blobs"), "--wait", "20s"}
}

func open(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// leased returns the URL of the one process of a role.
func leased(t *testing.T, s *store.Store, role record.Role) string {
	t.Helper()
	list, err := s.Leases(t.Context(), role)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0].URL
}

func TestProcessesServeUntilASignalAndThenLetGo(t *testing.T) {
	t.Parallel()
	for command, role := range map[string]record.Role{"sampler": record.Sampler, "gateway": record.Gateway} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			database, flags := state(t)
			s := open(t, database)
			r := begin(t, append([]string{command, "--metrics-listen", "127.0.0.1:0"}, flags...)...)
			r.log.await(t, `"msg":"started"`)
			url := leased(t, s, role) + "/healthz"
			require.Contains(t, metricsOf(t, r.log.String()), fmt.Sprintf("\nfulgurite_lease_held{role=%q} 1\n", role))
			require.Zero(t, workers.Run(t.Context(), []string{"health", "--url", url}, io.Discard))
			r.stop()
			require.Zero(t, <-r.code, r.log.String())
			require.Contains(t, r.log.String(), `"msg":"draining"`)
			list, err := s.Leases(t.Context(), role)
			require.NoError(t, err)
			require.Empty(t, list, "nobody looks for it any more")
			require.Equal(t, workers.ExitFailed, workers.Run(t.Context(), []string{"health", "--url", url}, io.Discard))
		})
	}
}

// metricsOf returns the metrics of the process with this log.
func metricsOf(t *testing.T, log string) string {
	t.Helper()
	address := regexp.MustCompile(`"msg":"showing metrics".*"url":"([^"]+)"`).FindStringSubmatch(log)
	require.NotNil(t, address, log)
	response, err := http.Get(address[1])
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

func TestAnAddressForMetricsThatIsInUseIsNamed(t *testing.T) {
	t.Parallel()
	database, flags := state(t)
	open(t, database)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	r := begin(t, append([]string{"gateway", "--metrics-listen", l.Addr().String()}, flags...)...)
	require.Equal(t, workers.ExitFailed, <-r.code)
	require.Contains(t, r.log.String(), "--metrics-listen: listen on "+l.Addr().String())
}

func TestAProcessWaitsForWhatIsNotThereYet(t *testing.T) {
	t.Parallel()
	database, flags := state(t)
	r := begin(t, append([]string{"gateway"}, flags...)...)
	r.log.await(t, `"for":"store"`)
	open(t, database)
	r.log.await(t, `"msg":"started"`)
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"gateway", "--store", filepath.Join(dir, "empty.db")},
		{"gateway", "--store", "postgres://somebody:hunter2@127.0.0.1:1/x"},
		{"migrate", "--store", filepath.Join(dir, "store.db"), "--temporal-address", "127.0.0.1:1"},
	} {
		r := begin(t, append(args, "--blobs", filepath.Join(dir, "blobs"), "--wait", "300ms")...)
		require.Equal(t, workers.ExitFailed, <-r.code)
		require.Contains(t, r.log.String(), `"level":"error"`)
		require.NotContains(t, r.log.String(), "hunter2", "a password in the log")
	}
}

func TestASignalEndsTheWaiting(t *testing.T) {
	t.Parallel()
	_, flags := state(t)
	r := begin(t, append([]string{"cpu"}, flags...)...)
	r.log.await(t, `"msg":"waiting"`)
	r.stop()
	require.Zero(t, <-r.code)
}

func TestBadUsageStartsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{}, {"cpu"}, {"trainer"}, {"health"},
		{"gpu", "--store", dir + "/s", "--blobs", dir + "/b", "--engine", "abacus"},
		{"cpu", "--store", dir + "/s", "--blobs", dir + "/b", "--log-level", "loud"},
		{"cpu", "--store", dir + "/s", "--blobs", dir + "/b", "--only"},
		{"sampler", "--store", dir + "/s", "--blobs", dir + "/b", "--drain", "soon"},
	} {
		require.Equal(t, workers.ExitUsage, workers.Run(t.Context(), args, io.Discard), "%v", args)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOnlyOneGatewayAnswers(t *testing.T) {
	t.Parallel()
	database, flags := state(t)
	s := open(t, database)
	older := begin(t, append([]string{"gateway", "--name", "older"}, flags...)...)
	older.log.await(t, `"msg":"started"`)
	first := leased(t, s, record.Gateway)
	newer := begin(t, append([]string{"gateway", "--name", "newer"}, flags...)...)
	newer.log.await(t, `"msg":"started"`)
	require.NotEqual(t, first, leased(t, s, record.Gateway))
	older.log.await(t, `"msg":"lease lost"`)
	response, err := http.Get(first + "/v1/models")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Equal(t, "standby", response.Header.Get("X-Fulgurite-Fault"))
}

func TestASecondSignalEndsAProcessThatDrains(t *testing.T) {
	t.Parallel()
	database, flags := state(t)
	s := open(t, database)
	process := exec.CommandContext(t.Context(), os.Args[0], append([]string{"gateway"}, flags...)...)
	process.Env = append(os.Environ(), asCommand+"=1")
	var log output
	process.Stderr = &log
	require.NoError(t, process.Start())
	log.await(t, `"msg":"started"`)

	// A request that never ends holds the drain up.
	conn, err := net.Dial("tcp", strings.TrimPrefix(leased(t, s, record.Gateway), "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprint(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, len("HTTP/1.1 100")))
	require.NoError(t, err)

	require.NoError(t, process.Process.Signal(syscall.SIGTERM))
	log.await(t, `"msg":"draining"`)
	require.NoError(t, process.Process.Signal(syscall.SIGTERM))
	require.Error(t, process.Wait())
	require.Equal(t, syscall.SIGTERM, process.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.NotContains(t, log.String(), `"msg":"ended"`)
}

func TestAProcessSaysWhatItWasBuiltFrom(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0], "version", "--json")
	command.Env = append(os.Environ(), asCommand+"=1")
	text, err := command.Output()
	require.NoError(t, err)
	var b build.Build
	require.NoError(t, json.Unmarshal(text, &b))
	require.Equal(t, build.This(kernel.Best().Name()).Kernels, b.Kernels)
	require.Equal(t, runtime.Version(), b.Go)
}
