package status

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
)

// liveTimeout limits the time to ask Temporal. After that, the record is used.
const liveTimeout = 10 * time.Second

// live returns a run with its status in Temporal, and the connection to Temporal, which
// is nil if there is none. If Temporal can't be asked about a run that is recorded as
// running, doubt says why, and the run is idle if there is no Temporal. For a run that has
// ended, the record suffices.
func live(ctx context.Context, s *state.Flags, t *terminal.Terminal, r record.Run) (run record.Run, c client.Client, doubt string) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c, err := s.Dial(ctx, t)
	if err != nil {
		if r.Status != record.Running {
			return r, nil, ""
		}
		r.Idle = true
		return r, nil, fmt.Sprintf("nothing runs it at the moment: %v", err)
	}
	if run, err = runstate.Of(ctx, c, r); err != nil && r.Status == record.Running {
		doubt = fmt.Sprintf("Temporal does not say whether it still runs: %v", err)
	}
	return run, c, doubt
}

// liveAll does what live does, for a list of runs.
func liveAll(ctx context.Context, s *state.Flags, t *terminal.Terminal, runs []record.Run) ([]record.Run, string) {
	going := false
	for _, r := range runs {
		going = going || r.Status == record.Running
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c, err := s.Dial(ctx, t)
	if err == nil {
		defer c.Close()
		runs, err = runstate.All(ctx, c, runs)
	}
	if err == nil || !going {
		return runs, ""
	}
	return runs, fmt.Sprintf("Temporal does not answer, so this is what the store says: %v", err)
}

// LiveStore is a store whose runs have the status that Temporal has.
type LiveStore struct {
	*store.Store
	State    *state.Flags
	Terminal *terminal.Terminal
}

// Run returns the run of that name. If Temporal can't be asked about a run that is
// recorded as running, it tells the terminal why.
func (l LiveStore) Run(ctx context.Context, name string) (record.Run, error) {
	r, err := l.Store.Run(ctx, name)
	if err != nil {
		return r, err
	}
	r, c, doubt := live(ctx, l.State, l.Terminal, r)
	if c != nil {
		c.Close()
	}
	if doubt != "" {
		fmt.Fprintf(l.Terminal.Err, "fulgurite: run %s: %s\n", name, doubt)
	}
	return r, nil
}
