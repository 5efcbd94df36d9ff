package devserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/internal/devserver"
)

const (
	// workerAddress makes this test binary a worker at the server it names, until it is
	// killed; workerKind says whose.
	workerAddress = "FULGURITE_DEVSERVER_WORKER_ADDRESS"
	workerKind    = "FULGURITE_DEVSERVER_WORKER_KIND"
	doomedWorker  = "doomed"
	foreignWorker = "foreign"
	foreignQueue  = "foreign"
)

// occupied is printed when a task has been started that its worker won't end.
const occupied = "occupied"

// Hang never ends in a process that is to die, and does not even end its first workflow
// task. In other processes it ends at once.
func Hang(workflow.Context) error { return hang() }

// HangingActivity does the same as an activity.
func HangingActivity(context.Context) error { return hang() }

func hang() error {
	if os.Getenv(workerKind) == "" {
		return nil
	}
	fmt.Println(occupied)
	select {}
}

// CallHanging calls HangingActivity, for which Temporal waits an hour.
func CallHanging(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour})
	return workflow.ExecuteActivity(ctx, HangingActivity).Get(ctx, nil)
}

// CallFailing calls FailingActivity, whose next try is an hour away.
func CallFailing(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Hour, MaximumInterval: time.Hour},
	})
	return workflow.ExecuteActivity(ctx, FailingActivity).Get(ctx, nil)
}

// FailingActivity fails in a process that is to die.
func FailingActivity(context.Context) error {
	if os.Getenv(workerKind) == "" {
		return nil
	}
	fmt.Println(occupied)
	return fmt.Errorf("not here")
}

// CallForeign calls an activity of another program's worker and ends with what it
// returns.
func CallForeign(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: foreignQueue, StartToCloseTimeout: time.Hour})
	var out string
	err := workflow.ExecuteActivity(ctx, "ForeignActivity").Get(ctx, &out)
	return out, err
}

// ForeignActivity ends when its process reads a line, and says which try it was.
func ForeignActivity(ctx context.Context) (string, error) {
	fmt.Println(occupied)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return "", err
	}
	return fmt.Sprintf("try %d", activity.GetInfo(ctx).Attempt), nil
}

func recoveryWorker(c client.Client, identity string) worker.Worker {
	w := worker.New(c, queue, worker.Options{Identity: identity, DeadlockDetectionTimeout: time.Hour})
	for _, f := range []any{AwaitSignal, Hang, CallHanging, CallFailing, CallForeign} {
		w.RegisterWorkflow(f)
	}
	w.RegisterActivity(HangingActivity)
	w.RegisterActivity(FailingActivity)
	return w
}

// workUntilKilled runs a worker in its own process.
func workUntilKilled(address string) error {
	identity := os.Getenv(workerKind) + "/1"
	c, err := client.Dial(client.Options{HostPort: address, Identity: identity})
	if err != nil {
		return err
	}
	if os.Getenv(workerKind) == doomedWorker {
		return recoveryWorker(c, identity).Run(nil)
	}
	w := worker.New(c, foreignQueue, worker.Options{})
	w.RegisterActivity(ForeignActivity)
	return w.Run(nil)
}

// workerProcess is a worker that can be killed.
type workerProcess struct {
	*exec.Cmd
	lines *bufio.Scanner
	in    io.Writer
}

func startWorker(t *testing.T, kind, address string) workerProcess {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), workerAddress+"="+address, workerKind+"="+kind)
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill() // some tests have done so
		_ = command.Wait()         // "signal: killed"
	})
	return workerProcess{command, bufio.NewScanner(out), in}
}

// awaitStarted waits until the worker has started the next task that it won't end.
func (w workerProcess) awaitStarted(t *testing.T) {
	t.Helper()
	for w.lines.Scan() {
		if w.lines.Text() == occupied {
			return
		}
	}
	t.Fatalf("the worker ended: %v", w.lines.Err())
}

