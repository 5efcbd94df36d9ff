// Package trial implements `fulgurite try`, which runs a few tasks of a spec in a
// temporary stack and finds what would prevent learning. It also implements `fulgurite
// warm-start`, which makes version 0 in such a stack.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
	runreport "github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/update"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite try`.
type Command struct {
	Spec    string   `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	Tasks   int      `help:"How many tasks to run." default:"2"`
	Task    []string `help:"Run this task in their place, by its id; may be repeated." placeholder:"ID" sep:"none"`
	Samples int      `help:"How often to run each (default: the spec's training.samples_per_task)." placeholder:"N"`
	Twice   bool     `help:"Run every rollout twice and show where the second attempt can't be replayed."`
	Keep    string   `help:"Keep the trial in this new directory, for commands with --dir." placeholder:"DIR" type:"path"`
	Port    int      `help:"Port of the trial's Temporal, for workers of agent.temporal (default: any)." placeholder:"PORT"`
	JSON    bool     `help:"Print JSON." name:"json"`
}

// errTrial ends a trial that found what stops learning for certain.
var errTrial = errors.New("the trial found what stops learning")

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{report{}} }

// Run runs the trial and prints its findings.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Tasks < 1 {
		return terminal.Usagef("--tasks %d: want at least 1", c.Tasks)
	}
	if c.Samples < 0 {
		return terminal.Usagef("--samples %d: want at least 1", c.Samples)
	}
	p, err := plan.Make(ctx, c.Spec)
	if err != nil {
		return err
	}
	if len(p.Spec.Phases) > 0 {
		p.Spec = p.Spec.PhaseSpec(1, spec.PhaseStart{}).WithDefaults()
		fmt.Fprintf(t.Err, "Phase 1 of the spec is tried.\n")
	}
	if err := checkSources(p.Spec); err != nil {
		return err
	}
	input := workflows.TryInput{Tasks: c.Tasks, Samples: c.Samples, Twice: c.Twice}
	if input.Indices, err = c.chosen(ctx, p.Spec); err != nil {
		return err
	}
	if input.Training, err = plan.Input(p.Spec); err != nil {
		return err
	}
	if err := c.checkKeep(); err != nil {
		return err
	}
	return inStack(ctx, s, t, p.Spec, c.Keep, c.Port, func(st *stack.Stack, warnings *observer.ObservedLogs) error {
		if a := p.Spec.Agent.Temporal; a != nil {
			fmt.Fprintf(t.Err, "The trial's Temporal is at %s: a worker of yours has to poll the task queue %q there (--port keeps the port).\n",
				st.TemporalAddress(), a.Queue)
		}
		report, err := try(ctx, st, warnings, p.Spec, input)
		if err != nil {
			return err
		}
		report.Kept = c.Keep
		report.Warnings = append(report.Warnings, p.Shared...)
		if l := p.Spec.Model.LoRA; l != nil && l.Adapter != "" {
			report.Adapter = fmt.Sprintf("%s (%s)", l.Adapter, l.AdapterDigest)
		}
		report.Problems, report.Warnings = s.Place().CompleteAll(report.Problems), s.Place().CompleteAll(report.Warnings)
		if c.JSON {
			err = t.JSON(report)
		} else {
			report.print(t)
		}
		return errors.Join(err, report.verdict(), report.Twice.verdict())
	})
}

// checkSources returns an error if a spec takes something from another run: a trial has a store
// of its own.
func checkSources(s spec.Spec) error {
	const advice = "try the spec without it: a trial has a store of its own, without the runs of others"
	if s.Model.Version != "" {
		return terminal.Usagef("model.version: %s", advice)
	}
	if s.Prompts != nil && s.Prompts.Version != "" {
		return terminal.Usagef("prompts.version: %s", advice)
	}
	return nil
}

// chosen returns the indices of the tasks whose ids were given.
func (c *Command) chosen(ctx context.Context, sp spec.Spec) ([]int, error) {
	if len(c.Task) == 0 {
		return nil, nil
	}
	list, err := tasks.OpenSplit(ctx, sp.Tasks, sp.Tasks.Train)
	if err != nil {
		return nil, terminal.Usage(fmt.Errorf("tasks.train: %w", err))
	}
	var out []int
	for _, id := range c.Task {
		i := slices.IndexFunc(list, func(t tasks.Task) bool { return t.ID == id })
		if i < 0 {
			return nil, terminal.Usagef("--task %s: no task of tasks.train has this id; the first one's is %s", id, list[0].ID)
		}
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out, nil
}

// checkKeep returns an error unless the directory of a trial to keep is new or empty, so
// that no files are lost or mixed up.
func (c *Command) checkKeep() error {
	if c.Keep == "" {
		return nil
	}
	switch found, err := os.ReadDir(c.Keep); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return terminal.Usage(fmt.Errorf("--keep: %w", err))
	case len(found) > 0:
		return terminal.Usagef("--keep %s: it is not empty; give a directory of its own to each trial", c.Keep)
	}
	return nil
}

