package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/stack"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

type tryCommand struct {
	Spec  string `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	Tasks int    `help:"How many tasks to run." default:"2"`
	Twice bool   `help:"Run every rollout twice and show where the second attempt can't be replayed."`
	JSON  bool   `help:"Print JSON." name:"json"`
}

// tryReport is what `fulgurite try` found.
type tryReport struct {
	Attempts []tryAttempt `json:"attempts"`
	// Problems are what would stop learning.
	Problems []string `json:"problems"`
	// Twice is what --twice found.
	Twice *tryTwice `json:"twice,omitempty"`
}

type tryAttempt struct {
	Attempt string        `json:"attempt"`
	Task    string        `json:"task"`
	Outcome trace.Outcome `json:"outcome"`
	Result  string        `json:"result"`
	Error   string        `json:"error,omitempty"`
	Reward  float64       `json:"reward"`
	Calls   []tryCall     `json:"calls"`
}

type tryCall struct {
	Prompt     string  `json:"prompt"`     // as text, special tokens by name
	Completion string  `json:"completion"` // as text
	Trained    int     `json:"trained"`    // tokens of it that training would learn from
	Tokens     [2]int  `json:"tokens"`     // of prompt and completion
	Logprob    float64 `json:"logprob"`    // of the whole completion
	Problem    string  `json:"problem,omitempty"`
}

func (c *tryCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	if c.Tasks < 1 {
		return usagef("--tasks %d: want at least 1", c.Tasks)
	}
	p, err := makePlan(c.Spec)
	if err != nil {
		return err
	}
	sp := p.Spec
	return inTrial(ctx, s, t, sp, func(st *stack.Stack) error {
		report, err := c.try(ctx, st, sp)
		if err != nil {
			return err
		}
		if c.JSON {
			return errors.Join(t.json(report), report.Twice.verdict())
		}
		report.print(t)
		return report.Twice.verdict()
	})
}

// trialRun is the name of the run inside a trial's stack.
const trialRun = "try"

// inTrial brings a whole stack up in a temporary directory, so that what is
// tried is what will run, and nothing of it stays.
func inTrial(ctx context.Context, s *shared, t *terminal, sp spec.Spec, f func(*stack.Stack) error) (err error) {
	dir, err := os.MkdirTemp("", "fulgurite-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var queues []string
	if sp.Agent.Queue != workflows.QueueRollout {
		queues = append(queues, sp.Agent.Queue)
	}
	st, err := stack.Start(ctx, stack.Options{Dir: dir, Agents: agents(), Queues: queues, Log: s.logger(ctx, t.err), ServerLog: s.serverLogger(ctx, t.err)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return f(st)
}

// runTrial prepares the spec and runs the groups of its first tasks.
func runTrial(ctx context.Context, st *stack.Stack, sp spec.Spec, tasks int, twice bool) (workflows.TryResult, error) {
	var groups workflows.TryResult
	input, err := encodeSpec(sp)
	if err != nil {
		return groups, err
	}
	w, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: trialRun, TaskQueue: workflows.QueueTraining},
		"TryWorkflow", workflows.TryInput{Training: input, Tasks: tasks, Twice: twice})
	if err != nil {
		return groups, fmt.Errorf("start the trial: %w", err)
	}
	if err := w.Get(ctx, &groups); err != nil {
		return groups, fmt.Errorf("trial: %w", err)
	}
	return groups, nil
}

func (c *tryCommand) try(ctx context.Context, st *stack.Stack, sp spec.Spec) (tryReport, error) {
	trial, err := runTrial(ctx, st, sp, c.Tasks, c.Twice)
	if err != nil {
		return tryReport{}, err
	}
	recorded, err := st.Catalog.Spec(ctx, trialRun)
	if err != nil {
		return tryReport{}, err
	}
	codec, err := st.Codecs.Named(recorded.Model.Codec)
	if err != nil {
		return tryReport{}, err
	}
	out := tryReport{Attempts: []tryAttempt{}, Problems: []string{}}
	varied := false
	for _, g := range trial.Groups {
		varied = varied || credit.Varies(g.Rewards)
		for sample, attempt := range g.Attempts {
			a, err := readAttempt(ctx, st, codec, trialAddress(g.Task, sample, attempt), g.Rewards[sample])
			if err != nil {
				return out, err
			}
			out.Attempts = append(out.Attempts, a)
		}
	}
	out.diagnose(varied)
	if c.Twice {
		out.Twice, err = compareTwice(ctx, st, trial)
	}
	return out, err
}

func trialAddress(task, sample, attempt int) trace.Address {
	return trace.Address{RolloutID: trace.RolloutID{Run: trialRun, Kind: trace.Try, Task: task, Sample: sample}, Attempt: attempt}
}

func readAttempt(ctx context.Context, st *stack.Stack, codec dialog.Codec, address trace.Address, reward float64) (tryAttempt, error) {
	a, err := st.Store.Attempt(ctx, address)
	if err != nil {
		return tryAttempt{}, err
	}
	calls, err := st.Store.Calls(ctx, address)
	if err != nil {
		return tryAttempt{}, err
	}
	out := tryAttempt{Attempt: address.String(), Task: a.TaskID, Outcome: a.Outcome, Result: a.Result, Error: a.Error, Reward: reward, Calls: make([]tryCall, 0, len(calls))}
	for _, c := range calls {
		k := tryCall{
			Prompt: codec.Text(c.Prompt), Completion: codec.Text(c.Completion),
			Tokens: [2]int{len(c.Prompt), len(c.Completion)}, Problem: c.ParseError,
		}
		for _, l := range c.Logprobs {
			k.Logprob += float64(l)
		}
		k.Trained = len(c.Completion)
		for _, untrained := range c.Untrained {
			if untrained {
				k.Trained--
			}
		}
		out.Calls = append(out.Calls, k)
	}
	return out, nil
}

// diagnose says what would stop learning.
func (r *tryReport) diagnose(varied bool) {
	calls, failed := 0, 0
	for _, a := range r.Attempts {
		calls += len(a.Calls)
		if a.Outcome == trace.AgentFailed {
			failed++
		}
	}
	if calls == 0 {
		r.Problems = append(r.Problems, "no model call was recorded: the agent does not use the base URL that it is given (OPENAI_BASE_URL)")
	}
	if failed > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("the agent failed in %d of %d attempts; see their errors", failed, len(r.Attempts)))
	}
	if !varied {
		r.Problems = append(r.Problems, "no group has rewards that differ: relative to its own mean nothing is better or worse; use tasks that the model solves sometimes, more samples, or a warm start")
	}
}

func (r tryReport) print(t *terminal) {
	for _, a := range r.Attempts {
		t.printf("%s  task %s  %s  reward %g  result %q\n", a.Attempt, a.Task, a.Outcome, a.Reward, a.Result)
		if a.Error != "" {
			t.printf("    %s\n", strings.ReplaceAll(a.Error, "\n", "\n    "))
		}
		for i, c := range a.Calls {
			t.printf("    call %d  context %d tokens: %s\n", i, c.Tokens[0], c.Prompt)
			t.printf("            trained %d tokens: %s  (log-probability %.2f)\n", c.Trained, c.Completion, c.Logprob)
			if c.Problem != "" {
				t.printf("            %s\n", c.Problem)
			}
		}
	}
	r.Twice.print(t)
	if len(r.Problems) == 0 {
		t.printf("\nNothing stands in the way of learning.\n")
		return
	}
	t.printf("\nThis would stop learning:\n")
	for _, p := range r.Problems {
		t.printf("  - %s\n", p)
	}
}
