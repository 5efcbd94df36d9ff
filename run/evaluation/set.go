package evaluation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrNoEvaluation is wrapped when a reference names no evaluation on record.
var ErrNoEvaluation = errors.New("no evaluation")

// ErrIncomplete is wrapped when an evaluation lacks rewards: they were removed, or its
// attempts were made by another program.
var ErrIncomplete = errors.New("rewards are missing")

// Scores reads the rewards of a version's evaluation. Its step is the number of the
// version.
type Scores interface {
	Scores(ctx context.Context, run, policy string, kind trace.Kind, step int) ([]record.Score, error)
}

// Store is the part of a store that the package reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Scores
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Set is an evaluation on record with every reward of it.
type Set struct {
	record.Evaluation
	Spec    spec.Spec
	Tasks   []tasks.Task
	Rewards [][]float64 // by task and sample
	Greedy  bool        // whether Rewards are those at temperature 0; otherwise those are left out
}

// Name returns how users write the evaluation, such as "demo@12 on test".
func (s Set) Name() string { return fmt.Sprintf("%s@%d on %s", s.Run, s.Version, s.Kind) }

// Rewards reads the rewards of an evaluation by task and sample, without those at
// temperature 0. If rewards are missing, it returns an error that says which.
func Rewards(ctx context.Context, s Scores, e record.Evaluation) ([][]float64, error) {
	samples, err := samplesOf(e)
	if err != nil {
		return nil, err
	}
	return rewards(ctx, s, e, 0, samples)
}

// greedyRewards reads the rewards of the attempts at temperature 0, one of each task.
func greedyRewards(ctx context.Context, s Scores, e record.Evaluation) ([][]float64, error) {
	if e.Greedy == nil {
		return nil, fmt.Errorf("evaluation of %s@%d on %s: %w: it has no attempts at temperature 0; those on the test split do", e.Run, e.Version, e.Kind, ErrIncomplete)
	}
	samples, err := samplesOf(e)
	if err != nil {
		return nil, err
	}
	return rewards(ctx, s, e, samples, 1)
}

// samplesOf returns how many samples each task has, without the one at temperature 0.
func samplesOf(e record.Evaluation) (int, error) {
	if e.Tasks < 1 || e.Rollouts < e.Tasks || e.Rollouts%e.Tasks != 0 {
		return 0, fmt.Errorf("evaluation of %s@%d on %s: %w: %d rollouts of %d tasks", e.Run, e.Version, e.Kind, ErrIncomplete, e.Rollouts, e.Tasks)
	}
	return e.Rollouts / e.Tasks, nil
}

// rewards reads the rewards of n samples of each task, the first of which has that number.
func rewards(ctx context.Context, s Scores, e record.Evaluation, first, n int) ([][]float64, error) {
	scores, err := s.Scores(ctx, e.Run, e.Policy, e.Kind, e.Version)
	if err != nil {
		return nil, err
	}
	out, found := make([][]float64, e.Tasks), 0
	for i := range out {
		out[i] = make([]float64, n)
	}
	for _, r := range scores {
		if r.Task < e.Tasks && r.Sample >= first && r.Sample < first+n {
			out[r.Task][r.Sample-first] = r.Reward
			found++
		}
	}
	if found != n*e.Tasks {
		return nil, fmt.Errorf("evaluation of %s@%d on %s: %w: %d of %d are on record", e.Run, e.Version, e.Kind, ErrIncomplete, found, n*e.Tasks)
	}
	return out, nil
}

// Find returns the evaluation of the default policy that a reference means: RUN@NUMBER
// means that of a version, and RUN alone the only evaluation of the run. If there are
// several, split selects one; it may be empty.
func Find(ctx context.Context, s Store, reference string, split trace.Kind) (record.Evaluation, error) {
	run, number, numbered := strings.Cut(reference, "@")
	all, err := s.Evaluations(ctx, run)
	if err != nil {
		return record.Evaluation{}, err
	}
	version := -1
	if numbered {
		if version, err = strconv.Atoi(number); err != nil || version < 0 {
			return record.Evaluation{}, fmt.Errorf("%w %q: want RUN@NUMBER, or the name of an evaluation", ErrNoEvaluation, reference)
		}
	}
	found := slices.DeleteFunc(slices.Clone(all), func(e record.Evaluation) bool {
		return e.Policy != model.DefaultPolicy || version >= 0 && e.Version != version || split != "" && e.Kind != split
	})
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return found[0], fmt.Errorf("%s means several evaluations, %s: give RUN@NUMBER, and --split", reference, list(found))
	case len(all) > 0:
		return record.Evaluation{}, fmt.Errorf("%w %s%s: of run %s there are %s", ErrNoEvaluation, reference, on(split), run, list(all))
	}
	if _, err := s.Run(ctx, run); err != nil {
		return record.Evaluation{}, fmt.Errorf("run %s: %w", run, err)
	}
	return record.Evaluation{}, fmt.Errorf("%w %s: run %s has none on record", ErrNoEvaluation, reference, run)
}

func on(split trace.Kind) string {
	if split == "" {
		return ""
	}
	return fmt.Sprintf(" on %s", split)
}

// list names evaluations of a run.
func list(all []record.Evaluation) string {
	const most = 8
	var names []string
	for _, e := range all[:min(most, len(all))] {
		names = append(names, fmt.Sprintf("%s@%d on %s", e.Run, e.Version, e.Kind))
	}
	if len(all) > most {
		names = append(names, fmt.Sprintf("%d more", len(all)-most))
	}
	return strings.Join(names, ", ")
}

// Load reads an evaluation with its spec, its tasks and its rewards: those at temperature 0
// if greedy is set, otherwise the others.
func Load(ctx context.Context, s Store, blobs Blobs, e record.Evaluation, greedy bool) (Set, error) {
	out := Set{Evaluation: e, Greedy: greedy}
	run, err := s.Run(ctx, e.Run)
	if err != nil {
		return out, fmt.Errorf("run %s: %w", e.Run, err)
	}
	if out.Spec, err = spec.Stored(run.Spec); err != nil {
		return out, fmt.Errorf("decode the spec of run %s: %w", e.Run, err)
	}
	text, err := blobs.Get(ctx, run.Splits[e.Kind].Digest)
	if err != nil {
		return out, fmt.Errorf("read the tasks of %s: %w", out.Name(), err)
	}
	if out.Tasks, err = tasks.Decode(text); err != nil {
		return out, fmt.Errorf("decode the tasks of %s: %w", out.Name(), err)
	}
	if len(out.Tasks) != e.Tasks {
		return out, fmt.Errorf("%s has %d tasks, its split has %d", out.Name(), e.Tasks, len(out.Tasks))
	}
	if greedy {
		out.Rewards, err = greedyRewards(ctx, s, e)
	} else {
		out.Rewards, err = Rewards(ctx, s, e)
	}
	return out, err
}
