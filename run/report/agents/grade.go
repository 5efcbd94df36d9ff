package agents

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

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
func (g *regrader) endOf(ctx context.Context, a trace.Attempt, task tasks.Task, history []trace.Exchange, requests []*wire.Request) (end, error) {
	success := g.spec.Evaluation.SuccessThreshold()
	if spec.Reaches(*a.Reward, success) {
		return endRight, nil
	}
	var ungraded error
	if a.Outcome == trace.Completed && grading.KnowsProse(g.spec.Grader) {
		earned, err := g.grade(ctx, task, a.Result)
		if err == nil && spec.Reaches(earned.withoutProse, success) {
			return endProse, nil
		}
		ungraded = err
	}
	return endInCalls(a, history, requests), ungraded
}

// endInCalls returns how an attempt ended that is not a success in any form.
func endInCalls(a trace.Attempt, history []trace.Exchange, requests []*wire.Request) end {
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
	case a.Outcome == trace.AgentFailed:
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
