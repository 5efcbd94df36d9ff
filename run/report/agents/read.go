package agents

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/trace"
)

// Store is the part of a store that contributions are read from.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Attempts(ctx context.Context, run string, kind trace.Kind, step int) ([]trace.Attempt, error)
	Exchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error)
	Spans(ctx context.Context, address trace.Address) ([]trace.Span, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Graders grade texts.
type Graders interface {
	Grade(ctx context.Context, grader spec.Grader, t tasks.Task, text string) (reward float64, verdict string, err error)
	GradeWithoutProse(ctx context.Context, grader spec.Grader, t tasks.Task, text string) (float64, error)
}

// Source is a policy of a run on record, and what grades its replies.
type Source struct {
	Store       Store
	Blobs       Blobs
	Graders     Graders
	Run, Policy string
	// Cluster is the key of the tasks' metadata by whose value tasks are alike; intervals
	// are then by its values. Without a key they are by task.
	Cluster string
}

// Report makes the report. A run that was refused or not evaluated has one without
// evaluations.
func (s Source) Report(ctx context.Context) (*Report, error) {
	run, err := s.Store.Run(ctx, s.Run)
	if err != nil {
		return nil, fmt.Errorf("report on the agents of run %s: %w", s.Run, err)
	}
	out := &Report{Level: evaluation.Level, Cluster: s.Cluster, Evaluations: []Evaluation{}}
	if run.Status == record.Refused {
		return out, nil
	}
	of, err := spec.Stored(run.Spec)
	if err != nil {
		return nil, fmt.Errorf("decode the spec of run %s: %w", s.Run, err)
	}
	out.Grader = of.Grader.Type
	if !grading.GradesTexts(of.Grader) {
		out.NotGraded = fmt.Sprintf("grader.type %s needs more than a text, so replies can't be graded by themselves", of.Grader.Type)
	}
	chosen, err := s.chosen(ctx)
	if err != nil {
		return nil, fmt.Errorf("report on the agents of run %s: %w", s.Run, err)
	}
	splits := map[trace.Kind]split{}
	for _, e := range chosen {
		if splits[e.Kind].tasks == nil {
			if splits[e.Kind], err = s.split(ctx, run.Splits[e.Kind]); err != nil {
				return nil, fmt.Errorf("read the tasks of split %s of run %s: %w", e.Kind, s.Run, err)
			}
		}
		attempts, err := s.attempts(ctx, of, e, splits[e.Kind].tasks)
		if err != nil {
			return nil, fmt.Errorf("report on the agents of %s@%d on %s: %w", s.Run, e.Version, e.Kind, err)
		}
		for _, greedy := range []bool{false, true} {
			if one := summed(e, splits[e.Kind], of.Grader, greedy, attempts); one.Attempts > 0 {
				out.Evaluations = append(out.Evaluations, one)
			}
		}
	}
	return out, nil
}

// chosen returns, for each split, the evaluations of the version that was evaluated first,
// of the promoted one, and of the newest, in this order and each once.
func (s Source) chosen(ctx context.Context) ([]record.Evaluation, error) {
	all, err := s.Store.Evaluations(ctx, s.Run)
	if err != nil {
		return nil, err
	}
	moves, err := s.Store.Promotions(ctx, s.Run, s.Policy)
	if err != nil {
		return nil, err
	}
	promoted := -1
	if len(moves) > 0 {
		promoted = moves[len(moves)-1].Version
	}
	var out []record.Evaluation
	for _, split := range []trace.Kind{trace.Train, trace.Gate, trace.Test} {
		of := slices.DeleteFunc(slices.Clone(all), func(e record.Evaluation) bool { return e.Kind != split || e.Policy != s.Policy })
		slices.SortFunc(of, func(a, b record.Evaluation) int { return a.Version - b.Version })
		for i, e := range of {
			if i == 0 || i == len(of)-1 || e.Version == promoted {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// split has the tasks of a split by id, and which of them are alike.
type split struct {
	tasks    map[string]tasks.Task
	size     int
	clusters evaluation.Clusters
}

func (s Source) split(ctx context.Context, of record.Split) (split, error) {
	data, err := s.Blobs.Get(ctx, of.Digest)
	if err != nil {
		return split{}, err
	}
	list, err := tasks.Decode(data)
	if err != nil {
		return split{}, err
	}
	out := split{tasks: make(map[string]tasks.Task, len(list)), size: len(list)}
	for _, t := range list {
		out.tasks[t.ID] = t
	}
	out.clusters, err = evaluation.ClustersOf(list, s.Cluster)
	return out, err
}

// attempt is what an attempt of an evaluation contributes to the report.
type attempt struct {
	task, sample int
	reward       float64
	end          end
	replies      []reply // the first and the last one of each agent
	ungraded     error   // why they have no rewards
}

// reply has the replies of an agent in an attempt.
type reply struct {
	by          attribution.Name
	count       int
	first, last rewards
}

// rewards are those of a reply.
type rewards struct{ asWritten, withoutProse float64 }

// attempts reads the attempts of an evaluation that count and have a reward.
func (s Source) attempts(ctx context.Context, of spec.Spec, e record.Evaluation, list map[string]tasks.Task) ([]attempt, error) {
	all, err := s.Store.Attempts(ctx, s.Run, e.Kind, e.Version)
	if err != nil {
		return nil, err
	}
	var counted []trace.Attempt
	for i, a := range all {
		replaced := i+1 < len(all) && all[i+1].RolloutID == a.RolloutID
		if replaced || a.Terms.Policy != s.Policy || a.Reward == nil || a.Outcome != trace.Completed && a.Outcome != trace.AgentFailed {
			continue
		}
		counted = append(counted, a)
	}
	g := &regrader{graders: s.Graders, spec: of, known: map[text]graded{}}
	out := make([]attempt, len(counted))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, a := range counted {
		group.Go(func() (err error) {
			task, ok := list[a.TaskID]
			if !ok {
				return fmt.Errorf("attempt %s: its split has no task %s", a.Address, a.TaskID)
			}
			out[i], err = s.attempt(ctx, g, a, task)
			return err
		})
	}
	return out, group.Wait()
}

// attempt reads the replies of an attempt and grades them.
func (s Source) attempt(ctx context.Context, g *regrader, a trace.Attempt, task tasks.Task) (attempt, error) {
	history, err := s.Store.Exchanges(ctx, a.Address)
	if err != nil {
		return attempt{}, err
	}
	spans, err := s.Store.Spans(ctx, a.Address)
	if err != nil {
		return attempt{}, fmt.Errorf("read the spans of %s: %w", a.Address, err)
	}
	requests := attribution.Requests(history)
	names := attribution.OfRequests(history, requests, spans, a.Terms.Ignore)
	texts := make([]string, len(history))
	for i, c := range history {
		for _, m := range attribution.Replies(c.Response) {
			texts[i] = m.Content
		}
	}
	out := attempt{task: a.Task, sample: a.Sample, reward: *a.Reward}
	if grading.GradesTexts(g.spec.Grader) {
		out.replies, err = g.replies(ctx, task, names, texts)
	} else {
		out.replies, err = counts(names), nil
	}
	var cause *ungradedError
	if errors.As(err, &cause) {
		out.ungraded, err = cause.error, nil
		out.replies = counts(names)
	}
	if err != nil {
		return out, err
	}
	out.end, err = g.endOf(ctx, a, task, history, requests)
	if errors.As(err, &cause) {
		out.ungraded, err = cause.error, nil
	}
	return out, err
}

// counts returns the agents of an attempt without rewards.
func counts(names []attribution.Name) []reply {
	var out []reply
	for _, n := range names {
		i := slices.IndexFunc(out, func(r reply) bool { return r.by.Agent == n.Agent })
		if i < 0 {
			i, out = len(out), append(out, reply{by: n})
		}
		out[i].count++
	}
	return out
}
