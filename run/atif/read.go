package atif

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// Store is the part of a store that trajectories are read from.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Trials(ctx context.Context, run, policy string) ([]record.Trial, error)
	Attempt(ctx context.Context, address trace.Address) (trace.Attempt, error)
	Exchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error)
	Rewards(ctx context.Context, address trace.Address) ([]trace.Reward, error)
	Spans(ctx context.Context, address trace.Address) ([]trace.Span, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Source is a policy of a run on record.
type Source struct {
	Store       Store
	Blobs       Blobs
	Run, Policy string
}

// Trajectories calls yield with each attempt of the run that counts, of every split, by
// split, step, task and sample. An attempt counts if it ended, whether or not its agent
// failed, and if no later attempt took its place.
func (s Source) Trajectories(ctx context.Context, yield func(Trajectory) error) error {
	run, err := s.Store.Run(ctx, s.Run)
	if err != nil {
		return fmt.Errorf("read run %s: %w", s.Run, err)
	}
	trials, err := s.Store.Trials(ctx, s.Run, s.Policy)
	if err != nil {
		return err
	}
	questions := questions{blobs: s.Blobs, splits: run.Splits, known: map[trace.Kind]map[string]string{}}
	for i, t := range trials {
		replaced := i+1 < len(trials) && trials[i+1].RolloutID == t.RolloutID
		if replaced || t.Outcome != trace.Completed && t.Outcome != trace.AgentFailed {
			continue
		}
		question, err := questions.of(ctx, t)
		if err != nil {
			return err
		}
		one, err := s.trajectory(ctx, t.Address, question)
		if err != nil {
			return fmt.Errorf("attempt %s: %w", t.Address, err)
		}
		if err := yield(one); err != nil {
			return err
		}
	}
	return nil
}

// trajectory reads an attempt. question is the input of its task.
func (s Source) trajectory(ctx context.Context, address trace.Address, question string) (Trajectory, error) {
	a, err := s.Store.Attempt(ctx, address)
	if err != nil {
		return Trajectory{}, err
	}
	history, err := s.Store.Exchanges(ctx, address)
	if err != nil {
		return Trajectory{}, err
	}
	spans, err := s.Store.Spans(ctx, address)
	if err != nil {
		return Trajectory{}, fmt.Errorf("read its spans: %w", err)
	}
	rewards, err := s.Store.Rewards(ctx, address)
	if err != nil {
		return Trajectory{}, fmt.Errorf("read its rewards: %w", err)
	}
	w := writer{attempt: a, rewards: map[string]map[string]float64{}}
	for _, r := range rewards {
		if w.rewards[r.CallID] == nil {
			w.rewards[r.CallID] = map[string]float64{}
		}
		if r.CallID != "" || r.Name != credit.Final {
			w.rewards[r.CallID][r.Name] = r.Value
		}
	}
	requests := attribution.Requests(history)
	names := attribution.OfRequests(history, requests, spans, a.Terms.Ignore)
	return w.document(conversations(history, requests, names), question)
}

// questions has the inputs of tasks. It reads a split when it needs it.
type questions struct {
	blobs  Blobs
	splits map[trace.Kind]record.Split
	known  map[trace.Kind]map[string]string // by split and task
}

// of returns the input of the task of an attempt, or the task's id if its split is not on
// record.
func (q questions) of(ctx context.Context, t record.Trial) (string, error) {
	split := t.Kind
	if split == trace.Reserve {
		split = trace.Train // reserves are further tasks of the split
	}
	if q.known[split] == nil {
		q.known[split] = map[string]string{}
		if digest := q.splits[split].Digest; digest != "" {
			data, err := q.blobs.Get(ctx, digest)
			if err != nil {
				return "", fmt.Errorf("read the tasks of split %s: %w", split, err)
			}
			all, err := tasks.Decode(data)
			if err != nil {
				return "", fmt.Errorf("decode the tasks of split %s: %w", split, err)
			}
			for _, one := range all {
				q.known[split][one.ID] = one.Input
			}
		}
	}
	if input, ok := q.known[split][t.TaskID]; ok {
		return input, nil
	}
	return t.TaskID, nil
}
