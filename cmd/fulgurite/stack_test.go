package main

import (
	"context"
	"net"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
)

// untimed implements "untimed RUN": no activity of the run's workflows or of their children
// may have ended by a timeout. A heartbeat timeout has no event of its own, but is the
// recorded failure of the previous attempt. A workflow task may: the public API of Temporal
// has no way to take it from a dead worker.
func untimed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: untimed RUN")
	}
	at, err := (&state.Flags{Dir: ts.Getenv("FULGURITE_DIR")}).Addresses()
	ts.Check(err)
	ctx := context.Background()
	c, err := client.Dial(client.Options{HostPort: at.Temporal})
	ts.Check(err)
	defer c.Close()
	l, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId STARTS_WITH '" + args[0] + "'"})
	ts.Check(err)
	if len(l.Executions) < 2 {
		ts.Fatalf("run %s has %d workflows, want its children too", args[0], len(l.Executions))
	}
	for _, w := range l.Executions {
		for it := c.GetWorkflowHistory(ctx, w.Execution.WorkflowId, w.Execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
			e, err := it.Next()
			ts.Check(err)
			last := e.GetActivityTaskStartedEventAttributes().GetLastFailure()
			if e.EventType == enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT || last.GetTimeoutFailureInfo() != nil {
				ts.Fatalf("%s: event %d (%s): %s", w.Execution.WorkflowId, e.EventId, e.EventType, e)
			}
		}
	}
}

// useTemporal implements "use DIR": later commands use the Temporal server of the stack
// that runs in DIR.
func useTemporal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: use DIR")
	}
	at, err := (&state.Flags{Dir: ts.MkAbs(args[0])}).Addresses()
	ts.Check(err)
	ts.Setenv("TEMPORAL_ADDRESS", at.Temporal)
}

// portsOf implements "portsof DIR": it sets TEMPORAL, UI and GATEWAY to the ports of the
// stack that runs in DIR.
func portsOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: portsof DIR")
	}
	at, err := (&state.Flags{Dir: ts.MkAbs(args[0])}).Addresses()
	ts.Check(err)
	for name, address := range map[string]string{"TEMPORAL": at.Temporal, "UI": at.UI, "GATEWAY": at.Gateway} {
		_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/v1"))
		ts.Check(err)
		ts.Setenv(name, port)
	}
}
