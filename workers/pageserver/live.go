package pageserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

const (
	// askAgain is for how long no new connection is tried after Temporal could not be
	// reached.
	askAgain = 10 * time.Second
	// obstaclesEvery is for how long an answer about queues and blocked activities is
	// used. obstaclesMoving is the same for an answer without obstacles, while the run
	// makes progress.
	obstaclesEvery  = 3 * time.Second
	obstaclesMoving = 30 * time.Second
)

// Dial connects to Temporal.
type Dial func(ctx context.Context) (Connection, error)

// Connection is a connection to a namespace of Temporal.
type Connection struct {
	client.Client
	Namespace string
	UI        string // where the Web UI shows its workflows, ending in a slash, or empty
}

// UI returns the URL at which a Web UI shows the workflows of a namespace, or "" without
// an address.
func UI(address, namespace string) string {
	if address == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/", address, url.PathEscape(namespace))
}

// live asks Temporal about runs, once it can be reached.
type live struct {
	records fleet.Records
	dial    Dial
	gateway func() string
	loaded  func() []model.VersionID
	peers   trust.Peers

	mu         sync.Mutex
	connection Connection // its Client is nil while there is none
	failed     error
	after      time.Time            // when it is tried again
	found      map[string]obstacles // by run
}

// reach returns the connection, and makes it if there is none. Other callers wait
// meanwhile.
func (l *live) reach(ctx context.Context) (Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection.Client != nil {
		return l.connection, nil
	}
	if time.Now().Before(l.after) {
		return Connection{}, l.failed
	}
	l.connection, l.failed = l.dial(ctx)
	if l.failed != nil {
		l.connection, l.after = Connection{}, time.Now().Add(askAgain)
		return Connection{}, l.failed
	}
	return l.connection, nil
}

func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection.Client != nil {
		l.connection.Close()
		l.connection = Connection{}
	}
}

// Runs implements page.Live. If no run is under way, it needs only the records. If there is
// no Temporal, the runs that have not ended are idle.
func (l *live) Runs(ctx context.Context, runs []record.Run) ([]record.Run, error) {
	c, err := l.reach(ctx)
	if err == nil {
		return runstate.All(ctx, c, runs)
	}
	out, going := slices.Clone(runs), false
	for i, r := range runs {
		out[i].Idle = r.Status == record.Running
		going = going || out[i].Idle
	}
	if !going {
		return runs, nil
	}
	return out, err
}

// State implements page.Live.
func (l *live) State(ctx context.Context, run string) (page.State, error) {
	c, err := l.reach(ctx)
	if err != nil {
		return page.State{}, err
	}
	sp, err := l.records.Catalog.Spec(ctx, run)
	if err != nil {
		return page.State{}, err
	}
	progress, unknown := runstate.Progress(ctx, c, run)
	found, err := l.obstacles(ctx, c, run, sp.Agent.Queue, progress)
	if err != nil {
		return page.State{}, err
	}
	out := page.State{Phase: "running", Pending: -1, Waits: found.lines}
	if unknown != nil {
		if len(found.lines) > 0 {
			unknown = nil // the obstacles are the reason
		}
		return out, unknown
	}
	out.Phase, out.Subject, out.Done, out.Total = string(progress.Phase), progress.Subject, progress.Rollouts.Done, progress.Rollouts.Total
	out.Pace, out.Paused = progress.PaceText(time.Now()), progress.Paused
	out.Stop = progress.Stop
	if progress.Pending != nil {
		out.Pending = progress.Pending.Decision.Candidate
	}
	return out, nil
}

// obstacles holds what keeps a run from going on, in words, as it was at a time.
type obstacles struct {
	lines []string
	at    time.Time
	// moved is when progress last changed, and progress is what it changed to.
	moved    time.Time
	progress string
}

// every returns for how long the obstacles are used.
func (o obstacles) every() time.Duration {
	if len(o.lines) == 0 && time.Since(o.moved) < obstaclesEvery {
		return obstaclesMoving
	}
	return obstaclesEvery
}

