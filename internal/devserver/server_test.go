package devserver_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/internal/devserver"
)

func start(t *testing.T, options devserver.Options) *devserver.Server {
	t.Helper()
	s, err := devserver.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func connect(t *testing.T, s *devserver.Server) client.Client {
	t.Helper()
	c, err := s.Client(t.Context())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestWorkflowsRunOnAServerInMemory(t *testing.T) {
	t.Parallel()
	s := start(t, devserver.Options{})
	require.Empty(t, s.UIURL())
	c := connect(t, s)
	work(t, c)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "one", TaskQueue: queue}, AwaitSignal)
	require.NoError(t, err)
	require.NoError(t, c.SignalWorkflow(t.Context(), "one", "", signal, "hello"))
	var got string
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, "hello", got)
}

func TestServersInMemoryAreApart(t *testing.T) {
	t.Parallel()
	a, b := connect(t, start(t, devserver.Options{})), connect(t, start(t, devserver.Options{}))
	_, err := a.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "one", TaskQueue: queue}, AwaitSignal)
	require.NoError(t, err)
	_, err = b.DescribeWorkflowExecution(t.Context(), "one", "")
	require.ErrorContains(t, err, "not found")
}

func TestWebUIShowsTheNamespace(t *testing.T) {
	t.Parallel()
	s := start(t, devserver.Options{UI: true, Namespace: "laboratory"})
	require.True(t, strings.HasPrefix(s.UIURL(), "http://127.0.0.1:"), s.UIURL())
	for _, path := range []string{"/namespaces/laboratory/workflows", "/api/v1/namespaces/laboratory"} {
		reply, err := http.Get(s.UIURL() + path)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
	}
	require.NoError(t, s.Stop())
	_, err := http.Get(s.UIURL())
	require.Error(t, err)
}

func TestTakenPortsAreReplaced(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	port := taken.Addr().(*net.TCPAddr).Port
	s := start(t, devserver.Options{FrontendPort: port, UIPort: port, UI: true})
	require.NotEqual(t, taken.Addr().String(), s.Address())
	require.NotEqual(t, "http://"+taken.Addr().String(), s.UIURL())
	require.NotEqual(t, "http://"+s.Address(), s.UIURL())
	connect(t, s)
}

func TestFreePortsAreUsedAsWished(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	require.Equal(t, free.Addr().String(), start(t, devserver.Options{FrontendPort: port}).Address())
}

func TestSearchAttributesAndRetentionFollowTheOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	step, run := temporal.NewSearchAttributeKeyInt64("Step"), temporal.NewSearchAttributeKeyKeyword("Run")

	s := start(t, devserver.Options{Dir: dir, SearchAttributes: map[string]enums.IndexedValueType{
		"Step": enums.INDEXED_VALUE_TYPE_INT,
	}})
	requireRetention(t, s, devserver.DefaultRetention)
	_, err := connect(t, s).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "one", TaskQueue: queue, TypedSearchAttributes: temporal.NewSearchAttributes(step.ValueSet(3)),
	}, AwaitSignal)
	require.NoError(t, err)
	require.NoError(t, s.Stop())

	// A newer program knows one attribute more, and no longer the first.
	s = start(t, devserver.Options{Dir: dir, Retention: 48 * time.Hour, SearchAttributes: map[string]enums.IndexedValueType{
		"Run": enums.INDEXED_VALUE_TYPE_KEYWORD,
	}})
	requireRetention(t, s, 48*time.Hour)
	c := connect(t, s)
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "two", TaskQueue: queue, TypedSearchAttributes: temporal.NewSearchAttributes(step.ValueSet(3), run.ValueSet("demo")),
	}, AwaitSignal)
	require.NoError(t, err)
	// Visibility follows a workflow's start by an instant.
	require.EventuallyWithT(t, func(check *assert.CollectT) {
		for query, want := range map[string]int64{"Step = 3": 2, "Run = 'demo'": 1} {
			n, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
			require.NoError(check, err)
			require.Equal(check, want, n.Count, query)
		}
	}, 10*time.Second, 50*time.Millisecond)
	list, err := c.OperatorService().ListSearchAttributes(t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: s.Namespace()})
	require.NoError(t, err)
	require.Equal(t, enums.INDEXED_VALUE_TYPE_INT, list.CustomAttributes["Step"])
	require.NoError(t, s.Stop())

	_, err = devserver.Start(t.Context(), devserver.Options{Dir: dir, SearchAttributes: map[string]enums.IndexedValueType{
		"Step": enums.INDEXED_VALUE_TYPE_TEXT,
	}})
	require.ErrorContains(t, err, "search attribute Step is registered as Int, wanted Text")
}

func requireRetention(t *testing.T, s *devserver.Server, want time.Duration) {
	t.Helper()
	d, err := connect(t, s).WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: s.Namespace()})
	require.NoError(t, err)
	require.Equal(t, want, d.Config.WorkflowExecutionRetentionTtl.AsDuration())
}

func TestLogIsQuiet(t *testing.T) {
	t.Parallel()
	core, entries := observer.New(zapcore.DebugLevel)
	s := start(t, devserver.Options{Log: zap.New(core)})
	c := connect(t, s)
	work(t, c)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, AwaitSignal)
	require.NoError(t, err)
	require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", signal, ""))
	require.NoError(t, run.Get(t.Context(), nil))
	require.NoError(t, s.Stop())
	for _, e := range entries.All() {
		// Here the worker outlives the server and logs that. Nothing else may be logged.
		if e.Message != "Started Worker" && e.Message != "Failed to poll for task." {
			t.Errorf("%s %s %v", e.Level, e.Message, e.ContextMap())
		}
	}
}

func TestADirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, devserver.Options{Dir: dir})
	_, err := devserver.Start(t.Context(), devserver.Options{Dir: dir})
	require.ErrorIs(t, err, devserver.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop(), "a second Stop")
	start(t, devserver.Options{Dir: dir})
}

// A process that dies while it makes the schema leaves a draft behind. The directory's
// name has characters that have a meaning in file URIs.
func TestDraftOfADatabaseIsReplaced(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "100% of what? #1")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "temporal.db.new"), []byte("half"), 0o644))
	connect(t, start(t, devserver.Options{Dir: dir}))
	names := map[string]bool{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names[e.Name()] = true
	}
	require.Equal(t, map[string]bool{
		"temporal.lock": true, "temporal.db": true, "temporal.db-shm": true, "temporal.db-wal": true,
	}, names)
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	_, err := devserver.Start(ctx, devserver.Options{Dir: dir})
	require.ErrorIs(t, err, context.Canceled)
	start(t, devserver.Options{Dir: dir}) // and leaves the directory as it should be
}
