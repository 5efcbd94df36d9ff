package trial

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/trace"
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
		if a.Outcome == trace.AgentFailed {
			v.failed++
		}
		for _, f := range a.Refusals {
			if !f.OfReward() {
				v.refused += f.Count
			}
		}
	}
	if err := v.spec.Trainable(); err != nil {
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
	v.replies()
	v.results()
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
		v.problem("no token of the %s would be trained, and a step of a run would learn nothing: %s", readable.Count(v.calls, "call"), v.untrained())
	case v.trial.Phase == workflows.TryCredit:
		v.problem("the credit of these attempts can't be assigned, and a step of a run would learn nothing: %s", ownWords(v.trial.Failure))
	default:
		v.problem("a run would end before its first update: %s", ownWords(v.trial.Failure))
	}
	return true
}

// tooFew reports whether the trial had fewer tasks than its credit assignment needs,
// although a step would have enough.
func (v *verdict) tooFew() bool {
	return v.spec.Credit.Assignment == credit.ValueDifference && len(v.trial.Groups) < v.spec.Training.TasksPerStep
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
		if a.Outcome != trace.AgentFailed {
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
