package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

type planLine struct{ label, text string }

// learning describes how rewards become updates. It writes out every setting that the
// name of an algorithm implies. s has its defaults.
func learning(s spec.Spec) []planLine {
	var lines []planLine
	add := func(label string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
		if len(parts) > 0 {
			lines = append(lines, planLine{label, strings.Join(parts, "; ")})
		}
	}
	add("algorithm", s.Algorithm)
	if n := s.Training.DynamicSampling; n > 0 {
		add("refills", fmt.Sprintf("up to %s a step that would get no advantage %s replaced from the reserve, at most %d more rollouts",
			readable.Count(n, "group"), readable.IsOrAre(n), n*s.Training.SamplesPerTask))
	}
	add("rewards", rewardsOf(s.Credit)...)
	add("credit", comparisonOf(s.Credit), assignmentOf(s.Credit), tokensOf(s.Credit), agentsOf(s.Credit))
	if j := s.Credit.Judge; j != nil {
		key := ""
		if j.Key != "" {
			key = "key from $" + j.Key
		}
		add("judge", fmt.Sprintf("%s at %s scores every call from 0 to 10", j.Model, j.URL),
			fmt.Sprintf("about %d requests a step, %d allowed", s.Training.TasksPerStep*s.Training.SamplesPerTask, j.Requests),
			fmt.Sprintf("answers within %g s", j.Seconds), key)
	}
	if c := s.Critic; c != nil && s.Credit.UsesCritic() { // that of a run may be for some of its policies
		clip := ""
		if c.Clip > 0 {
			clip = fmt.Sprintf("estimates clipped at %g", c.Clip)
		}
		add("critic", fmt.Sprintf("a second model, AdamW at %g, %d passes", c.LearningRate, c.Passes), clip)
	}
	add("loss", lossOf(s.Loss)...)
	return lines
}

func rewardsOf(c spec.Credit) []string {
	var out []string
	if len(c.Rewards) > 0 {
		out = append(out, weighted(c.Rewards)+map[string]string{spec.CombineSum: ", added up", spec.CombineSeparate: ", each compared by itself"}[c.Combine])
	}
	if len(c.Signals) > 0 {
		out = append(out, "calls earn "+weighted(c.Signals))
	}
	if o := c.Overlong; o != nil {
		out = append(out, fmt.Sprintf("up to %g less from %d tokens on, all of it at %d", o.Penalty, o.Tokens-o.Buffer, o.Tokens))
	}
	switch c.Truncated {
	case spec.TruncatedMask:
		out = append(out, "replies that were cut off are not trained")
	case spec.TruncatedFail:
		out = append(out, "an attempt with a reply that was cut off fails")
	}
	if kl := c.KLInReward; kl != nil {
		out = append(out, fmt.Sprintf("KL to version 0 × %g less for every token (%s)", kl.Weight, kl.Estimator))
	}
	if c.FormatPenalty > 0 {
		out = append(out, fmt.Sprintf("%g less with a reply that can't be parsed", c.FormatPenalty))
	}
	return out
}

func weighted(weights map[string]float64) string {
	names := slices.Sorted(maps.Keys(weights))
	for i, name := range names {
		names[i] = fmt.Sprintf("%s × %g", name, weights[name])
	}
	return strings.Join(names, ", ")
}

func comparisonOf(c spec.Credit) string {
	out := "reward"
	switch {
	case c.Mean == credit.None:
	case c.LeaveOneOut:
		out += " − mean of the others of the group"
	case c.Mean == credit.Running:
		out += " − running mean of the steps before"
	default:
		out += " − mean of the " + string(c.Mean)
	}
	switch c.Std {
	case credit.None:
	case credit.ByMean:
		out += ", over that mean"
	default:
		out += ", over the deviation of the " + string(c.Std)
	}
	if c.PerAgent {
		out += ", for each agent by itself"
	}
	return out
}

func assignmentOf(c spec.Credit) string {
	out := "every call: " + string(c.Assignment)
	if c.Tokens == credit.GAE {
		return ""
	}
	var with []string
	if c.Discount > 0 {
		with = append(with, fmt.Sprintf("discount %g", c.Discount))
	}
	if c.Lambda > 0 {
		with = append(with, fmt.Sprintf("λ %g", c.Lambda))
	}
	if c.StepWeight > 0 {
		with = append(with, fmt.Sprintf("steps × %g", c.StepWeight))
	}
	if len(with) > 0 {
		out += " (" + strings.Join(with, ", ") + ")"
	}
	return out
}

func tokensOf(c spec.Credit) string {
	var out []string
	if c.Tokens == credit.GAE {
		out = append(out, fmt.Sprintf("every token: gae (discount %g, λ %g)", c.Discount, c.Lambda))
	}
	if c.Whiten != credit.None {
		out = append(out, "whitened over the "+string(c.Whiten))
	}
	return strings.Join(out, ", ")
}

