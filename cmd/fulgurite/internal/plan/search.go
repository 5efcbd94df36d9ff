package plan

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// gatesOfSearch is the number of evaluations on the gate split: of the first texts, and of
// the winner.
const gatesOfSearch = 2

// Search is the most that the search of an optimizer uses. What is tried again after a
// fault of ours may be added to it.
type Search struct {
	// Rollouts are those of the search and those on the gate split, together.
	Rollouts int `json:"rollouts"`
	// Reflections are requests to the reflector.
	Reflections int `json:"reflections"`
	// Validation is the number of rollouts in which one candidate is measured.
	Validation int `json:"validation"`
}

// readSearch checks that the splits and the budget suffice, and counts.
func (p *Plan) readSearch() error {
	o := p.Spec.Optimizer
	if o == nil {
		return nil
	}
	if _, err := optimize.Of(withTexts(p.Spec), p.Tasks[record.Train], p.Tasks[record.Validation]); err != nil {
		return err
	}
	p.Search = &Search{
		Rollouts: o.Budget.Minibatch + o.Budget.Validation + p.gateRollouts(), Reflections: o.Budget.Reflections,
		Validation: p.Tasks[record.Validation] * o.ValidationSamples,
	}
	return nil
}

// withTexts returns a spec whose prompts all have a text: those of prompts.version are known
// only to the run. What a search needs does not depend on them.
func withTexts(s spec.Spec) spec.Spec {
	if s.Prompts == nil || s.Prompts.Version == "" {
		return s
	}
	p := *s.Prompts // the caller's prompts do not change
	p.Texts = slices.Clone(p.Texts)
	if len(p.Texts) == 0 {
		p.Texts = []spec.PromptText{{Name: "prompt"}}
	}
	for i := range p.Texts {
		p.Texts[i].Text = cmp.Or(p.Texts[i].Text, "-")
	}
	s.Prompts = &p
	return s
}

func (p *Plan) gateRollouts() int {
	return gatesOfSearch * p.Tasks[record.Gate] * p.Spec.Evaluation.Samples
}

// searchLines describes a run that improves prompts.
func (p Plan) searchLines() []planLine {
	o, r := p.Spec.Optimizer, p.Search
	var out []planLine
	line := func(label, format string, args ...any) {
		out = append(out, planLine{label, fmt.Sprintf(format, args...)})
	}
	line("search", "%s", searchOf(*o))
	line("reflector", "%s", reflectorOf(o.Reflector))
	line("budget", "%s on minibatches, %d on validations, %s to the reflector",
		readable.Count(o.Budget.Minibatch, "rollout"), o.Budget.Validation, readable.Count(o.Budget.Reflections, "request"))
	line("validation", "%s × %s = %s; the budget has %d of them",
		readable.Count(p.Tasks[record.Validation], "task"), readable.Count(o.ValidationSamples, "attempt"), readable.Count(r.Validation, "rollout"), o.Budget.Validation/r.Validation)
	line("the run", "at most %s, %d of them on the gate split, and %s to the reflector",
		readable.Count(r.Rollouts, "rollout"), p.gateRollouts(), readable.Count(r.Reflections, "request"))
	line("promotion", "the winner must be better than the first texts on the gate split by more than %g%s", p.Spec.Promotion.Margin, p.evidence())
	return out
}

// searchOf describes an algorithm and when it ends. o has its defaults.
func searchOf(o spec.PromptOptimizer) string {
	var out, attempts string
	if o.Samples > 1 {
		attempts = fmt.Sprintf(" with %d attempts each", o.Samples)
	}
	if o.Algorithm == spec.AlgorithmAPO {
		a := o.APO
		out = fmt.Sprintf("apo, %s of %s from each of at most %s, critiques of %s%s, compared on %s",
			readable.Count(a.Rounds, "round"), readable.Count(a.Branch, "proposal"), readable.Count(a.Beam, "candidate"),
			readable.Count(a.GradientBatch, "task"), attempts, readable.Count(a.ValidationBatch, "task"))
	} else {
		out = fmt.Sprintf("gepa, minibatches of %s%s", readable.Count(o.GEPA.Minibatch, "task"), attempts)
		if o.GEPA.Merge {
			out += fmt.Sprintf(", about %s of two lineages", readable.Count(o.GEPA.Merges, "merge"))
		}
	}
	out += fmt.Sprintf("; ends at a mean of %g", *o.Perfect)
	if o.Patience > 0 {
		what := "proposal"
		if o.Algorithm == spec.AlgorithmAPO {
			what = "round"
		}
		out += fmt.Sprintf(", or after %s without a better candidate", readable.Count(o.Patience, what))
	}
	return out
}

// minReflectorParameters is the size of a policy below which plan warns that the policy
// itself reflects. The bound is a choice, not a measurement.
const minReflectorParameters = 3_000_000_000

// reflectsForItself says that a small policy writes its own texts. It returns "" if the policy
// is not small, if only a server knows its size, or if another model reflects for all that
// the spec says.
func (p Plan) reflectsForItself() string {
	s := p.Spec
	if s.Optimizer == nil || p.Parameters >= minReflectorParameters || s.Model.Base == spec.BaseTiny && s.Sampling.Server != nil {
		return ""
	}
	why := policyReflects(s)
	if why == "" {
		return ""
	}
	return fmt.Sprintf("optimizer.reflector.model %s; the policy has %d parameters, and so small a model may write no better prompts: look at the reply that `fulgurite try` shows, or name a larger model",
		why, p.Parameters)
}

// policyReflects says by what the reflector of a search is known to be the policy's own model,
// as words that follow the name of its key. It returns "" if nothing says so.
func policyReflects(s spec.Spec) string {
	r := s.Optimizer.Reflector
	address, err := url.Parse(r.URL)
	if err != nil || r.Model == "" {
		return ""
	}
	if server := s.Sampling.Server; server != nil && server.Model == r.Model {
		for _, one := range server.URLs {
			if u, err := url.Parse(one); err == nil && u.Host == address.Host {
				return fmt.Sprintf("%q is the model of sampling.server", r.Model)
			}
		}
	}
	if s.Model.Base != spec.BaseTiny && strings.EqualFold(path.Base(r.Model), filepath.Base(s.Model.Base)) {
		return fmt.Sprintf("%q has the name of model.base", r.Model)
	}
	// A gateway has no TLS, whereas providers whose names of models have an @ do.
	if name, version, ok := strings.Cut(r.Model, "@"); ok && name != "" && version != "" && address.Scheme == "http" {
		return fmt.Sprintf("%q seems to be a version that a gateway serves, so of this spec's model unless its run has another", r.Model)
	}
	return ""
}

// reflectorOf says who writes new texts. r has its defaults.
func reflectorOf(r spec.Reflector) string {
	var out string
	switch r.Type {
	case spec.ReflectorCommand:
		out = "command " + r.Command[0]
	case spec.ReflectorRecorded:
		return fmt.Sprintf("the replies in %s; at most %d bytes a request", r.File, r.ShownBytes)
	default:
		out = fmt.Sprintf("%s at %s (%s)", r.Model, r.URL, r.Type)
		if r.Key != "" {
			out += ", key from $" + r.Key
		}
	}
	return out + fmt.Sprintf("; at most %g s and %s a reply, %d bytes a request", r.Seconds, readable.Count(r.MaxTokens, "token"), r.ShownBytes)
}
