package pageserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/internal/fleet"
	"github.com/fulgurite/fulgurite/internal/runstate"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
)

// askAgain is how long it is not tried to reach a Temporal that was away.
const askAgain = 10 * time.Second

// Dial connects to Temporal.
type Dial func(ctx context.Context) (Connection, error)

// Connection is one to a namespace of Temporal's.
type Connection struct {
	client.Client
	Namespace string
	UI        string // where the Web UI shows its workflows, ending in a slash, or empty
}

// UI is where the Web UI at an address shows the workflows of a namespace.
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

	mu         sync.Mutex
	connection Connection // its Client is nil while there is none
	failed     error
	after      time.Time // when it is tried again
}

// reach is a connection. While one is made, others wait.
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

// Runs implements page.Live. Where nothing is under way, the record is enough.
func (l *live) Runs(ctx context.Context, runs []record.Run) ([]record.Run, error) {
	c, err := l.reach(ctx)
	if err == nil {
		return runstate.All(ctx, c, runs)
	}
	for _, r := range runs {
		if r.Status == record.Running {
			return runs, err
		}
	}
	return runs, nil
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
	progress, idle, blocked, unanswered, err := runstate.Ask(ctx, c, run, sp.Agent.Queue)
	if err != nil {
		return page.State{}, err
	}
	out := page.State{Phase: "running", Pending: -1, Idle: idle}
	for _, b := range blocked {
		out.Blocked = append(out.Blocked, page.Blockage(b))
	}
	if progress == nil {
		if len(idle)+len(blocked) > 0 {
			unanswered = nil // these say why
		}
		return out, errors.Join(unanswered)
	}
	out.Phase, out.Subject, out.Done, out.Total = string(progress.Phase), progress.Subject, progress.Rollouts.Done, progress.Rollouts.Total
	out.Pace, out.Paused = progress.PaceText(time.Now()), progress.Paused
	if progress.Pending != nil {
		out.Pending = progress.Pending.Decision.Candidate
	}
	return out, nil
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
