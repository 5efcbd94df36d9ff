package trial

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// verdict finds what certainly prevents learning, and what may prevent it, in the results
// of a trial. It uses the results of a step's activities, and never guesses at what they
// can tell.
type verdict struct {
	*trialReader
	*report
	calls   int
	failed  int
	refused int
}

func (v *verdict) problem(format string, args ...any) {
	v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
}

func (v *verdict) warning(format string, args ...any) {
	v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
}

// verdict returns an error if a problem certainly prevents learning.
func (r *report) verdict() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return errTrial
}

func (v *verdict) conclude() error {
	for _, a := range v.Attempts {
		v.calls += len(a.Calls)
		if a.Outcome == record.AgentFailed {
			v.failed++
		}
		for _, f := range a.Refusals {
			if !f.OfReward() {
				v.refused += f.Count
			}
		}
	}
	if err := v.spec.Trainable(); err != nil && v.spec.Optimizer == nil {
		v.problem("`fulgurite train` refuses this spec: %s", strings.TrimPrefix(err.Error(), "spec: "))
	}
	ended := v.endedEarly()
	for _, why := range v.trial.LeftOut {
		v.problem("a run would leave a group out of training: %s", why)
	}
	v.noCalls(ended)
	v.failures()
	v.quarantines()
	v.refusals()
	v.tools()
	v.prompts()
	v.policies()
	v.replies()
	v.results()
	v.reflection()
	return v.credited()
}

// endedEarly reports whether something ended the trial before its time, and says what.
func (v *verdict) endedEarly() bool {
	switch {
	case v.stuck != nil:
		text := v.stuck.Failure
		if (v.stuck.Activity == "" || v.stuck.Activity == "PublishVersion") && v.spec.Sampling.Server != nil {
			text += "; look at the servers of sampling.server, and what they log"
		}
		if strings.Contains(text, activities.AskedAgain) {
			v.problem("a run would quarantine the tasks of attempts that ask for another one %d times: %s", activities.RetryTries, text)
			return true
		}
		v.problem("a run would retry this forever: %s", text)
	case v.trial.Failure == "":
		return false
	case v.trial.Phase == workflows.TryCredit && (v.calls == 0 || v.spec.Trainable() != nil): // conclude says it better
		return false
	case v.trial.Phase == workflows.TryCredit && v.tooFew():
		v.warning("credit.assignment %s estimates from other tasks and needs more of them than this trial had: %s", v.spec.Credit.Assignment, v.trial.Failure)
		return false
	case v.trial.Phase == workflows.TryCredit && v.trained() == 0:
		v.problem("no token of the %s would be trained, and a step of a run would learn nothing: %s", readable.Count(v.calls, "call"), v.untrained(""))
	case v.trial.Phase == workflows.TryCredit:
		v.problem("the credit of these attempts can't be assigned, and a step of a run would learn nothing: %s", ownWords(v.trial.Failure))
	case v.trial.Phase == workflows.TryReflection:
		v.problem("the reflector can't be used: %s", ownWords(v.trial.Failure))
	case v.spec.Optimizer != nil:
		v.problem("a search would end before its first proposal: %s", ownWords(v.trial.Failure))
	default:
		v.problem("a run would end before its first update: %s", ownWords(v.trial.Failure))
	}
	return true
}

// tooFew reports whether the trial had fewer tasks than its credit assignment needs,
// although a step would have enough.
func (v *verdict) tooFew() bool {
	estimates := v.spec.Credit.Assignment == credit.ValueDifference
	for _, name := range v.spec.TrainedPolicies() {
		estimates = estimates || v.spec.ForPolicy(name).Credit.Assignment == credit.ValueDifference
	}
	return estimates && len(v.trial.Groups) < v.spec.Training.TasksPerStep
}

// ownWords removes the beginning of an error that names the trial's step and run.
func ownWords(failure string) string {
	return strings.TrimPrefix(failure, fmt.Sprintf("batch of step %d of %s: ", workflows.TryStep, trialRun))
}

