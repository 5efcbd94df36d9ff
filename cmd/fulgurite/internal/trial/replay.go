package trial

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// replays tells whether an attempt that is tried again finds its calls on record.
type replays struct {
	Calls       int          `json:"calls"`    // of the first attempts
	Replayed    int          `json:"replayed"` // how many of them the second attempts replayed
	Differences []difference `json:"differences"`
}

// difference is where a second attempt left the first.
type difference struct {
	Attempt    string `json:"attempt"`
	Call       int    `json:"call"` // number of the attempt's call, from 0; -1 is its end
	Difference string `json:"difference"`
}

var errNoReplay = errors.New("the second attempts do not replay the first")

// compareTwice compares each second attempt with the first at the same rollout.
func compareTwice(ctx context.Context, st *stack.Stack, trial workflows.TryResult) (*replays, error) {
	out := &replays{Differences: []difference{}}
	for i, g := range trial.Groups {
		for sample, attempt := range g.Attempts {
			first, err := readTrial(ctx, st, trialAddress(g.Task, sample, attempt))
			if err != nil {
				return nil, err
			}
			second, err := readTrial(ctx, st, trialAddress(g.Task, sample, trial.Again[i].Attempts[sample]))
			if err != nil {
				return nil, err
			}
			out.add(first, second)
		}
	}
	return out, nil
}

func readTrial(ctx context.Context, st *stack.Stack, address trace.Address) (trace.Trajectory, error) {
	all, err := st.Store.Trajectories(ctx, []trace.Address{address})
	if err != nil {
		return trace.Trajectory{}, err
	}
	return all[0], nil
}

func (r *replays) add(first, second trace.Trajectory) {
	type request struct {
		key        string
		occurrence int
	}
	again := map[request]bool{}
	for _, c := range second.History {
		again[request{c.Key, c.Occurrence}] = c.ReplayedFrom > 0
	}
	replayed := 0
	for _, c := range first.History {
		if again[request{c.Key, c.Occurrence}] {
			replayed++
		}
	}
	r.Calls += len(first.History)
	r.Replayed += replayed
	if call, text := leaving(first, second, replayed); text != "" {
		r.Differences = append(r.Differences, difference{second.Address.String(), call, text})
	}
}

// leaving returns the first call at which the second attempt differs from the first, and
// how it differs. difference is empty if the attempts agree.
func leaving(first, second trace.Trajectory, replayed int) (call int, difference string) {
	for _, c := range second.History {
		if c.Divergence != nil && replayed < len(first.History) {
			return c.Seq, c.Divergence.Difference
		}
	}
	switch {
	case replayed < len(first.History):
		return -1, fmt.Sprintf("it made %d of the %d calls and no other", replayed, len(first.History))
	case len(second.History) > replayed:
		return replayed, fmt.Sprintf("it went on after the %d calls, with %d more", replayed, len(second.History)-replayed)
	case first.Outcome != second.Outcome:
		return -1, fmt.Sprintf("the outcome was %s, is %s", first.Outcome, second.Outcome)
	case first.Result != second.Result:
		return -1, fmt.Sprintf("the result was %.80q, is %.80q", first.Result, second.Result)
	}
	return 0, ""
}

// verdict returns an error if a second attempt was not replayed completely.
func (r *replays) verdict() error {
	if r == nil || len(r.Differences) == 0 {
		return nil
	}
	return errNoReplay
}

func (r *replays) print(t *terminal.Terminal) {
	if r == nil {
		return
	}
	t.Printf("\nreplays: %d of %d calls\n", r.Replayed, r.Calls)
	if len(r.Differences) == 0 {
		return
	}
	d := r.Differences[0]
	at := fmt.Sprintf("call %d", d.Call)
	if d.Call < 0 {
		at = "its end"
	}
	t.Printf("    %s differs at %s: %s\n", d.Attempt, at, d.Difference)
	if more := len(r.Differences) - 1; more > 0 {
		t.Printf("    and %d more attempts differ; see --json\n", more)
	}
	t.Printf("A killed agent is replayed for as long as it repeats its earlier requests.\n" +
		"Make requests depend only on the task and on the replies, or list what may differ as\n" +
		"regular expressions under replay.ignore in the spec, for example '\\d\\d:\\d\\d'.\n")
}