func TestTasksOfADeadWorkerAreBegunAgainAtOnce(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	process, address := startServer(t, dir)
	c, err := client.Dial(client.Options{HostPort: address})
	require.NoError(t, err)
	begin := func(id string, w any) {
		_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: queue, WorkflowTaskTimeout: 2 * time.Second}, w)
		require.NoError(t, err)
	}
	doomed, foreign := startWorker(t, doomedWorker, address), startWorker(t, foreignWorker, address)
	begin("foreign", CallForeign)
	foreign.awaitStarted(t)
	begin("delayed", CallFailing)
	doomed.awaitStarted(t)
	require.Eventually(t, func() bool {
		d, err := c.DescribeWorkflowExecution(ctx, "delayed", "")
		return err == nil && len(d.PendingActivities) == 1 && d.PendingActivities[0].Attempt == 2
	}, 30*time.Second, 10*time.Millisecond)
	begin("activity", CallHanging)
	doomed.awaitStarted(t)
	for _, id := range []string{"tied", "waiting"} {
		begin(id, AwaitSignal)
		require.Eventually(t, func() bool { return eventCount(t, c, id, enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED) == 1 },
			30*time.Second, 10*time.Millisecond)
	}
	begin("task", Hang)
	doomed.awaitStarted(t)
	require.Eventually(t, func() bool {
		n, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Running'"})
		return err == nil && n.Count == 6
	}, 30*time.Second, 10*time.Millisecond, "visibility follows")
	require.NoError(t, doomed.Process.Kill())
	_ = doomed.Wait() // "signal: killed"
	// The worker has its own queue, in which tasks for this workflow now wait.
	require.NoError(t, c.SignalWorkflow(ctx, "waiting", "", signal, "late"))
	awaitBacklog(t, c, "waiting")
	c.Close()
	require.NoError(t, process.Kill())
	_, err = process.Wait()
	require.NoError(t, err)

	s := start(t, devserver.Options{Dir: dir, FrontendPort: portOf(t, address)})
	require.Equal(t, address, s.Address(), "somebody else's worker finds it again")
	done, err := s.Recover(ctx, func(identity string) bool { return identity == doomedWorker+"/1" })
	require.NoError(t, err)
	require.Equal(t, devserver.Recovery{Workflows: 6, Activities: 1, Delayed: 1, Untied: 6}, done)
	c = connect(t, s)
	w := recoveryWorker(c, doomedWorker+"/2")
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	require.NoError(t, c.SignalWorkflow(ctx, "tied", "", signal, "later"))
	// A task that the dead worker had taken, or that lay in its queue, waits for a timeout.
	for _, id := range []string{"waiting", "task"} {
		require.NoError(t, c.GetWorkflow(ctx, id, "").Get(ctx, nil), id)
	}
	for _, id := range []string{"tied", "delayed", "activity"} {
		require.NoError(t, c.GetWorkflow(ctx, id, "").Get(ctx, nil), id)
		for _, timeout := range []enums.EventType{enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT} {
			require.Zero(t, eventCount(t, c, id, timeout), "%s of %s", timeout, id)
		}
	}
	_, err = fmt.Fprintln(foreign.in)
	require.NoError(t, err)
	var out string
	require.NoError(t, c.GetWorkflow(ctx, "foreign", "").Get(ctx, &out))
	require.Equal(t, "try 1", out, "a worker that lives keeps its activity")
}

func eventCount(t *testing.T, c client.Client, id string, kind enums.EventType) int {
	t.Helper()
	n := 0
	for it := c.GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		require.NoError(t, err)
		if e.EventType == kind {
			n++
		}
	}
	return n
}

// awaitBacklog waits until the last workflow task lies in the queue of one worker.
func awaitBacklog(t *testing.T, c client.Client, id string) {
	t.Helper()
	var own *taskqueue.TaskQueue
	for it := c.GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		require.NoError(t, err)
		if scheduled := e.GetWorkflowTaskScheduledEventAttributes(); scheduled != nil {
			own = scheduled.TaskQueue
		}
	}
	require.Equal(t, enums.TASK_QUEUE_KIND_STICKY, own.GetKind())
	own.NormalName = queue
	require.Eventually(t, func() bool {
		d, err := c.WorkflowService().DescribeTaskQueue(t.Context(), &workflowservice.DescribeTaskQueueRequest{
			Namespace: devserver.DefaultNamespace, TaskQueue: own, TaskQueueType: enums.TASK_QUEUE_TYPE_WORKFLOW, IncludeTaskQueueStatus: true, //nolint:staticcheck // what takes its place does not count the tasks of sticky queues
		})
		return err == nil && d.GetTaskQueueStatus().GetBacklogCountHint() == 1 //nolint:staticcheck // as above
	}, 30*time.Second, 10*time.Millisecond)
}
