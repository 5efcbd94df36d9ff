// Package fleet wires the parts of Fulgurite into processes. Each process of a
// fleet (cmd/fulgurite-worker) takes the parts it needs, and so does the one
// process that has them all (package stack).
//
// It never links the embedded Temporal server, and it decides nothing that a flag should
// decide.
//
// Processes find each other through leases in the store. A [HeldLease] is renewed
// every [Renewal] and ends [TTL] after the last renewal. Only one gateway has a lease,
// the one that came last. A gateway that lost its lease answers 503 with the fault
// header until it is the only one again, so that a rollout has one owning gateway.
// There may be any number of samplers. [Finder] and [Samplers] read leases every
// second, and at once after a failure.
//
// Guarantees: a killed process is no longer found after TTL and a drained one at once; a
// process that hung is fenced by its own clock when it wakes up.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/harbor"
	"github.com/fulgurite/fulgurite/workflows"
)

// Workers asks Temporal about the workers of external agents, which are workflows or
// activities of other programs.
type Workers struct{ Client client.Client }

// Polled implements activities.Workers. Temporal remembers who polled for some
// minutes.
func (w Workers) Polled(ctx context.Context, queue string, workflows bool) (bool, error) {
	kind := enums.TASK_QUEUE_TYPE_ACTIVITY
	if workflows {
		kind = enums.TASK_QUEUE_TYPE_WORKFLOW
	}
	d, err := w.Client.DescribeTaskQueue(ctx, queue, kind)
	if err != nil {
		return false, fmt.Errorf("describe task queue %s: %w", queue, err)
	}
	return len(d.GetPollers()) > 0, nil
}

// Stuck implements activities.Workers. Temporal makes a workflow task again without limit
// if it fails, and its history has the failure of the first try.
func (w Workers) Stuck(ctx context.Context, workflowID string) (string, error) {
	stuck := ""
	for it := w.Client.GetWorkflowHistory(ctx, workflowID, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return "", fmt.Errorf("read history of workflow %s: %w", workflowID, err)
		}
		switch e.GetEventType() {
		case enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			if !strings.HasPrefix(stuck, codeFails) { // else it is the next try of the task that failed
				stuck = "at the end it waited for a worker" // a task that timed out was taken up by a worker that then was lost
			}
		case enums.EVENT_TYPE_WORKFLOW_TASK_FAILED:
			stuck = taskFailure(e.GetWorkflowTaskFailedEventAttributes())
		case enums.EVENT_TYPE_WORKFLOW_TASK_STARTED:
			if !strings.HasPrefix(stuck, codeFails) {
				stuck = ""
			}
		case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			stuck = ""
		}
	}
	return stuck, nil
}

const (
	codeFails = "the code of its workflow fails on "
	// failureBytes bounds the failure of a workflow's code.
	failureBytes = 2 << 10
)

// taskFailure says why a worker could not go on with a workflow.
func taskFailure(a *history.WorkflowTaskFailedEventAttributes) string {
	text := a.GetFailure().GetMessage()
	if kind := a.GetFailure().GetApplicationFailureInfo().GetType(); kind != "" {
		text = kind + ": " + text
	}
	if text == "" {
		text = a.GetCause().String()
	}
	return truncate.Ellipsis(fmt.Sprintf("%sits worker %s: %s; start a worker with other code, and attempts go on", codeFails, a.GetIdentity(), strings.ToValidUTF8(text, "\uFFFD")), failureBytes)
}

// Cluster asks Temporal what it has registered.
type Cluster struct {
	Client    client.Client
	Namespace string
}

// HasSearchAttributes implements activities.Cluster.
func (c Cluster) HasSearchAttributes(ctx context.Context) (bool, error) {
	absent, err := c.absent(ctx)
	return len(absent) == 0, err
}

// RegisterSearchAttributes adds the search attributes that are absent and returns their
// names. Not every cluster lets its users do that.
func (c Cluster) RegisterSearchAttributes(ctx context.Context) ([]string, error) {
	absent, err := c.absent(ctx)
	if err != nil || len(absent) == 0 {
		return nil, err
	}
	_, err = c.Client.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: c.Namespace, SearchAttributes: absent,
	})
	if err != nil {
		return nil, fmt.Errorf("add search attributes: %w", err)
	}
	return slices.Sorted(maps.Keys(absent)), nil
}

func (c Cluster) absent(ctx context.Context) (map[string]enums.IndexedValueType, error) {
	r, err := c.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: c.Namespace})
	if err != nil {
		return nil, fmt.Errorf("list search attributes: %w", err)
	}
	absent := workflows.SearchAttributes()
	maps.DeleteFunc(absent, func(name string, _ enums.IndexedValueType) bool {
		_, there := r.CustomAttributes[name]
		return there
	})
	return absent, nil
}

