package activities

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.temporal.io/sdk/activity"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// finalReward is the name of the reward that decides: the grader's, or the one
// that an agent posts.
const finalReward = "final"

const (
	graderByCommand = "command" // an activity of its own decides
	graderByAgent   = "agent"   // the agent reports its reward itself
)

// judge fills in how the attempt ended and, unless a grader command decides,
// its reward.
func (r *Runner) judge(ctx context.Context, s spec.Spec, task tasks.Task, result agent.Result, a *trace.Attempt) error {
	a.Outcome, a.Result = trace.Completed, result.Text
	if result.Failed() {
		failed(a, s, result)
		return nil
	}
	switch s.Grader.Type {
	case graderByCommand:
		return nil
	case graderByAgent:
		if result.RewardError != "" {
			failed(a, s, agent.Result{Failure: badReward, Message: result.RewardError})
			return nil
		}
		reward, ok, err := r.reported(ctx, a.Address, result)
		if err != nil {
			return err
		}
		if !ok {
			failed(a, s, agent.Result{Failure: noReward, Message: "the agent reported no reward", Stderr: result.Stderr})
			return nil
		}
		a.Reward = &reward
		return nil
	}
	reward, err := tasks.Grade(s.Grader, task, result.Text)
	if err != nil {
		return invalid(err)
	}
	a.Reward = &reward
	return nil
}

// reported is the reward that the agent gave itself.
func (r *Runner) reported(ctx context.Context, address trace.Address, result agent.Result) (float64, bool, error) {
	if result.Reward != nil {
		return *result.Reward, true, nil
	}
	posted, err := r.Attempts.Rewards(ctx, address)
	if err != nil {
		return 0, false, fmt.Errorf("read rewards: %w", err)
	}
	for _, p := range posted {
		if p.Name == finalReward && p.CallID == "" {
			return p.Value, true, nil
		}
	}
	return 0, false, nil
}

// GraderTries is how often a grader command is asked about one attempt: one that
// gives no reward in as many tries is broken, or its task is.
const GraderTries = 5

// GradeRollout lets the spec's grader command decide the reward of an attempt. The
// first reward that was recorded counts, so a grader is not asked twice. One that
// can't be started is an error; one that gives no reward after all tries, or an
// absurd one, is a fault of the task.
func (r *Runner) GradeRollout(ctx context.Context, in GradeRolloutInput) (_ GradeRolloutResult, err error) {
	defer settle(&err)
	v, err := r.library.open(ctx, in.Address.Run, r.Runs, r.Blobs)
	if err != nil {
		return GradeRolloutResult{}, err
	}
	if reward, ok, err := r.reported(ctx, in.Address, agent.Result{}); err != nil || ok {
		return GradeRolloutResult{Reward: reward}, err
	}
	task, err := v.task(in.Address.Kind, in.Index)
	if err != nil {
		return GradeRolloutResult{}, err
	}
	a, err := r.Attempts.Attempt(ctx, in.Address)
	if err != nil {
		return GradeRolloutResult{}, fmt.Errorf("read attempt %s: %w", in.Address, err)
	}
	reward, err := tasks.GradeCommand(ctx, v.spec.Grader, task, a.Result)
	if err != nil {
		return brokenGrader(ctx, fmt.Errorf("grade attempt %s: %w", in.Address, err))
	}
	if limit := v.spec.Grader.Limit; limit > 0 && math.Abs(reward) > limit {
		return GradeRolloutResult{TaskFault: fmt.Sprintf("grader of attempt %s returned %v, beyond grader.limit %v", in.Address, reward, limit)}, nil
	}
	err = r.Attempts.PutReward(ctx, trace.Reward{Address: in.Address, Name: finalReward, Value: reward, Source: "grader"})
	if errors.Is(err, trace.ErrConflict) {
		reward, _, err = r.reported(ctx, in.Address, agent.Result{})
	}
	return GradeRolloutResult{Reward: reward}, err
}

// brokenGrader is what comes of a grader that gave no reward. That it could not be
// started tells of this machine and nothing of the task.
func brokenGrader(ctx context.Context, err error) (GradeRolloutResult, error) {
	var command *tasks.CommandError
	if !errors.As(err, &command) || errors.Is(err, tasks.ErrGraderStart) || activity.GetInfo(ctx).Attempt < GraderTries {
		return GradeRolloutResult{}, err
	}
	return GradeRolloutResult{TaskFault: brief(err.Error())}, nil
}