func agentsOf(c spec.Credit) string {
	if c.TrainAgents == "" {
		return ""
	}
	return "trained are agents named " + c.TrainAgents
}

func lossOf(l spec.Loss) []string {
	out := []string{string(l.Type)}
	if l.ClipHigh > 0 {
		out[0] += fmt.Sprintf(", clip %g below and %g above", l.ClipLow, l.ClipHigh)
	}
	if l.DualClip > 0 {
		out[0] += fmt.Sprintf(", dual clip %g", l.DualClip)
	}
	out[0] += ", " + string(l.Aggregation)
	if l.Length > 0 {
		out[0] += fmt.Sprintf(" (%d tokens)", l.Length)
	}
	switch {
	case l.Correction == credit.Uncorrected:
	case l.ImportanceFloor > 0:
		out[0] += fmt.Sprintf(", %s with weights from %g to %g", l.Correction, l.ImportanceFloor, l.ImportanceCap)
	default:
		out[0] += fmt.Sprintf(", %s with weights up to %g", l.Correction, l.ImportanceCap)
	}
	if l.KL != nil {
		out = append(out, fmt.Sprintf("KL to version 0 × %g (%s)", l.KL.Weight, l.KL.Estimator))
	}
	if l.Entropy > 0 {
		out = append(out, fmt.Sprintf("entropy × %g", l.Entropy))
	}
	return out
}

// curriculumOf describes how a spec's curriculum chooses tasks. It returns "" if the spec
// has none.
func (p Plan) curriculumOf() string {
	if !p.Spec.Training.Chooses() {
		return ""
	}
	c, n := *p.Spec.Training.Curriculum, p.Spec.Training.TasksPerStep
	switch c.Type {
	case spec.CurriculumBand:
		return fmt.Sprintf("band: tasks with an estimated pass rate between %g and %g (a pass is a reward of at least %g); %g of %d a step are explored; results lose %g of their weight a step",
			*c.Low, c.High, p.Spec.Evaluation.SuccessThreshold(), *c.Explore*float64(n), n, c.Forget)
	case spec.CurriculumEasiestFirst:
		by, steps := "metadata."+c.Difficulty, c.Steps
		if c.Difficulty == "" {
			by = fmt.Sprintf("recorded pass rate (results lose %g of their weight a step)", c.Forget)
		}
		if steps == 0 {
			steps = max(1, p.Steps/2)
		}
		return fmt.Sprintf("easiest_first by %s: from the easiest %g of the tasks in step 1 to all in step %d", by, c.Start, steps+1)
	}
	var stages []string
	for i, stage := range c.Stages {
		text := fmt.Sprintf("%s (%s", c.Title(i), readable.Count(len(p.pool.Stages[i]), "task"))
		if until := untilOf(stage.Until); until != "" {
			text += " until " + until
		}
		stages = append(stages, text+")")
	}
	return "stages: " + strings.Join(stages, ", then ")
}

func untilOf(u spec.Until) string {
	var conditions []string
	if u.Steps > 0 {
		conditions = append(conditions, readable.Count(u.Steps, "step"))
	}
	if u.Reward != nil {
		conditions = append(conditions, fmt.Sprintf("a mean reward of %g over %s", *u.Reward, readable.Count(u.Over, "step")))
	}
	if u.Evaluation != nil {
		conditions = append(conditions, fmt.Sprintf("a mean of %g on the gate split", *u.Evaluation))
	}
	return strings.Join(conditions, " or ")
}

// renderedDemonstrations is how many of a file's dialogs a plan renders. A mistake in
// one is mostly a mistake in all.
const renderedDemonstrations = 1000

// checkDemonstrations reads the file that a warm start learns from, and makes sure
// that the codec can lay its dialogs out and the model has positions for them.
func checkDemonstrations(m spec.Model, codec dialog.Codec, positions int) error {
	if m.WarmStart == nil {
		return nil
	}
	source, err := spec.ParseSource(m.WarmStart.Demonstrations)
	if err != nil || source.Path == "" { // what a generator makes fits
		return err
	}
	dialogs, err := tasks.OpenDialogs(source.Path)
	if err != nil {
		return err
	}
	for i, d := range dialogs[:min(len(dialogs), renderedDemonstrations)] {
		tokens, _, err := codec.Demonstration(d)
		if err != nil {
			return fmt.Errorf("%s: dialog %d: %w", source.Path, i+1, err)
		}
		if len(tokens) > positions {
			return fmt.Errorf("%s: dialog %d has %d tokens, the model has %d positions: shorten it, or give a longer model.context or another model.base",
				source.Path, i+1, len(tokens), positions)
		}
	}
	return nil
}