// TemporalOptions reads how to connect to Temporal from its own variables and its
// configuration file, as the temporal CLI does. A configuration file that nobody named and
// that may not be read counts as absent: it is in the home of another user, which
// containers leave in HOME.
func TemporalOptions() (client.Options, error) {
	o, err := envconfig.LoadDefaultClientOptions()
	if errors.Is(err, fs.ErrPermission) && os.Getenv("TEMPORAL_CONFIG_FILE") == "" && os.Getenv("TEMPORAL_PROFILE") == "" {
		o, err = envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{DisableFile: true})
	}
	if err != nil {
		return client.Options{}, fmt.Errorf("read Temporal's client configuration: %w", err)
	}
	return o, nil
}

// Closers stop what a process has started. The zero value is ready.
type Closers struct {
	list []func(context.Context) error // in the order to call
}

// OnClose registers f to run before everything registered earlier.
func (c *Closers) OnClose(f func(context.Context) error) {
	c.list = append([]func(context.Context) error{f}, c.list...)
}

// Background runs f until its turn to be closed, and then waits for it.
func (c *Closers) Background(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	c.OnClose(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}

// Close runs everything registered, once.
func (c *Closers) Close(ctx context.Context) error {
	var all []error
	for _, f := range c.list {
		all = append(all, f(ctx))
	}
	c.list = nil
	return errors.Join(all...)
}

// Launchers makes the launcher that a spec's agent section asks for. A spec can name the
// functions of this process. Rollouts have their homes below a directory.
type Launchers struct {
	Functions agent.Registry
	// Scratch is that directory; by default agent.Command's.
	Scratch string
	// TLS says which certificates services and tool servers may have; nil is what the system
	// accepts.
	TLS *tls.Config
	// Hidden lists what isolated agents must not see of this process: absolute paths.
	Hidden []string
	// Containers removes what killed workers have left; nil leaves it.
	Containers *Containers
}

// Launcher implements activities.Launchers.
func (l Launchers) Launcher(s spec.Spec) (agent.Launcher, error) {
	inner, err := l.inner(s)
	if err != nil {
		return nil, err
	}
	inner = agent.WithToolServers(inner, s.Agent.ToolServers, l.TLS)
	if s.Grader.Type == spec.GraderHarbor {
		inner = agent.InWorkspace(inner, workspaces{s}, l.Scratch)
	}
	if len(s.Agent.Before)+len(s.Agent.After) > 0 {
		inner = agent.Around(inner, agent.HookCommands(s.Agent.Before, s.Agent.After), l.Scratch)
	}
	return agent.HideSecrets(inner, secretVariables(s.Agent)), nil
}

// secretVariables returns the names of the variables with secrets that the agent is given.
func secretVariables(a spec.Agent) []string {
	secret := slices.Collect(maps.Values(a.SecretEnvironment))
	if a.Service != nil {
		secret = slices.AppendSeq(secret, maps.Values(a.Service.SecretHeaders))
	}
	slices.Sort(secret)
	return secret
}

func (l Launchers) inner(s spec.Spec) (agent.Launcher, error) {
	switch a := s.Agent; {
	case a.Func != "":
		return l.Functions.Launcher(a.Func)
	case a.Service != nil:
		return agent.Service{URL: a.Service.URL, Headers: a.Service.Headers, SecretHeaders: a.Service.SecretHeaders, TLS: l.TLS}, nil
	case a.Temporal != nil:
		return nil, errors.New("only the workflow of a rollout can start agent.temporal")
	}
	c := agent.Command{Args: s.Agent.Command, Scratch: l.Scratch}
	switch s.Agent.Sandbox {
	case "", spec.SandboxNone: // without a value, an earlier release prepared the run
	case spec.SandboxProcess:
		c.Isolation = l.isolation(s)
	case spec.SandboxContainer:
		c.Isolation = l.isolation(s)
		c.Isolation.Container = &agent.Container{Image: s.Agent.ImageID, Name: s.Agent.Image}
		if l.Containers != nil {
			return containedLauncher{c, l.Containers}, nil
		}
	default: // of a later release
		return nil, fmt.Errorf("agent.sandbox %s: this worker can't isolate an agent so", s.Agent.Sandbox)
	}
	return c, nil
}

// isolation returns what an isolated agent sees and reaches. Tasks have their answers in
// them.
func (l Launchers) isolation(s spec.Spec) *agent.Isolation {
	out := &agent.Isolation{Reach: s.Agent.Network, Servers: s.Agent.ToolServers, Writable: s.Agent.Writable, Hidden: slices.Clone(l.Hidden)}
	for _, split := range spec.SplitNames() {
		text, _ := s.Tasks.Split(split)
		if source, err := spec.ParseSource(text); err == nil && filepath.IsAbs(source.Path) {
			out.Hidden = append(out.Hidden, source.Path)
		}
	}
	if s.Training.Curriculum != nil {
		for _, stage := range s.Training.Curriculum.Stages {
			if source, err := spec.ParseSource(stage.Tasks); err == nil && filepath.IsAbs(source.Path) {
				out.Hidden = append(out.Hidden, source.Path)
			}
		}
	}
	homes := []string{os.Getenv("HOME")}
	if u, err := user.Current(); err == nil {
		homes = append(homes, u.HomeDir)
	}
	out.Hidden = append(out.Hidden, sandbox.Secrets(homes...)...)
	return out
}

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