// obstacles returns the obstacles of a run. Finding them takes a question to Temporal for
// each queue and each child, so they are seldom looked for while the run makes progress.
func (l *live) obstacles(ctx context.Context, c client.Client, run, agents string, now workflows.Progress) (obstacles, error) {
	progress := fmt.Sprint(now.Phase, now.Subject, now.Rollouts, now.StepTokens)
	l.mu.Lock()
	found := l.found[run]
	if found.progress != progress {
		found.progress, found.moved = progress, time.Now()
		l.put(run, found)
	}
	l.mu.Unlock()
	if time.Since(found.at) < found.every() {
		return found, nil
	}
	found.at = time.Now()
	var services runstate.Leases // the services of a stack are in the page's process and hold none
	if l.gateway == nil {
		services = l.records.Store
	}
	all, err := runstate.Find(ctx, c, run, agents, services)
	if err != nil {
		return obstacles{}, err
	}
	found.lines = all.Lines()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(run, found)
	return found, nil
}

// put notes the obstacles of a run, with l.mu held.
func (l *live) put(run string, o obstacles) {
	if l.found == nil {
		l.found = map[string]obstacles{}
	}
	l.found[run] = o
}

// WorkflowURL implements page.Live.
func (l *live) WorkflowURL(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection.UI == "" {
		return ""
	}
	return l.connection.UI + url.PathEscape(id)
}

// Queues implements page.Fleet.
func (l *live) Queues(ctx context.Context) ([]page.Queue, error) {
	c, err := l.reach(ctx)
	if err != nil {
		return nil, err
	}
	names, err := l.queueNames(ctx)
	if err != nil {
		return nil, err
	}
	var all []page.Queue
	for _, name := range names {
		kinds := []enums.TaskQueueType{enums.TASK_QUEUE_TYPE_ACTIVITY}
		if name == workflows.QueueTraining {
			kinds = append(kinds, enums.TASK_QUEUE_TYPE_WORKFLOW)
		}
		for _, kind := range kinds {
			q, err := describe(ctx, c, name, kind)
			if err != nil {
				return nil, fmt.Errorf("describe queue %s: %w", name, err)
			}
			all = append(all, q)
		}
	}
	return all, nil
}

func describe(ctx context.Context, c Connection, name string, kind enums.TaskQueueType) (page.Queue, error) {
	d, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: c.Namespace, TaskQueue: &taskqueue.TaskQueue{Name: name}, TaskQueueType: kind, ReportStats: true,
	})
	if err != nil {
		return page.Queue{}, err
	}
	q := page.Queue{Name: name, Kind: "activities", Backlog: -1}
	if kind == enums.TASK_QUEUE_TYPE_WORKFLOW {
		q.Kind = "workflows"
	}
	if d.Stats != nil {
		q.Backlog = d.Stats.ApproximateBacklogCount
	}
	for _, p := range d.Pollers {
		q.Pollers = append(q.Pollers, page.Poller{Identity: p.Identity, Last: p.LastAccessTime.AsTime()})
	}
	return q, nil
}

// queueNames returns the default queues, and the queues that the specs of the runs under
// way name.
func (l *live) queueNames(ctx context.Context) ([]string, error) {
	names := []string{workflows.QueueTraining, workflows.QueueRollout, workflows.QueueTrainGPU}
	runs, err := l.records.Store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.Status != record.Running {
			continue
		}
		sp, err := spec.Stored(run.Spec)
		if err != nil {
			continue // a spec that can't be read names no queue to poll
		}
		if queue := sp.Agent.Queue; queue != "" && !slices.Contains(names, queue) {
			names = append(names, queue)
		}
	}
	return names, nil
}

// Gateway implements page.Fleet. It returns the gateway of the page's own stack, or else
// the one that holds the lease.
func (l *live) Gateway(ctx context.Context) (string, error) {
	if l.gateway != nil {
		if at := l.gateway(); at != "" {
			return at, nil
		}
	}
	leases, err := l.records.Store.Leases(ctx, record.Gateway)
	if err != nil {
		return "", err
	}
	if len(leases) == 0 {
		return "", errors.New("no stack runs here, and the page starts none: start it with `fulgurite dev`")
	}
	return leases[0].URL + "/v1", nil
}

// Here implements page.Fleet.
func (l *live) Here() ([]model.VersionID, bool) {
	if l.loaded == nil {
		return nil, false
	}
	return l.loaded(), true
}

// Loaded implements page.Fleet.
func (l *live) Loaded(ctx context.Context, sampler record.Lease) ([]model.VersionID, error) {
	return remote.Loaded(ctx, sampler.URL, l.peers)
}
