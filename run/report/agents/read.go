package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
	"github.com/fulgurite/fulgurite/wire"
)

// Store is the part of a store that contributions are read from.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Attempts(ctx context.Context, run string, kind record.Kind, step int) ([]record.Attempt, error)
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	Spans(ctx context.Context, address record.Address) ([]record.Span, error)
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
	splits := map[record.Kind]split{}
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
	for _, split := range []record.Kind{record.Train, record.Gate, record.Test} {
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
	var counted []record.Attempt
	for i, a := range all {
		replaced := i+1 < len(all) && all[i+1].RolloutID == a.RolloutID
		if replaced || a.Terms.Policy != s.Policy || a.Reward == nil || a.Outcome != record.OutcomeCompleted && a.Outcome != record.AgentFailed {
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
func (s Source) attempt(ctx context.Context, g *regrader, a record.Attempt, task tasks.Task) (attempt, error) {
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

// ungradedError says why a text could not be graded on this machine.
type ungradedError struct{ error }

// regrader grades texts again, each of a task once.
type regrader struct {
	graders Graders
	spec    spec.Spec

	mutex sync.Mutex
	known map[text]graded
}

type text struct{ task, said string }

type graded struct {
	rewards
	err error
}

// grade returns the rewards of a text. An error is one of ctx or an *ungradedError.
func (g *regrader) grade(ctx context.Context, task tasks.Task, said string) (rewards, error) {
	key := text{task.ID, said}
	g.mutex.Lock()
	one, ok := g.known[key]
	g.mutex.Unlock()
	if ok {
		return one.rewards, one.err
	}
	var err error
	if one.asWritten, _, err = g.graders.Grade(ctx, g.spec.Grader, task, said); err == nil {
		one.withoutProse, err = g.graders.GradeWithoutProse(ctx, g.spec.Grader, task, said)
		one.withoutProse = max(one.withoutProse, one.asWritten) // a rule for prose may also take away what the grader's own settings find
	}
	if ctx.Err() != nil {
		return one.rewards, ctx.Err()
	}
	switch {
	case errors.Is(err, sqlmatch.ErrDatabase): // the same for many tasks, so it is told without the task
		one.err = &ungradedError{cmp.Or(errors.Unwrap(err), err)}
	case err != nil:
		one.err = &ungradedError{err}
	}
	g.mutex.Lock()
	g.known[key] = one
	g.mutex.Unlock()
	return one.rewards, one.err
}

// replies grades the first and the last reply of each agent.
func (g *regrader) replies(ctx context.Context, task tasks.Task, names []attribution.Name, texts []string) ([]reply, error) {
	out := counts(names)
	for i := range out {
		first, last := -1, 0
		for k, n := range names {
			if n.Agent != out[i].by.Agent {
				continue
			}
			if last = k; first < 0 {
				first = k
			}
		}
		var err error
		if out[i].first, err = g.grade(ctx, task, texts[first]); err != nil {
			return nil, err
		}
		if out[i].last, err = g.grade(ctx, task, texts[last]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// end is how an attempt ended.
type end int

// The ends. An attempt has the first one that applies.
const (
	endRight end = iota
	endProse
	endNoReply
	endCutOff
	endFailed
	endNoToolCall
	endWrong
)

// endOf returns how an attempt ended. If its result can't be graded again, it may have been
// endProse, and the error is an *ungradedError.
func (g *regrader) endOf(ctx context.Context, a record.Attempt, task tasks.Task, history []record.Exchange, requests []*wire.Request) (end, error) {
	success := g.spec.Evaluation.SuccessThreshold()
	if spec.Reaches(*a.Reward, success) {
		return endRight, nil
	}
	var ungraded error
	if a.Outcome == record.OutcomeCompleted && grading.KnowsProse(g.spec.Grader) {
		earned, err := g.grade(ctx, task, a.Result)
		if err == nil && spec.Reaches(earned.withoutProse, success) {
			return endProse, nil
		}
		ungraded = err
	}
	return endInCalls(a, history, requests), ungraded
}

// endInCalls returns how an attempt ended that is not a success in any form.
func endInCalls(a record.Attempt, history []record.Exchange, requests []*wire.Request) end {
	offered, called := false, false
	for i, c := range history {
		if c.CutOff() {
			return endCutOff
		}
		offered = offered || requests[i] != nil && len(requests[i].Tools) > 0
		for _, m := range attribution.Replies(c.Response) {
			called = called || len(m.ToolCalls) > 0
		}
	}
	switch {
	case len(history) == 0:
		return endNoReply
	case a.Outcome == record.AgentFailed:
		return endFailed
	case offered && !called:
		return endNoToolCall
	}
	return endWrong
}

// add counts an end.
func (e *Ends) add(one end) {
	counts := [...]*int{endRight: &e.Right, endProse: &e.Prose, endNoReply: &e.NoReply, endCutOff: &e.CutOff, endFailed: &e.Failed, endNoToolCall: &e.NoToolCall, endWrong: &e.Wrong}
	*counts[one]++
}
