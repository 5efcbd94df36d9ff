package plan

import (
	"fmt"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
)

// trafficOf says what is recorded of the conversations of a run's versions; empty if nothing
// is said of them.
func trafficOf(t *spec.Traffic) string {
	if t == nil {
		return ""
	}
	text := map[string]string{
		spec.RecordNone:    "no conversation is recorded",
		spec.RecordConsent: "conversations with consent are recorded",
		spec.RecordAll:     "all conversations are recorded",
	}[t.Record]
	if t.RetentionDays > 0 {
		text += fmt.Sprintf(", and kept for %g days", t.RetentionDays)
	}
	if t.OnFailure == spec.ServeUnrecorded {
		text += "; replies that can't be are delivered all the same"
	}
	return text
}

// trafficLines describes the steps of a run that learns from conversations.
func (p Plan) trafficLines() []planLine {
	s := p.Spec
	train := s.Traffic.Train
	var out []planLine
	line := func(label, format string, args ...any) {
		out = append(out, planLine{label, fmt.Sprintf(format, args...)})
	}
	what, loss := "judged replies", fmt.Sprintf("%s; the advantage of a reply is its value less the mean of the step", s.Loss.Type)
	switch train.Objective {
	case spec.ObjectiveSupervised:
		what, loss = "corrected replies", "cross-entropy on the corrected texts"
	case spec.ObjectivePreference:
		what, loss = "pairs of replies", "DPO against the version that the step starts from"
		if s.Loss.HoldsPreferencesToFirst() {
			loss = "DPO against version 0"
		}
	}
	line("a step", "%d to %d %s of conversations without a request for %g minutes, then %s", train.MinReplies, train.MaxReplies, what, s.Traffic.IdleMinutes, updatesOf(s.Training))
	line("the run", "at most %s, one whenever it is asked and there is enough", readable.Count(p.Steps, "step"))
	line("loss", "%s", loss)
	line("optimizer", "%s", optimizerOf(s.Training.Optimizer))
	if shadow := train.Shadow; shadow != nil {
		line("shadow", "a version that passes the gate replies to up to %d recorded prompts, within %g minutes; more cut off, empty or failed replies at level %g withdraw it", shadow.Replies, shadow.Minutes, shadow.Level)
	}
	switch e := train.Experiment; {
	case p.Gates == 0:
		line("promotion", "none: without tasks.gate nothing is evaluated, and version 0 stays promoted")
	case e != nil:
		line("promotion", "a version better by more than %g on the gate split answers %g %% of users, until feedback decides at level %g", s.Promotion.Margin, 100*e.Share, e.Level)
	default:
		line("promotion", "a version must be better by more than %g on the gate split%s", s.Promotion.Margin, p.evidence())
	}
	return append(out, p.Sizes.lines()...)
}

// trafficWarnings says what keeps a run from learning from conversations.
func trafficWarnings(s spec.Spec) []string {
	if !s.FromTraffic() {
		return nil
	}
	var out []string
	if s.Traffic.Record == spec.RecordNone {
		out = append(out, "traffic.record is none: no conversation is recorded, so there is nothing to learn from; give with-consent or all, or set it later")
	}
	single := s.Training.Passes*s.Training.Minibatches == 1
	if s.Traffic.Train.Objective == spec.ObjectivePreference && single && !s.Loss.HoldsPreferencesToFirst() {
		out = append(out, "loss.preference.beta has almost no effect: with one update a step, the policy still is its reference; give training.passes, or loss.preference.reference first")
	}
	return out
}
