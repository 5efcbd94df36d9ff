package trial

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/export"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/wire"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// report has the findings of `fulgurite try`.
type report struct {
	// Adapter is the adapter that the model starts from, if the spec names one.
	Adapter string `json:"adapter,omitempty"`
	// Isolation is what isolates agents if they are commands: process, container
	// or none.
	// IsolationReason says why they are not isolated, or which image they run in.
	Isolation       string `json:"isolation,omitempty"`
	IsolationReason string `json:"isolation_reason,omitempty"`

	Attempts []attempt `json:"attempts"`
	// Policies counts the calls of each policy, if the spec has several.
	Policies []policyCalls `json:"policies,omitempty"`
	// Problems certainly prevent learning, and Warnings may.
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`
	// Reflection is what the reflector made of the attempts, if the spec searches for better
	// prompts.
	Reflection *activities.TryReflectorResult `json:"reflection,omitempty"`
	// Twice has the findings of --twice.
	Twice *replays `json:"twice,omitempty"`
	// Kept is the directory of a trial that was kept.
	Kept string `json:"kept,omitempty"`
}

// policyCalls counts what one of several policies did in a trial.
type policyCalls struct {
	Policy  string `json:"policy"`
	Calls   int    `json:"calls"`
	Prompt  int    `json:"prompt_tokens"`
	Sampled int    `json:"sampled_tokens"`
	Trained int    `json:"trained_tokens"` // those that training would learn from
	Frozen  bool   `json:"frozen,omitempty"`
}

type attempt struct {
	Attempt string         `json:"attempt"`
	Task    string         `json:"task"`
	Outcome record.Outcome `json:"outcome"`
	Result  string         `json:"result"`
	// Verdict is what the grader says of the result, if that does not follow from the result
	// and the task's answer.
	Verdict string `json:"verdict,omitempty"`
	Failure string `json:"failure,omitempty"` // in a word, such as "exit"
	Error   string `json:"error,omitempty"`
	// Reward is null if the attempt was not graded.
	Reward *float64 `json:"reward"`
	Calls  []call   `json:"calls"`
	// LinesBefore is the number of non-blank lines on standard output before the last
	// one. Only the last line is the result.
	LinesBefore int `json:"lines_before,omitempty"`
	// Refusals count the calls that were refused, by code.
	Refusals []record.Refusal `json:"refusals,omitempty"`
}

type call struct {
	Agent      string  `json:"agent"`
	By         string  `json:"by"`               // the evidence for the agent's name
	Policy     string  `json:"policy,omitempty"` // that answered it, if the spec has several
	Prompt     string  `json:"prompt"`           // as text, special tokens by name
	Completion string  `json:"completion"`       // as text
	Trained    int     `json:"trained"`          // tokens of it that training would learn from
	Tokens     [2]int  `json:"tokens"`           // numbers of prompt and completion tokens
	Logprob    float64 `json:"logprob"`          // of the whole completion
	Finish     string  `json:"finish"`
	// Advantage is the call's advantage. It is nil if no credit could be assigned.
	Advantage *float64 `json:"advantage,omitempty"`
	// Untrained says why no token of the call is trained; empty if some are.
	Untrained string `json:"untrained,omitempty"`
	Problem   string `json:"problem,omitempty"`
	// HiddenTools is true if the request offers tools but its prompt shows none of them.
	HiddenTools bool `json:"hidden_tools,omitempty"`
}

// eachCall goes through the calls, each with the address of its attempt.
func (r *report) eachCall() iter.Seq2[string, call] {
	return func(yield func(string, call) bool) {
		for _, a := range r.Attempts {
			for _, c := range a.Calls {
				if !yield(a.Attempt, c) {
					return
				}
			}
		}
	}
}

// trialReader reads the records of a trial.
type trialReader struct {
	st    *stack.Stack
	spec  spec.Spec
	input workflows.TryInput
	trial workflows.TryResult
	stuck *runstate.Blockage
	step  *compare.Step // of the trial's batch; nil if there is none
	codec dialog.Codec  // nil if the run was not prepared
	// served are the prompts of the trial's attempts, and rules counts what became of their
	// rules, and of the placeholders of prompts in messages.
	served prompts.Set
	rules  *rewrite.Counter
}

// read adds the attempts to the report, and what follows from them.
func (r *trialReader) read(ctx context.Context, out *report) error {
	if r.trial.Phase != workflows.TryPrepares {
		if err := r.attempts(ctx, out); err != nil {
			return err
		}
	}
	if r.trial.Batch != "" {
		if err := r.credit(ctx, out); err != nil {
			return err
		}
	}
	r.countPolicies(out)
	v := verdict{trialReader: r, report: out}
	return v.conclude()
}

// countPolicies counts the calls of each of several policies.
func (r *trialReader) countPolicies(out *report) {
	for _, name := range r.spec.PolicyNames() {
		p := policyCalls{Policy: name, Frozen: r.spec.Policies[name].Frozen}
		for _, c := range out.eachCall() {
			if c.Policy == name {
				p.Calls, p.Prompt, p.Sampled, p.Trained = p.Calls+1, p.Prompt+c.Tokens[0], p.Sampled+c.Tokens[1], p.Trained+c.Trained
			}
		}
		out.Policies = append(out.Policies, p)
	}
}

// attempts reads the attempts that count, and the last attempts of rollouts that did not
// end.
func (r *trialReader) attempts(ctx context.Context, out *report) error {
	_, err := r.st.Store.Run(ctx, trialRun)
	if errors.Is(err, record.ErrNotFound) { // not even prepared
		return nil
	}
	if err != nil {
		return err
	}
	if r.codec, err = r.st.Codecs.Named(r.spec.Model.Codec); err != nil {
		return err
	}
	if r.served, err = r.st.Prompts.Set(r.spec.PromptsDigest()); err != nil {
		return err
	}
	r.rules = rewrite.NewCounter(r.served)
	groups := map[int]activities.Group{}
	for _, g := range r.trial.Groups {
		groups[g.Task] = g
	}
	for _, id := range r.rollouts(r.spec) {
		address := record.Address{RolloutID: id}
		if g, counts := groups[id.Task]; counts {
			address.Attempt = g.Attempts[id.Sample]
		} else if address.Attempt, err = r.last(ctx, id); err != nil {
			return err
		}
		if address.Attempt == 0 {
			continue
		}
		a, err := r.attempt(ctx, address)
		if err != nil {
			return err
		}
		out.Attempts = append(out.Attempts, a)
	}
	return nil
}

// rollouts returns the rollouts of the trial of a spec, in order of tasks and samples.
func (r *trialReader) rollouts(s spec.Spec) []record.RolloutID {
	samples := s.Training.SamplesPerTask
	if r.input.Samples > 0 {
		samples = r.input.Samples
	}
	var out []record.RolloutID
	for _, task := range r.tasks() {
		for sample := range samples {
			out = append(out, trialAddress(task, sample, 0).RolloutID)
		}
	}
	return out
}

// tasks returns the tasks of the trial, by their indices in the train split.
func (r *trialReader) tasks() []int {
	if len(r.input.Indices) > 0 {
		return r.input.Indices
	}
	var out []int
	for i := range r.input.Tasks {
		out = append(out, i)
	}
	return out
}

// last returns the number of the last attempt at a rollout, or 0 if there is none.
func (r *trialReader) last(ctx context.Context, id record.RolloutID) (int, error) {
	progress, err := r.st.Store.AttemptProgress(ctx, id)
	last := 0
	for _, p := range progress {
		last = max(last, p.Attempt)
	}
	return last, err
}

func trialAddress(task, sample, attempt int) record.Address {
	return record.Address{
		RolloutID: record.RolloutID{Run: trialRun, Kind: record.Try, Step: workflows.TryStep, Task: task, Sample: sample}, Attempt: attempt,
	}
}

func (r *trialReader) attempt(ctx context.Context, address record.Address) (attempt, error) {
	a, err := r.st.Store.Attempt(ctx, address)
	if err != nil {
		return attempt{}, err
	}
	calls, err := r.st.Store.Exchanges(ctx, address)
	if err != nil {
		return attempt{}, err
	}
	spans, err := r.st.Store.Spans(ctx, address)
	if err != nil {
		return attempt{}, err
	}
	out := attempt{
		Attempt: address.String(), Task: a.TaskID, Outcome: a.Outcome, Result: a.Result, Verdict: a.Verdict, Failure: a.Failure, Error: a.Error,
		Reward: a.Reward, Calls: make([]call, 0, len(calls)),
	}
	if out.Refusals, err = r.st.Store.Refusals(ctx, address); err != nil {
		return out, err
	}
	printed, err := r.st.Store.Output(ctx, address)
	if err != nil {
		return out, err
	}
	if a.Outcome == record.OutcomeCompleted { // a failure has no result
		out.LinesBefore = printed.LinesBefore
	}
	requests := attribution.Requests(calls)
	for i, name := range attribution.OfRequests(calls, requests, spans, a.Terms.Ignore) {
		k := r.call(calls[i].Call)
		k.Agent, k.By, k.HiddenTools = name.Agent, string(name.Source), r.hidesTools(requests[i])
		if requests[i] != nil {
			r.rules.Add(rewrite.Recorded(r.served, a.Terms, calls[i].Call, requests[i]))
		}
		out.Calls = append(out.Calls, k)
	}
	return out, nil
}

func (r *trialReader) call(c record.Call) call {
	k := call{
		Prompt: r.codec.Text(c.Prompt), Completion: r.codec.Text(c.Completion),
		Tokens: [2]int{len(c.Prompt), len(c.Completion)}, Finish: c.Finish, Problem: c.ParseError,
	}
	for _, l := range c.Logprobs {
		k.Logprob += float64(l)
	}
	if len(r.spec.Policies) > 0 {
		k.Policy = c.Policy
	}
	k.Trained = len(c.Completion)
	for _, untrained := range c.Untrained {
		if untrained {
			k.Trained--
		}
	}
	switch {
	case k.Policy != "" && r.spec.Policies[k.Policy].Frozen:
		k.Trained, k.Untrained = 0, fmt.Sprintf("policy %s is frozen", k.Policy)
	case k.Trained == 0:
		k.Untrained = "no token of it had an alternative"
	}
	return k
}

// hidesTools reports whether the prompt is the same with and without the request's tools.
// Codec compact leaves out a single tool; that is no problem if demonstrations teach it.
func (r *trialReader) hidesTools(q *wire.Request) bool {
	if q == nil || len(q.Tools) == 0 || len(q.Dialog) == 0 || q.Choice.None {
		return false
	}
	taught := r.spec.Model.WarmStart != nil && r.spec.Model.Codec == dialog.CompactName
	return !taught && dialog.HidesTools(r.codec, q.Dialog, q.Tools)
}

// credit adds the credit that a step would give each call, as computed from the trial's
// batch.
func (r *trialReader) credit(ctx context.Context, out *report) error {
	var err error
	if r.step, err = compare.Open(ctx, r.st.Store, r.st.Blobs, trialRun, model.DefaultPolicy, workflows.TryStep); err != nil {
		return err
	}
	own, err := compare.Settings(r.spec, nil)
	if err != nil {
		return err
	}
	for i := range out.Attempts {
		a := &out.Attempts[i]
		address, err := record.ParseAddress(a.Attempt)
		if err != nil {
			return err
		}
		given, err := r.step.Calls(address, own)
		if errors.Is(err, compare.ErrNotTrained) { // of a quarantined task
			continue
		}
		if err != nil {
			return err
		}
		for k, c := range given.List {
			call := &a.Calls[k]
			call.Agent, call.Advantage = c.Agent, &c.Advantages[0]
			if !c.Trained {
				call.Trained, call.Advantage = 0, nil
				switch {
				case c.Masked:
					call.Untrained = "it was cut off, and credit.truncated is mask"
				case r.spec.Policies[call.Policy].Frozen: // call says so
				default:
					call.Untrained = fmt.Sprintf("credit.train_agents %q does not match %s", r.spec.Credit.TrainAgents, c.Agent)
				}
			}
		}
	}
	return nil
}

// replays tells whether an attempt that is tried again finds its calls on record.
type replays struct {
	Calls       int          `json:"calls"`    // of the first attempts
	Replayed    int          `json:"replayed"` // how many of them the second attempts replayed
	Differences []difference `json:"differences"`
}

// difference is where a second attempt left the first.
type difference struct {
	Attempt    string `json:"attempt"`
	Call       int    `json:"call"` // number of the attempt's call, from 0; -1 is its end
	Difference string `json:"difference"`
}

var errNoReplay = errors.New("the second attempts do not replay the first")

// compareTwice compares each second attempt with the first at the same rollout.
func compareTwice(ctx context.Context, st *stack.Stack, trial workflows.TryResult) (*replays, error) {
	out := &replays{Differences: []difference{}}
	for i, g := range trial.Groups {
		for sample, attempt := range g.Attempts {
			first, err := readTrial(ctx, st, trialAddress(g.Task, sample, attempt))
			if err != nil {
				return nil, err
			}
			second, err := readTrial(ctx, st, trialAddress(g.Task, sample, trial.Again[i].Attempts[sample]))
			if err != nil {
				return nil, err
			}
			out.add(first, second)
		}
	}
	return out, nil
}

func readTrial(ctx context.Context, st *stack.Stack, address record.Address) (record.Trajectory, error) {
	all, err := st.Store.Trajectories(ctx, []record.Address{address})
	if err != nil {
		return record.Trajectory{}, err
	}
	return all[0], nil
}

func (r *replays) add(first, second record.Trajectory) {
	type request struct {
		key        string
		occurrence int
	}
	again := map[request]bool{}
	for _, c := range second.History {
		again[request{c.Key, c.Occurrence}] = c.ReplayedFrom > 0
	}
	replayed := 0
	for _, c := range first.History {
		if again[request{c.Key, c.Occurrence}] {
			replayed++
		}
	}
	r.Calls += len(first.History)
	r.Replayed += replayed
	if call, text := leaving(first, second, replayed); text != "" {
		r.Differences = append(r.Differences, difference{second.Address.String(), call, text})
	}
}

// leaving returns the first call at which the second attempt differs from the first, and
// how it differs. difference is empty if the attempts agree.
func leaving(first, second record.Trajectory, replayed int) (call int, difference string) {
	for _, c := range second.History {
		if c.Divergence != nil && replayed < len(first.History) {
			return c.Seq, c.Divergence.Difference
		}
	}
	switch {
	case replayed < len(first.History):
		return -1, fmt.Sprintf("it made %d of the %d calls and no other", replayed, len(first.History))
	case len(second.History) > replayed:
		return replayed, fmt.Sprintf("it went on after the %d calls, with %d more", replayed, len(second.History)-replayed)
	case first.Outcome != second.Outcome:
		return -1, fmt.Sprintf("the outcome was %s, is %s", first.Outcome, second.Outcome)
	case first.Result != second.Result:
		return -1, fmt.Sprintf("the result was %.80q, is %.80q", first.Result, second.Result)
	}
	return 0, ""
}

// verdict returns an error if a second attempt was not replayed completely.
func (r *replays) verdict() error {
	if r == nil || len(r.Differences) == 0 {
		return nil
	}
	return errNoReplay
}

func (r *replays) print(t *terminal.Terminal) {
	if r == nil {
		return
	}
	t.Printf("\nreplays: %d of %d calls\n", r.Replayed, r.Calls)
	if len(r.Differences) == 0 {
		return
	}
	d := r.Differences[0]
	at := fmt.Sprintf("call %d", d.Call)
	if d.Call < 0 {
		at = "its end"
	}
	t.Printf("    %s differs at %s: %s\n", d.Attempt, at, d.Difference)
	if more := len(r.Differences) - 1; more > 0 {
		t.Printf("    and %d more attempts differ; see --json\n", more)
	}
	t.Printf("A killed agent is replayed for as long as it repeats its earlier requests.\n" +
		"Make requests depend only on the task and on the replies, or list what may differ as\n" +
		"regular expressions under replay.ignore in the spec, for example '\\d\\d:\\d\\d'.\n")
}

// WarmStart is `fulgurite warm-start`.
type WarmStart struct {
	Spec      string `arg:"" help:"Spec file with model.warm_start." type:"path"`
	Directory string `arg:"" help:"Where to write config.json and model.safetensors; with policies, those of each in a directory of its name." type:"path"`
}

// Run makes version 0 of the spec, of each policy that has a warm start, in a temporary stack.
// Nothing else of the stack remains.
func (c *WarmStart) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	p, err := plan.Make(ctx, c.Spec)
	if err != nil {
		return err
	}
	sp := p.Spec
	parts := warmStarts(sp, c.Directory)
	if len(parts) == 0 {
		return terminal.Usagef("%s has no model.warm_start", c.Spec)
	}
	input, err := plan.Input(sp)
	if err != nil {
		return err
	}
	return inStack(ctx, s, t, sp, "", 0, func(st *stack.Stack, warnings *observer.ObservedLogs) error {
		w := watcher{st: st, warnings: warnings}
		out, stuck, err := w.watch(ctx, workflows.TryInput{Training: input})
		switch {
		case err != nil:
			return err
		case stuck != nil:
			return fmt.Errorf("trial: %s", stuck.Failure)
		case out.Failure != "":
			return fmt.Errorf("trial: %s", out.Failure)
		}
		recorded, err := st.Catalog.Spec(ctx, trialRun)
		if err != nil {
			return err
		}
		for _, part := range parts {
			k, digest, err := st.Catalog.Load(ctx, model.VersionID{Run: trialRun, Policy: part.policy})
			if err == nil {
				err = export.Directory(ctx, st.Catalog.Blobs, part.directory, recorded.Model.Codec, k)
			}
			if err != nil {
				return fmt.Errorf("export the warm start: %w", err)
			}
			t.Printf("warm start %s is in %s\n", digest, part.directory)
		}
		return nil
	})
}

// warmStart is a policy with a warm start, and where it is written.
type warmStart struct{ policy, directory string }

// warmStarts returns the policies of a spec that have a warm start. Of several policies, each has
// a directory of its name in the given one.
func warmStarts(s spec.Spec, directory string) []warmStart {
	if len(s.Policies) == 0 {
		if s.Model.WarmStart == nil {
			return nil
		}
		return []warmStart{{model.DefaultPolicy, directory}}
	}
	var out []warmStart
	for _, name := range s.PolicyNames() {
		if s.ForPolicy(name).Model.WarmStart != nil {
			out = append(out, warmStart{name, filepath.Join(directory, name)})
		}
	}
	return out
}
