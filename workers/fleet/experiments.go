package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/experiment"
)

// experimentAge is how long a gateway goes on with what it read of an experiment.
const experimentAge = time.Second

// experiments tells a gateway which new conversations go to a candidate.
type experiments struct {
	store interface {
		RunningExperiment(ctx context.Context, run, policy string) (record.Experiment, error)
	}
	now func() time.Time

	mu    sync.Mutex
	known map[[2]string]knownExperiment // by run and policy
}

// knownExperiment is what the store had at a time: no experiment, if Candidate is 0.
type knownExperiment struct {
	record.Experiment
	read time.Time
}

func newExperiments(s interface {
	RunningExperiment(ctx context.Context, run, policy string) (record.Experiment, error)
}) *experiments {
	return &experiments{store: s, now: time.Now, known: map[[2]string]knownExperiment{}}
}

// Candidate returns the version that answers a new conversation for the promoted version of a
// policy, if an experiment is running. The unit is a user, or a conversation. of is the
// experiment's candidate, 0 without one.
func (e *experiments) Candidate(ctx context.Context, run, policy, unit string) (version, of int, candidate bool, err error) {
	running, err := e.running(ctx, run, policy)
	if err != nil || running.Candidate == 0 {
		return 0, 0, false, err
	}
	if experiment.Assign(run, running.Candidate, unit, running.Share) {
		return running.Candidate, running.Candidate, true, nil
	}
	return running.Control, running.Candidate, false, nil
}

// running reads the experiment of a policy, if what is known of it is too old.
func (e *experiments) running(ctx context.Context, run, policy string) (record.Experiment, error) {
	key := [2]string{run, policy}
	e.mu.Lock()
	known, ok := e.known[key]
	e.mu.Unlock()
	now := e.now()
	if ok && now.Sub(known.read) < experimentAge {
		return known.Experiment, nil
	}
	found, err := e.store.RunningExperiment(ctx, run, policy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return record.Experiment{}, fmt.Errorf("look for an experiment: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.known) >= maxExperiments {
		clear(e.known)
	}
	e.known[key] = knownExperiment{found, now}
	return found, nil
}

// maxExperiments bounds what is remembered, since clients name runs.
const maxExperiments = 4096
