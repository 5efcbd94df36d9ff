package fleet

import (
	"context"
	"errors"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/harbor"
)

// workspaces makes the workspaces of tasks in Harbor's format.
type workspaces struct{ spec spec.Spec }

// Open implements agent.Workspaces.
func (w workspaces) Open(ctx context.Context, job agent.Job) (agent.Workspace, error) {
	t, err := tasks.HarborTask(job.Task.ID, job.Task.Metadata)
	if err != nil {
		return nil, err
	}
	p := harbor.Place{Home: job.Home, Limit: job.Limits.Time}
	if w.spec.Tasks.Harbor != nil {
		p.Options = harbor.Options{Container: w.spec.Tasks.Harbor.Container, Reward: w.spec.Tasks.Harbor.Reward}
	}
	one, err := harbor.Open(ctx, t, p)
	if err != nil {
		return nil, err
	}
	return one, nil
}

// OfMachine implements agent.Workspaces.
func (w workspaces) OfMachine(err error) bool { return errors.Is(err, harbor.ErrMachine) }