// noCalls says why no call was recorded.
func (v *verdict) noCalls(ended bool) {
	if v.calls > 0 || len(v.Attempts) == 0 {
		return
	}
	switch {
	case v.refused > 0: // refusals reports them by code
		v.problem("no model call was answered: all %d were refused", v.refused)
	case v.failed == len(v.Attempts):
		v.problem("the agent ended before its first model call in all %s: %s", readable.Count(v.failed, "attempt"), v.cause())
	case !ended:
		v.problem("no model call was recorded: the agent does not use the base URL that it is given (OPENAI_BASE_URL)")
	}
}

// cause describes how the first failed attempt failed, with the end of its output.
func (v *verdict) cause() string {
	for _, a := range v.Attempts {
		if a.Outcome != record.AgentFailed {
			continue
		}
		lines := strings.Split(strings.TrimSpace(a.Error), "\n")
		if last := lines[len(lines)-1]; len(lines) > 1 {
			return lines[0] + ": " + last
		}
		return lines[0]
	}
	return ""
}

func (v *verdict) failures() {
	switch {
	case v.failed == 0:
	case v.failed < len(v.Attempts):
		v.warning("the agent failed in %d of %s, for example: %s", v.failed, readable.Count(len(v.Attempts), "attempt"), v.cause())
	case v.calls > 0 || v.refused > 0:
		v.problem("the agent failed in all %s, so all have agent.failure_reward %g; for example: %s",
			readable.Count(v.failed, "attempt"), v.spec.Agent.FailureReward, v.cause())
	}
	if v.failed > 0 && v.Isolation != "" && v.Isolation != spec.SandboxNone {
		v.warning("agents that failed were isolated: what they need of other hosts belongs in agent.network, what they write outside of their home in agent.writable; " +
			"agent.sandbox: none shows whether they fail without isolation, too")
	}
}

func (v *verdict) quarantines() {
	of := v.trial.Quarantined
	if len(of) == 0 {
		return
	}
	reason := firstLine(of[0].Reason)
	switch {
	case v.failed == len(v.Attempts): // reported already
	case len(of) == len(v.trial.Groups):
		v.problem("no task can be trained on, for example: %s", reason)
	default:
		v.warning("%d of %s can't be trained on, for example: %s", len(of), readable.Count(len(v.trial.Groups), "task"), reason)
	}
}

// refusals lists refused calls and rewards by code, and what to do.
func (v *verdict) refusals() {
	counts, messages := map[string]int{}, map[string]string{}
	for _, a := range v.Attempts {
		for _, f := range a.Refusals {
			counts[f.Code] += f.Count
			messages[f.Code] = cmp.Or(messages[f.Code], f.Message)
		}
	}
	for _, code := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}) {
		what := "calls"
		reward := record.Refusal{Code: code}.OfReward()
		if reward {
			what = "rewards"
		}
		text := fmt.Sprintf("%d %s were refused: %s (%s)", counts[code], what, code, firstLine(messages[code]))
		if advice := v.advice(code); advice != "" {
			text += "; " + advice
		}
		if v.calls == 0 && !reward {
			v.Problems = append(v.Problems, text)
		} else {
			v.Warnings = append(v.Warnings, text)
		}
	}
}

// advice says how to avoid that calls are refused with a code.
func (v *verdict) advice(code string) string {
	switch code {
	case "call_limit":
		return fmt.Sprintf("raise agent.limits.calls (%d)", v.spec.Agent.Limits.Calls)
	case "token_limit":
		return fmt.Sprintf("raise agent.limits.tokens (%d)", v.spec.Agent.Limits.Tokens)
	case "context_length_exceeded":
		if v.spec.Model.Base == spec.BaseTiny {
			return fmt.Sprintf("raise model.context (%d), or shorten the prompts", v.spec.Model.Context)
		}
		return "shorten the prompts, or start from a model with a longer context"
	case "wrong_key", "invalid_api_key":
		return "send the key that the agent is given (OPENAI_API_KEY)"
	case "unknown_url":
		return "append the endpoint's path to the base URL as it is given (OPENAI_BASE_URL)"
	}
	return ""
}