// try runs a trial and reads its record.
func try(ctx context.Context, st *stack.Stack, warnings *observer.ObservedLogs, sp spec.Spec, input workflows.TryInput) (report, error) {
	out := report{Attempts: []attempt{}, Problems: []string{}, Warnings: []string{}}
	if text := unreachable(ctx, sp); text != "" {
		out.Problems = append(out.Problems, text)
		return out, nil
	}
	r := trialReader{st: st, input: input}
	l := watcher{st: st, warnings: warnings, rollouts: r.rollouts(sp)}
	var err error
	if r.trial, r.stuck, err = l.watch(ctx, input); err != nil {
		return out, err
	}
	if r.spec, err = r.recorded(ctx, sp); err != nil {
		return out, err
	}
	if r.spec.Agent.Sandbox != "" { // else the run was refused
		out.Isolation, out.IsolationReason = r.spec.Agent.Isolation()
	}
	if err := r.read(ctx, &out); err != nil {
		return out, err
	}
	if sp.Model.Codec == spec.CodecTemplate && sp.Model.LoRA != nil {
		if codec, _, err := dialog.ReadCodecWith(sp.Model.Base, update.CodecChoices(sp)); err == nil {
			tokens, err := update.TrainedTokens(sp.Model, codec)
			if text, also := update.Unlearnable(sp.Model.Base, codec, tokens); err == nil && also == nil && text != "" {
				out.Warnings = append(out.Warnings, text)
			}
		}
	}
	if input.Twice && len(r.trial.Again) == len(r.trial.Groups) {
		out.Twice, err = compareTwice(ctx, st, r.trial)
	}
	return out, err
}

// recorded returns the spec that the trial's run has recorded, or the given one if none
// was recorded.
func (r trialReader) recorded(ctx context.Context, given spec.Spec) (spec.Spec, error) {
	s, err := r.st.Catalog.Spec(ctx, trialRun)
	if errors.Is(err, record.ErrNotFound) {
		return given, nil
	}
	return s, err
}

// firstLine returns the first line of a text, for a list of causes.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// trialRun is the name of the run inside a trial's stack.
const trialRun = "try"

// inStack starts a whole stack in a directory, by default a temporary one, so that a
// trial uses the same parts as a run. It calls f with the stack and its warnings, and
// stops the stack afterwards.
func inStack(ctx context.Context, s *state.Flags, t *terminal.Terminal, sp spec.Spec, dir string, port int, f func(*stack.Stack, *observer.ObservedLogs) error) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "fulgurite-try-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	var queues []string
	if sp.Agent.Queue != workflows.QueueRollout {
		queues = append(queues, sp.Agent.Queue)
	}
	core, warnings := observer.New(zapcore.WarnLevel) // a trial reports what goes wrong
	if s.Verbose {
		core = zapcore.NewTee(s.Logger(ctx, t.Err).Core(), core)
	}
	st, err := stack.Start(ctx, stack.Options{
		Dir: dir, Frontend: port, Scratch: filepath.Join(dir, "homes"), Agents: builtin.Agents(), Queues: queues, Log: zap.New(core), ServerLog: s.ServerLogger(ctx, t.Err),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return f(st, warnings)
}

const (
	// hopelessAfter is the number of the attempt at which a trial gives an activity up:
	// it has then failed four times in seven seconds or more.
	hopelessAfter = 5
	// agentHopelessAfter is the same for an agent's activities. An activity that fails
	// five times because of the agent or its task ends by itself.
	agentHopelessAfter = 6
	// unansweredAfter is for how long no call may be recorded after a call could not be
	// answered. After that, the trial assumes that calls will never be answered.
	unansweredAfter = 30 * time.Second
	// watchEvery is how often a trial is checked.
	watchEvery = 250 * time.Millisecond
	// dialLimit is how long a server may take to be connected to.
	dialLimit = 10 * time.Second
)

// watcher watches a trial for activities that a run would retry for ever.
type watcher struct {
	st       *stack.Stack
	warnings *observer.ObservedLogs // of the stack
	rollouts []record.RolloutID
	// calls that were recorded, and when their number changed last.
	calls int
	since time.Time
}

// watch runs a trial to its end, or until something of it is tried again and
// again without success. Then it is ended, and stuck says what that was.
func (l *watcher) watch(ctx context.Context, input workflows.TryInput) (out workflows.TryResult, stuck *runstate.Blockage, err error) {
	run, err := l.st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: trialRun, TaskQueue: workflows.QueueTraining}, "TryWorkflow", input)
	if err != nil {
		return out, nil, fmt.Errorf("start the trial: %w", err)
	}
	watch, end := context.WithCancel(ctx)
	found := make(chan *runstate.Blockage, 1)
	go func() {
		b := l.hopeless(watch)
		if b != nil {
			// The end of the workflow wakes the goroutine that waits for it.
			_ = l.st.Client.TerminateWorkflow(watch, trialRun, "", b.Failure)
		}
		found <- b
	}()
	err = run.Get(ctx, &out)
	end()
	if stuck = <-found; stuck != nil {
		return out, stuck, nil
	}
	if err != nil {
		return out, nil, fmt.Errorf("trial: %w", err)
	}
	return out, nil, nil
}

