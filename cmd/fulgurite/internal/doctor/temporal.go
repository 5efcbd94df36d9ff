package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Temporal is the server that commands here talk to.
type Temporal struct {
	Address   string `json:"address"`
	Namespace string `json:"namespace"`
	// SearchAttributes is whether ours are registered. Runs work without them.
	SearchAttributes bool `json:"search_attributes"`
	// Pollers is how many workers poll each queue.
	Pollers map[string]int `json:"pollers"`
}

// findTemporal connects as other commands do. A stack that does not run counts as absent,
// not as missing, because a command starts it and nothing has to be installed. A server
// that is configured but does not answer is missing.
func findTemporal(s *state.Flags, agents queue) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		silent := &terminal.Terminal{Out: io.Discard, Err: io.Discard}
		c, namespace, err := s.DialNamespace(ctx, silent)
		switch {
		case errors.Is(err, state.ErrNoStack):
			return []Finding{{Subject: "temporal", State: Absent, Text: "no stack runs in " + s.Dir, Fix: []string{s.Command("dev")}}}
		case err != nil:
			return []Finding{{Subject: "temporal", State: Missing, Text: err.Error(), Fix: []string{
				s.TemporalCommand(s.TemporalAddress()) + " # on the machine that TEMPORAL_ADDRESS names, or `unset TEMPORAL_ADDRESS` and use `" + s.Command("dev") + "`",
			}}}
		}
		defer c.Close()
		is := Temporal{Address: s.TemporalAddress(), Namespace: namespace, Pollers: map[string]int{}}
		return []Finding{describeTemporal(ctx, c, is, agents, s)}
	}
}

// queue is a task queue that workers poll.
type queue struct {
	name string
	kind enums.TaskQueueType
}

// describeTemporal adds to is what the server reports.
func describeTemporal(ctx context.Context, c client.Client, is Temporal, agents queue, s *state.Flags) Finding {
	f := Finding{Subject: "temporal", State: Found, Text: is.Address + ", namespace " + is.Namespace}
	var err error
	if is.SearchAttributes, err = (fleet.Cluster{Client: c, Namespace: is.Namespace}).HasSearchAttributes(ctx); err == nil && !is.SearchAttributes {
		f.Text += "; search attributes are not registered"
		f.Fix = append(f.Fix, s.WorkerCommand("migrate")+" # registers them; runs work without")
	}
	var idle []string
	for _, q := range []queue{
		{workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW}, agents, {workflows.QueueTrainGPU, enums.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		d, err := c.DescribeTaskQueue(ctx, q.name, q.kind)
		if err != nil {
			f.Text += fmt.Sprintf("; queue %s: %v", q.name, err)
			continue
		}
		if is.Pollers[q.name] = len(d.Pollers); len(d.Pollers) == 0 {
			idle = append(idle, q.name)
		}
	}
	if len(idle) > 0 {
		f.Text += "; no worker polls " + strings.Join(idle, ", ") + " now, unless it is busy"
		f.Fix = append(f.Fix, fmt.Sprintf("%s # or of a fleet `%s` (training, rollouts) and `%s` (train-gpu)", s.Command("dev"), s.WorkerCommand("cpu"), s.WorkerCommand("gpu")))
	}
	f.Facts = is
	return f
}