// tools warns of tools that the model never sees.
func (v *verdict) tools() {
	hidden, offered := 0, ""
	for attempt, c := range v.eachCall() {
		if c.HiddenTools {
			hidden++
			offered = attempt
		}
	}
	switch {
	case hidden == 0:
	case v.spec.Model.Codec != dialog.CompactName:
		v.problem("%d of %s offer tools that the model never sees, for example in %s: the chat template leaves them out; "+
			"give one that writes `tools` as model.template", hidden, readable.Count(v.calls, "call"), offered)
	default:
		v.warning("codec compact writes no list of tools where a single one is offered (%d of %s): the model knows its tool from a warm start or not at all", hidden, readable.Count(v.calls, "call"))
	}
}

// prompts reports the rules of prompts that don't do what they are meant to do. Without
// prompts, it reports placeholders of prompts, which the gateway then leaves as they are.
func (v *verdict) prompts() {
	if v.rules == nil || v.rules.Requests() == 0 {
		return
	}
	for _, text := range v.rules.Unmatched() {
		v.problem("prompts: %s; correct its match, or remove the rule", text)
	}
	remedy := "make its match narrower"
	if v.served.Empty() {
		remedy = "the model reads it as it is; add the prompt to prompts.texts, or remove the placeholder"
	}
	for _, text := range v.rules.Problems() {
		v.problem("prompts: %s (%s); %s", text, readable.Count(v.rules.Count(text), "request"), remedy)
	}
}

// policies reports policies that no call reached, and those that nothing would be trained of.
func (v *verdict) policies() {
	if v.calls == 0 { // noCalls says why
		return
	}
	attempts := readable.Count(len(v.Attempts), "attempt")
	for _, p := range v.Policies {
		switch {
		case p.Calls == 0 && len(v.spec.Policies[p.Policy].Match) > 0:
			v.problem("policy %s: no call of %s matched policies.%s.match; correct it, or remove the policy", p.Policy, attempts, p.Policy)
		case p.Calls == 0:
			v.problem("policy %s: the other policies answered all calls of %s; make their matches narrower, or remove the policy", p.Policy, attempts)
		case v.step != nil && p.Trained == 0 && !p.Frozen:
			v.warning("policy %s: no token of its %s would be trained: %s", p.Policy, readable.Count(p.Calls, "call"), v.untrained(p.Policy))
		}
	}
}

// replies warns of problems that all replies share.
func (v *verdict) replies() {
	cut, unread, problem := 0, 0, ""
	for _, c := range v.eachCall() {
		if c.Finish == "length" {
			cut++
		}
		if c.Problem != "" {
			unread++
			problem = cmp.Or(problem, c.Problem)
		}
	}
	switch of := v.spec.Credit.Truncated; {
	case cut == 0 || cut == v.calls || of == spec.TruncatedTrain:
	case of == spec.TruncatedMask:
		v.warning("%d of %d replies were cut off, and credit.truncated: mask leaves them out of training; raise sampling.max_tokens (%d) if these are too many", cut, v.calls, v.spec.Sampling.MaxTokens)
	default:
		v.warning("%d of %d replies were cut off, and credit.truncated: fail lets their attempts fail; raise sampling.max_tokens (%d) if these are too many", cut, v.calls, v.spec.Sampling.MaxTokens)
	}
	if v.calls > 0 && cut == v.calls {
		v.warning("all %d replies were cut off: raise sampling.max_tokens (%d), or start from a model that ends its replies", v.calls, v.spec.Sampling.MaxTokens)
	}
	if v.calls > 0 && unread == v.calls {
		v.warning("none of the %d replies could be read, for example: %s; look at model.tool_parser, or use a warm start", v.calls, firstLine(problem))
	}
}

// reflection says whether the reflector's reply is of use, and whether there is anything to
// improve.
func (v *verdict) reflection() {
	if v.spec.Optimizer == nil {
		return
	}
	v.Reflection = v.trial.Reflection
	if r := v.Reflection; r != nil && r.Refusal != "" {
		v.warning("the reflector's reply about the prompt %s is of no use (%s); a search counts such replies and goes on, but look at optimizer.reflector if there are many", r.Prompt, r.Refusal)
	}
	perfect, graded := 0, 0
	for _, a := range v.Attempts {
		if a.Reward != nil {
			graded++
			if *a.Reward >= *v.spec.Optimizer.Perfect {
				perfect++
			}
		}
	}
	if graded > 0 && perfect == graded {
		v.warning("all %s earn optimizer.perfect (%g) already: a search learns from attempts that fail; try more tasks (--tasks)", readable.Count(graded, "attempt"), *v.spec.Optimizer.Perfect)
	}
}

