package runstate

import (
	"context"
	"fmt"
	"slices"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/record"
)

// Leases tells which services are up; the store implements it.
type Leases interface {
	Leases(ctx context.Context, role record.Role) ([]record.Lease, error)
}

// Obstacles are all that can keep a run from going on without ending it.
type Obstacles struct {
	Idle    []string      // queues that no worker polls
	Blocked []Blockage    // what is tried again and again
	Absent  []record.Role // services without which agents wait
}

// Find looks for the obstacles of a run. agents is the queue of its agents. If l is nil,
// it is not known which services are up, and Absent stays empty.
func Find(ctx context.Context, c client.Client, run, agents string, l Leases) (out Obstacles, err error) {
	now, err := lookInto(ctx, c, run)
	if err != nil {
		return out, err
	}
	out.Blocked = now.blocked
	if out.Idle, err = IdleQueues(ctx, c, agents); err != nil {
		return out, err
	}
	if now.started["RunAgent"] {
		// A worker whose slots are all taken does not poll, like a trainer that works.
		out.Idle = slices.DeleteFunc(out.Idle, func(q string) bool { return q == agents })
	}
	if l == nil {
		return out, nil
	}
	for _, role := range []record.Role{record.Gateway, record.Sampler} {
		up, err := l.Leases(ctx, role)
		if err != nil {
			return out, err
		}
		if len(up) == 0 {
			out.Absent = append(out.Absent, role)
		}
	}
	return out, nil
}

// Lines describes each obstacle in words. Failures are texts of other programs.
func (o Obstacles) Lines() []string {
	var out []string
	for _, q := range o.Idle {
		out = append(out, fmt.Sprintf("no worker polls queue %s: the run waits until one does", q))
	}
	for _, role := range o.Absent {
		out = append(out, fmt.Sprintf("no %s is up: agents wait until one is", role))
	}
	for _, b := range o.Blocked {
		out = append(out, b.String())
	}
	return out
}
