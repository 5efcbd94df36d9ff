package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/update"
)

// JudgeCallsInput asks for a judge's scores of a step's calls.
type JudgeCallsInput struct {
	StepGroups
}

// JudgeCallsResult names the blob with the scores, a record.Judgments.
type JudgeCallsResult struct {
	Judgments string             `json:"judgments"`
	Metrics   map[string]float64 `json:"metrics"`
}

// judgeSlack is how long one answer of a judge may take beyond its own limit before it
// counts as no progress. The store needs this time.
const judgeSlack = 20 * time.Second

// JudgeCalls lets the spec's judge score every call of the attempts that count. Calls
// that were judged before, by an earlier execution or for another run, are not judged
// again. If the judge can't be reached, that is an error that is tried again. Unreadable
// answers, and more requests than the spec allows, end the run. No attempt gets an
// invented score instead: which attempts get one would depend on earlier judgments, so
// equal runs would learn different things.
func (c *Coordinator) JudgeCalls(ctx context.Context, in JudgeCallsInput) (_ JudgeCallsResult, err error) {
	defer temporalError(&err)
	attempts, s, err := c.evidence(ctx, in)
	if err != nil {
		return JudgeCallsResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	o, err := judgeOptions(s.Credit)
	if err != nil {
		return JudgeCallsResult{}, err
	}
	j := judge.New(o, c.Ledger, in.Run, in.Policy, in.Step)
	defer j.Close()
	scores, err := beating(ctx, beat{progress: func() any { return j.Progress() }, stall: o.Timeout + judgeSlack},
		func(ctx context.Context) ([][]float64, error) { return j.Scores(ctx, attempts) })
	switch {
	case errors.Is(err, judge.ErrNonsense), errors.Is(err, judge.ErrRequests), errors.Is(err, judge.ErrRefused):
		if errors.Is(err, judge.ErrRequests) {
			return JudgeCallsResult{}, update.Final(fmt.Errorf("step %d of %s: %w; change credit.judge and start another run: what is judged stays judged", in.Step, in.Run, err))
		}
		return JudgeCallsResult{}, invalid(fmt.Errorf("step %d of %s: %w; mend the judge and retry the run, or change credit.judge and start another run: what is judged stays judged", in.Step, in.Run, err))
	case err != nil:
		return JudgeCallsResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	return c.storeJudgments(ctx, in, scores)
}

// evidence returns the parts of each attempt that the judge reads.
func (c *Coordinator) evidence(ctx context.Context, in JudgeCallsInput) ([]judge.Attempt, spec.Spec, error) {
	r, err := readRun(ctx, in.Run, c.Runs, c.Blobs)
	if err != nil {
		return nil, spec.Spec{}, err
	}
	if r.spec.Credit.Judge == nil {
		return nil, r.spec, invalid(errors.New("the spec has no credit.judge"))
	}
	codec, err := c.Codecs.named(r.spec.Model.Codec)
	if err != nil {
		return nil, r.spec, err
	}
	of := addresses(in.StepGroups)
	trajectories, err := c.Attempts.Trajectories(ctx, of)
	if err != nil {
		return nil, r.spec, fmt.Errorf("read its trajectories: %w", err)
	}
	var out []judge.Attempt
	for _, g := range in.Groups {
		task, err := r.taskOf(g, in.Step)
		if err != nil {
			return nil, r.spec, err
		}
		for _, reward := range g.Rewards {
			if len(out) == len(trajectories) {
				return nil, r.spec, invalid(fmt.Errorf("task %d has %d attempts and %d rewards", g.Task, len(g.Attempts), len(g.Rewards)))
			}
			t := trajectories[len(out)]
			if t.TaskID != task.ID {
				return nil, r.spec, invalid(fmt.Errorf("%s tried task %q, but the stream has task %q there", t.Address, t.TaskID, task.ID))
			}
			history, err := c.Attempts.Exchanges(ctx, t.Address)
			if err != nil {
				return nil, r.spec, err
			}
			out = append(out, judge.Of(t.Attempt, history, task, reward, codec))
		}
	}
	return out, r.spec, nil
}

// taskOf returns the task of a group of a step: the task at the group's ordinal in its
// stream. The groups of a trial belong to no stream: their ordinals are the indices of
// their tasks in the split.
func (r *cachedRun) taskOf(g Group, step int) (tasks.Task, error) {
	if g.Kind == trace.Try {
		return r.task(g.Kind, g.Task)
	}
	n := len(r.tasks[trace.Train])
	if n == 0 {
		return tasks.Task{}, invalid(fmt.Errorf("run %s has no train split", r.run.Name))
	}
	if g.Kind == trace.Reserve {
		return r.task(g.Kind, stream.Reserve(r.spec.Seed, n, step, g.Task))
	}
	index, _ := stream.At(r.spec.Seed, n, g.Task)
	return r.task(trace.Train, index)
}

// judgeOptions returns the options of the spec's judge. A missing API key is an error
// that is tried again, because the person who starts the worker can set one.
func judgeOptions(c spec.Credit) (judge.Options, error) {
	of := c.Judge
	o := judge.Options{
		URL: of.URL, Model: of.Model, Rubric: of.Rubric, Requests: of.Requests, Timeout: time.Duration(of.Seconds * float64(time.Second)),
	}
	if of.Key == "" {
		return o, nil
	}
	if o.Key = os.Getenv(of.Key); o.Key == "" {
		return o, fmt.Errorf("credit.judge.key: the environment variable %s is not set for this worker: start it with the judge's API key there", of.Key)
	}
	return o, nil
}

func (c *Coordinator) storeJudgments(ctx context.Context, in JudgeCallsInput, scores [][]float64) (JudgeCallsResult, error) {
	data, err := json.Marshal(record.Judgments{Scores: scores})
	if err != nil {
		return JudgeCallsResult{}, fmt.Errorf("encode the judgments of step %d: %w", in.Step, err)
	}
	digest, err := c.Blobs.Put(ctx, data)
	if err != nil {
		return JudgeCallsResult{}, fmt.Errorf("store the judgments of step %d: %w", in.Step, err)
	}
	judgments, err := c.Ledger.Judged(ctx, in.Run, in.Policy, in.Step)
	if err != nil {
		return JudgeCallsResult{}, err
	}
	nonsense, err := c.Ledger.Nonsense(ctx, in.Run, in.Policy, in.Step)
	if err != nil {
		return JudgeCallsResult{}, err
	}
	calls, sum := 0, 0.0
	for _, of := range scores {
		for _, s := range of {
			calls, sum = calls+1, sum+s
		}
	}
	return JudgeCallsResult{Judgments: digest, Metrics: map[string]float64{
		"judge/score":       sum / float64(max(1, calls)),
		"judge/calls":       float64(calls),
		"judge/requests":    float64(judgments + len(nonsense)), // requests of this execution; earlier judgments needed none
		"judge/asked_again": float64(len(nonsense)),
	}}, nil
}