// results warns of output that is not graded. An agent that gives
// itself its reward may print what it likes.
func (v *verdict) results() {
	lines, attempts := 0, 0
	for _, a := range v.Attempts {
		if a.LinesBefore > 0 {
			lines, attempts = lines+a.LinesBefore, attempts+1
		}
	}
	if attempts > 0 && v.spec.Grader.Type != spec.GraderAgent {
		v.warning("%s of output in %s %s not graded: the result is only the last line; print the result as one line, at the end",
			readable.Count(lines, "line"), readable.Count(attempts, "attempt"), readable.IsOrAre(lines))
	}
}

// credited looks at the batch.
func (v *verdict) credited() error {
	if v.step == nil || v.spec.Trainable() != nil {
		return nil
	}
	moved := false
	for _, c := range v.eachCall() {
		moved = moved || c.Advantage != nil && *c.Advantage != 0
	}
	if v.trained() == 0 {
		v.problem("no token of the %s would be trained: %s", readable.Count(v.calls, "call"), v.untrained(""))
		return nil
	}
	if v.input.Samples == 1 && v.spec.Training.SamplesPerTask > 1 {
		v.warning("with one sample of each task there is nothing to compare rewards with: leave out --samples 1")
		return nil
	}
	if moved || v.tooFew() {
		return v.alone(false)
	}
	silent, err := v.step.NeverTeaches()
	if err != nil {
		return err
	}
	if silent {
		return v.alone(true)
	}
	if len(v.Problems) == 0 {
		v.warning("no group has rewards that differ, so all advantages are 0: relative to its own mean nothing is better or worse; " +
			"use tasks that the model solves sometimes, more samples, or a warm start")
	}
	return v.alone(false)
}

// trained counts the tokens that would be trained.
func (v *verdict) trained() int {
	n := 0
	for _, c := range v.eachCall() {
		n += c.Trained
	}
	return n
}

// untrained returns why the first call without trained tokens is not trained, of a policy if one
// is given.
func (v *verdict) untrained(policy string) string {
	for _, c := range v.eachCall() {
		if c.Untrained != "" && (policy == "" || c.Policy == policy) {
			return c.Untrained
		}
	}
	return "all replies are empty"
}

// alone warns of agents that have calls in only one attempt of their group, so that there
// is nothing to compare them with. silent is true if no rewards could give an advantage.
func (v *verdict) alone(silent bool) error {
	if !v.spec.Credit.PerAgent {
		switch c := v.spec.Credit; {
		case silent && c.TrainAgents != "":
			v.problem("credit.train_agents %q matches calls of only one attempt in each group, so there is nothing to compare them with: all advantages are 0 whatever the rewards are", c.TrainAgents)
		case silent:
			v.problem("all advantages are 0 whatever the rewards are: look at credit.mean, credit.std and training.samples_per_task")
		}
		return nil
	}
	groups, err := v.step.Agents()
	if err != nil {
		return err
	}
	var single []string
	agents := 0
	for _, g := range groups {
		agents += len(g)
		for _, name := range slices.Sorted(maps.Keys(g)) {
			if g[name] == 1 {
				single = append(single, name)
			}
		}
	}
	text := fmt.Sprintf("%d of %d agents (%s) have calls in only one attempt of their group", len(single), agents, shortList(single))
	if advice := v.naming(single); advice != "" {
		text += "; " + advice
	}
	switch {
	case silent:
		v.problem("credit.per_agent compares each agent with itself, and all advantages are 0 whatever the rewards are: %s", text)
	case len(single) > 0:
		v.warning("credit.per_agent compares each agent with itself: %s", text)
	}
	return nil
}

// naming says how to give the agents in single stable names, if their names are digests
// of their instructions.
func (v *verdict) naming(single []string) string {
	for _, c := range v.eachCall() {
		if c.By == string(attribution.Instructions) && slices.Contains(single, c.Agent) {
			return "they are told apart by their instructions, which differ in each attempt: " +
				"let the agent put its name into its base URL (…/n/NAME/v1 in place of …/v1), or name what differs, such as a time, under replay.ignore"
		}
	}
	return ""
}

// shortList names up to three of many.
func shortList(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