// hopeless waits until an activity needs a person to go on, and returns it. It is nil
// once ctx is done.
func (l *watcher) hopeless(ctx context.Context) *runstate.Blockage {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all, err := runstate.Blockages(ctx, l.st.Client, trialRun)
		if err != nil {
			continue // the trial's own end is what tells
		}
		for _, b := range all {
			if b.Attempt >= hopelessAttempt(b.Activity) {
				b.Failure = fmt.Sprintf("%s was tried %d times without success: %s", b.Activity, b.Attempt-1, b.Failure)
				return &b
			}
		}
		if b := l.unanswered(ctx); b != nil {
			return b
		}
	}
}

// hopelessAttempt returns the number of an activity's attempt at which the trial gives
// up.
func hopelessAttempt(activity string) int {
	switch activity {
	case "RunAgent", "BeginAttempt", "EndAttempt", "GradeRollout":
		return agentHopelessAfter
	}
	return hopelessAfter
}

// unanswered finds out that a call of an agent could not be answered, and none was
// for a while since. The agent sees nothing of it: it waits.
func (l *watcher) unanswered(ctx context.Context) *runstate.Blockage {
	faults := l.warnings.FilterMessage(faultMessage).All()
	if len(faults) == 0 {
		return nil
	}
	calls := 0
	for _, id := range l.rollouts {
		progress, err := l.st.Store.AttemptProgress(ctx, id)
		if err != nil {
			return nil
		}
		for _, p := range progress {
			calls += p.Calls
		}
	}
	if calls != l.calls || l.since.IsZero() {
		l.calls, l.since = calls, time.Now()
	}
	if time.Since(faults[0].Time) < unansweredAfter || time.Since(l.since) < unansweredAfter {
		return nil
	}
	return &runstate.Blockage{Workflow: trialRun, Failure: fmt.Sprintf("no model call was answered for %s: %s", unansweredAfter, faults[0].ContextMap()["error"])}
}

// faultMessage is what the forwarder logs, with the error, of a call that it could not get
// answered.
const faultMessage = "gateway fault, asking again"

// unreachable returns a text if the spec names servers and none of them accepts a
// connection. It returns "" otherwise.
func unreachable(ctx context.Context, s spec.Spec) string {
	if s.Sampling.Server == nil {
		return ""
	}
	text := ""
	for _, address := range s.Sampling.Server.URLs {
		u, err := url.Parse(address)
		if err != nil {
			continue // the spec was checked
		}
		port := u.Port()
		if port == "" {
			port = u.Scheme
		}
		dialer := net.Dialer{Timeout: dialLimit}
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err == nil {
			_ = c.Close() // nothing was sent
			return ""
		}
		text = fmt.Sprintf("sampling.server.urls: no server can be reached, and calls would wait for one: %s: %s", address, err)
	}
	return text
}

// resultBytes is how much of a result is printed; --json has all of it.
const resultBytes = 2000

