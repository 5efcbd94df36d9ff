package main

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
)

// callTemporal implements "temporal start|terminate|reset|delete ID ...": it makes the
// calls that Temporal's Web UI and command line make, against the running stack.
func callTemporal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: temporal start|terminate|reset|delete ID ...")
	}
	at, err := (&state.Flags{Dir: ts.Getenv("FULGURITE_DIR")}).Addresses()
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{HostPort: at.Temporal, Identity: "ada@web"})
	ts.Check(err)
	defer c.Close()
	of := &common.WorkflowExecution{WorkflowId: args[1]}
	switch args[0] {
	case "start":
		queue := "training"
		if len(args) == 4 {
			queue = args[3]
		}
		_, err = c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: args[1], TaskQueue: queue}, "TrainingWorkflow", json.RawMessage(ts.ReadFile(args[2])))
	case "terminate":
		err = c.TerminateWorkflow(ctx, args[1], "", args[2])
	case "reset":
		_, err = c.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
			Namespace: client.DefaultNamespace, WorkflowExecution: of, Reason: "a button", WorkflowTaskFinishEventId: workflowTask(ctx, ts, c, args[1], args[2] == "last"),
		})
	case "delete":
		_, err = c.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{Namespace: client.DefaultNamespace, WorkflowExecution: of})
	default:
		ts.Fatalf("temporal has no %q here", args[0])
	}
	ts.Check(err)
}

// workflowTask returns the event id of the first or the last completed workflow task of a
// workflow.
func workflowTask(ctx context.Context, ts *testscript.TestScript, c client.Client, id string, last bool) int64 {
	var ids []int64
	for it := c.GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		ts.Check(err)
		if e.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			ids = append(ids, e.EventId)
		}
	}
	if last {
		slices.Reverse(ids)
	}
	return ids[0]
}
