package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/experiment"
	"github.com/fulgurite/fulgurite/update"
)

// Experiments keeps comparisons of versions in use.
type Experiments interface {
	BeginExperiment(ctx context.Context, e record.Experiment) (record.Experiment, bool, error)
	RunningExperiment(ctx context.Context, run, policy string) (record.Experiment, error)
	PutExperimentResult(ctx context.Context, run, policy string, candidate int, result json.RawMessage) error
	EndExperiment(ctx context.Context, e record.Experiment) error
	// JudgedConversations returns the conversations of an experiment that have a value, with
	// the first value that each was given, in the order in which these came.
	JudgedConversations(ctx context.Context, run, policy string, candidate int) ([]record.JudgedConversation, error)
}

// ExperimentInput names a candidate, and the version that it is compared with.
type ExperimentInput struct {
	Run       string `json:"run"`
	Policy    string `json:"policy"`
	Candidate int    `json:"candidate"`
	Control   int    `json:"control"`
}

// ExperimentResult says how an experiment ended.
type ExperimentResult struct {
	Status record.ExperimentStatus `json:"status"`
	Reason string                  `json:"reason"`
}

// RunExperiment lets a candidate answer its share of conversations, until the rule or somebody
// else ends the experiment, and returns how it ended. An execution that was interrupted goes
// on with the experiment on record.
func (c *Coordinator) RunExperiment(ctx context.Context, in ExperimentInput) (_ ExperimentResult, err error) {
	defer temporalError(&err)
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return ExperimentResult{}, err
	}
	if !s.FromTraffic() || s.Traffic.Train.Experiment == nil {
		return ExperimentResult{}, invalid(errors.New("traffic.train.experiment: missing"))
	}
	of := s.Traffic.Train.Experiment
	settings := experiment.Settings{Share: of.Share, Level: of.Level, MinConversations: of.MinConversations, MaxConversations: of.MaxConversations}
	if err := settings.Check(); err != nil {
		return ExperimentResult{}, invalid(fmt.Errorf("traffic.train.experiment: %w", err))
	}
	e, _, err := c.Experiments.BeginExperiment(ctx, record.Experiment{
		Run: in.Run, Policy: in.Policy, Candidate: in.Candidate, Control: in.Control, Share: of.Share,
	})
	if err != nil {
		if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrForgotten) {
			err = update.Final(err)
		}
		return ExperimentResult{}, err
	}
	seen := -1
	for wait := firstLook; ; wait = min(2*wait, longestLook) {
		if e.Status != record.ExperimentRunning {
			return ExperimentResult{e.Status, e.Reason}, nil
		}
		if seen, err = c.look(ctx, e, settings, seen); err != nil {
			return ExperimentResult{}, err
		}
		if e, _, err = c.Experiments.BeginExperiment(ctx, e); err != nil || e.Status != record.ExperimentRunning {
			if err != nil {
				return ExperimentResult{}, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ExperimentResult{}, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// look compares the versions if more was judged than was seen before, and ends the experiment
// if the rule says so. It returns how many conversations it has seen.
func (c *Coordinator) look(ctx context.Context, e record.Experiment, settings experiment.Settings, seen int) (int, error) {
	promoted, err := c.Ledger.Promoted(ctx, e.Run, e.Policy)
	if err != nil {
		return seen, fmt.Errorf("find the promoted version of run %s: %w", e.Run, err)
	}
	if promoted.Version != e.Control {
		e.Status, e.Reason = record.ExperimentEnded, fmt.Sprintf("version %d was promoted meanwhile, in place of version %d", promoted.Version, e.Control)
		return seen, c.endExperiment(ctx, e)
	}
	judged, err := c.Experiments.JudgedConversations(ctx, e.Run, e.Policy, e.Candidate)
	if err != nil {
		return seen, fmt.Errorf("read what was judged of the experiment with version %d of run %s: %w", e.Candidate, e.Run, err)
	}
	if len(judged) == seen {
		return seen, nil
	}
	outcomes := make([]experiment.Outcome, len(judged))
	for i, j := range judged {
		outcomes[i] = experiment.Outcome{Unit: j.Unit(), Candidate: j.Candidate, Value: (j.Value + 1) / 2, At: j.At}
	}
	result, err := experiment.Compare(settings, outcomes)
	if err != nil {
		return seen, invalid(fmt.Errorf("experiment with version %d of run %s: %w", e.Candidate, e.Run, err))
	}
	if e.Result, err = json.Marshal(result); err != nil {
		return seen, fmt.Errorf("encode the result of the experiment with version %d: %w", e.Candidate, err)
	}
	verdict, reason := experiment.Decide(settings, result)
	e.Reason = reason
	switch verdict {
	case experiment.Promote:
		e.Status = record.ExperimentPromoted
	case experiment.Withdraw:
		e.Status = record.ExperimentWithdrawn
	case experiment.End:
		e.Status = record.ExperimentEnded
	default:
		if err := c.Experiments.PutExperimentResult(ctx, e.Run, e.Policy, e.Candidate, e.Result); err != nil && !errors.Is(err, record.ErrConflict) {
			return seen, err
		}
		return len(judged), nil
	}
	return len(judged), c.endExperiment(ctx, e)
}

// endExperiment ends an experiment, unless it has ended otherwise.
func (c *Coordinator) endExperiment(ctx context.Context, e record.Experiment) error {
	if err := c.Experiments.EndExperiment(ctx, e); err != nil && !errors.Is(err, record.ErrConflict) {
		return err
	}
	return nil
}

// EndExperimentInput ends the experiment of a run that is running, if there is one.
type EndExperimentInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Reason string `json:"reason"`
}

// EndExperiment ends the experiment of a run without a promotion, if one is running.
func (c *Coordinator) EndExperiment(ctx context.Context, in EndExperimentInput) (err error) {
	defer temporalError(&err)
	e, err := c.Experiments.RunningExperiment(ctx, in.Run, in.Policy)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	e.Status, e.Reason = record.ExperimentEnded, in.Reason
	return c.endExperiment(ctx, e)
}