func (r *report) print(t *terminal.Terminal) {
	if r.Adapter != "" {
		t.Printf("The model starts from the adapter %s.\n", r.Adapter)
	}
	if r.Isolation != "" {
		t.Printf("Agents are %s\n", runreport.IsolationText(r.Isolation, r.IsolationReason))
	}
	for _, a := range r.Attempts {
		t.Printf("%s  task %s  %s  %s  result %q\n", a.Attempt, visible(a.Task, ""), outcomeOf(a), rewardOf(a), truncate.Ellipsis(a.Result, resultBytes))
		if a.LinesBefore > 0 {
			t.Printf("    %d lines of output before the last one are not part of the result\n", a.LinesBefore)
		}
		if a.Verdict != "" {
			t.Printf("    %s\n", visible(a.Verdict, "    "))
		}
		if a.Error != "" {
			t.Printf("    %s\n", visible(a.Error, "    "))
		}
		for i, c := range a.Calls {
			c.print(t, i)
		}
		for _, f := range a.Refusals {
			t.Printf("    refused %d times: %s: %s\n", f.Count, visible(f.Code, ""), visible(f.Message, "        "))
		}
	}
	if of := r.Reflection; of != nil && of.Text != "" {
		t.Printf("The reflector %s says of the prompt %s:\n    %s\n", visible(of.Model, ""), of.Prompt, visible(truncate.Ellipsis(of.Text, resultBytes), "    "))
	}
	for _, p := range r.Policies {
		p.print(t)
	}
	r.Twice.print(t)
	r.printVerdict(t)
	if r.Kept != "" {
		t.Printf("The trial is in %s: %s\n", r.Kept, shell.Place{Dir: r.Kept}.Command("calls", "ATTEMPT"))
	} else if len(r.Attempts) > 0 && len(r.Problems)+len(r.Warnings) > 0 {
		t.Printf("With --keep DIR the trial stays, for `%s`.\n", shell.Place{Dir: "DIR"}.Command("calls", "ATTEMPT"))
	}
}

func outcomeOf(a attempt) string {
	if a.Outcome == "" {
		return "unfinished"
	}
	return string(a.Outcome)
}

func rewardOf(a attempt) string {
	if a.Reward == nil {
		return "not graded"
	}
	return fmt.Sprintf("reward %g", *a.Reward)
}

func (c call) print(t *terminal.Terminal, i int) {
	const indent = "            "
	t.Printf("    call %d  context %s: %s\n", i, readable.Count(c.Tokens[0], "token"), visible(c.Prompt, indent))
	t.Printf("%strained %s: %s  (log-probability %.2f)\n", indent, readable.Count(c.Trained, "token"), visible(c.Completion, indent), c.Logprob)
	by := fmt.Sprintf("%sby %s (%s)", indent, visible(c.Agent, ""), c.By)
	if c.Policy != "" {
		by += ", policy " + c.Policy
	}
	switch {
	case c.Untrained != "":
		t.Printf("%s, not trained: %s\n", by, visible(c.Untrained, ""))
	case c.Advantage != nil:
		t.Printf("%s, advantage %.4g\n", by, *c.Advantage)
	default:
		t.Printf("%s\n", by)
	}
	if c.HiddenTools {
		t.Printf("%sthe model does not see the tools of this request\n", indent)
	}
	if c.Problem != "" {
		t.Printf("%s%s\n", indent, visible(c.Problem, indent))
	}
}

func (p policyCalls) print(t *terminal.Terminal) {
	trained := fmt.Sprintf("%d of them trained", p.Trained)
	if p.Frozen {
		trained = "none of them trained: it is frozen"
	}
	t.Printf("policy %s  %s, %s sampled, %s\n", p.Policy, readable.Count(p.Calls, "call"), readable.Count(p.Sampled, "token"), trained)
}

func (r *report) printVerdict(t *terminal.Terminal) {
	list := func(title string, of []string) {
		if len(of) == 0 {
			return
		}
		t.Printf("\n%s\n", title)
		for _, text := range of {
			t.Printf("  - %s\n", visible(text, "    "))
		}
	}
	if len(r.Problems)+len(r.Warnings) == 0 {
		t.Printf("\nFound nothing that would stop learning.\n")
	}
	list("This would stop learning:", r.Problems)
	list("This may slow or stop learning:", r.Warnings)
}

// visible returns a text with its control characters escaped and all lines after the
// first one indented.
func visible(text, indent string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = terminal.Escape(line)
	}
	return strings.Join(lines, "\n"+indent)
}
