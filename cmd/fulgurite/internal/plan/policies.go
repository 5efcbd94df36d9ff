package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// Policy describes one of several policies of a run.
type Policy struct {
	Name string `json:"name"`
	// Answers says in words which requests it answers.
	Answers string `json:"answers"`
	Frozen  bool   `json:"frozen,omitempty"`
	// Parameters is how many numbers its own weights have: those of the model, or of its
	// adapter.
	Parameters int64 `json:"parameters"`
}

// ofPolicies returns the spec of each policy; that of the run if it trains one policy.
func ofPolicies(s spec.Spec) []spec.Spec {
	if len(s.Policies) == 0 {
		return []spec.Spec{s}
	}
	var out []spec.Spec
	for _, name := range s.PolicyNames() {
		out = append(out, s.ForPolicy(name))
	}
	return out
}

// setSizes computes the sizes of the run, and describes its policies. files is nil unless only
// engine torch can compute the model.
func (p *Plan) setSizes(files *hf.Files) {
	of := func(s spec.Spec, tokens []int32) Sizes {
		if files != nil {
			return newFileSizes(s, files, p.Steps, p.Gates)
		}
		return newSizes(s, p.architecture, tokens, p.Steps, p.Gates)
	}
	if len(p.Spec.Policies) == 0 {
		p.Sizes = of(p.Spec, p.tokens)
		return
	}
	all := map[string]Sizes{}
	most := int64(0)
	for _, name := range p.Spec.PolicyNames() {
		one := p.Spec.Policies[name]
		z := of(p.Spec.ForPolicy(name), p.tokensOf[name])
		all[name] = z
		if !one.Frozen && z.Trainer > most {
			p.largest, most = name, z.Trainer
		}
		p.Policies = append(p.Policies, Policy{Name: name, Answers: answersOf(one.Match), Frozen: one.Frozen, Parameters: z.Weights / number})
	}
	p.Sizes = jointSizes(p.Spec, all)
}

// jointSizes returns the sizes of a run with several policies, given those of each. A version has
// one of each policy, and of its critic if it has one. A frozen policy has the files of its version
// 0 alone. The trainer holds one policy or critic at a time, and the sampler all policies.
func jointSizes(s spec.Spec, all map[string]Sizes) Sizes {
	var z Sizes
	bases, critics := map[string]bool{}, map[string]bool{}
	for _, name := range s.CriticPolicies("") {
		critics[name] = true
	}
	for _, name := range s.PolicyNames() {
		one := all[name]
		z.Token, z.Cache = one.Token, max(z.Cache, one.Cache)
		z.Sampler += one.Sampler
		if s.Policies[name].Frozen {
			z.Frozen += one.Weights
		} else {
			z.Weights, z.Version, z.Trainer = z.Weights+one.Weights, z.Version+one.Version, max(z.Trainer, one.Trainer)
			z.Kept = one.Kept
			if critics[name] {
				z.Kept /= 2 // a critic's versions are counted as parts of the policies'
				z.Weights, z.Version, z.Critics = z.Weights+one.Weights, z.Version+one.Version, z.Critics+one.Version
			}
		}
		if l := s.ForPolicy(name).Model.LoRA; l != nil && !bases[string(precisionOf(*l))] {
			bases[string(precisionOf(*l))] = true
			z.Base, z.Packed = z.Base+one.Base, z.Packed+one.Packed
		}
	}
	z.Disk = z.Frozen + z.Weights + int64(z.Kept-1)*z.Version + z.Base + z.Packed
	return z
}

// trainedNumbers returns how many numbers the weights of a policy have; "" is the only one.
func (p Plan) trainedNumbers(name string) int64 {
	for _, one := range p.Policies {
		if one.Name == name {
			return one.Parameters
		}
	}
	return p.Sizes.Weights / number
}

// adapterLines describes the adapter of model.lora, if some policy has it.
func (p Plan) adapterLines() []planLine {
	if len(p.Policies) == 0 {
		return p.linesOfAdapter(p.Spec, p.tokens, p.trainedNumbers(""))
	}
	for _, one := range p.Policies {
		if p.Spec.Policies[one.Name].LoRA == nil {
			return p.linesOfAdapter(p.Spec, p.tokensOf[one.Name], one.Parameters)
		}
	}
	return nil
}

// linesOfAdapter describes the adapter of a spec, which trains the rows of tokens and this many
// numbers.
func (p Plan) linesOfAdapter(s spec.Spec, tokens []int32, trained int64) []planLine {
	l := s.Model.LoRA
	if l == nil {
		return nil
	}
	var out []planLine
	line := func(label, format string, args ...any) {
		out = append(out, planLine{label, fmt.Sprintf(format, args...)})
	}
	targets := l.Targets
	if p.Targets != nil {
		targets = p.Targets
	}
	line("adapter", "rank %d, alpha %g, on %s; %d trained parameters", l.Rank, l.Alpha, strings.Join(targets, ", "), trained)
	if len(tokens) > 0 {
		line("tokens", "%s: their rows are trained, too", p.tokenNames(tokens))
	} else if len(l.TrainableTokens) > 0 {
		line("tokens", "no row is trained: an adapter can tell the marks of tool calls apart")
	}
	if l.Adapter != "" {
		line("starts from", "%s (%s)", l.Adapter, l.AdapterDigest)
	}
	if precision := precisionOf(*l); precision != model.F32 {
		line("base", "its matrices are rounded to %s once, and stay so in memory", precision)
	}
	return out
}

// policyLines describes each policy, and where it differs from what the run's own keys say.
func (p Plan) policyLines() []planLine {
	var out []planLine
	for _, one := range p.Policies {
		state := "trained"
		if one.Frozen {
			state = "frozen: it stays as it begins"
		}
		out = append(out, planLine{"policy", fmt.Sprintf("%s answers %s; %s", one.Name, one.Answers, state)})
		for _, l := range p.ownLines(one) {
			out = append(out, planLine{"  " + l.label, l.text})
		}
	}
	return out
}

// ownLines describes what a policy has in place of what the run has.
func (p Plan) ownLines(one Policy) []planLine {
	run, own := p.Spec, p.Spec.ForPolicy(one.Name)
	var out []planLine
	if p.Spec.Policies[one.Name].LoRA != nil && !reflect.DeepEqual(run.Model.LoRA, own.Model.LoRA) {
		out = append(out, p.linesOfAdapter(own, p.tokensOf[one.Name], one.Parameters)...)
	}
	if w := own.Model.WarmStart; w != nil && !reflect.DeepEqual(run.Model.WarmStart, w) {
		out = append(out, planLine{"warm start", warmStartOf(*w)})
	}
	if one.Frozen {
		return out
	}
	if run.Training.Optimizer != own.Training.Optimizer {
		out = append(out, planLine{"optimizer", optimizerOf(own.Training.Optimizer)})
	}
	shared := learning(run)
	for _, l := range learning(own) {
		if !slices.Contains(shared, l) {
			out = append(out, l)
		}
	}
	return out
}

// answersOf says in words which requests agree with one of some matches.
func answersOf(all []spec.PolicyMatch) string {
	if len(all) == 0 {
		return "all other requests"
	}
	words := make([]string, len(all))
	for i, m := range all {
		words[i] = matchOf(m)
	}
	return "requests " + shortened(words, ", or ")
}

// matchBytes is how much is shown of a text that a request has to have.
const matchBytes = 60

func matchOf(m spec.PolicyMatch) string {
	var words []string
	if m.Agent != "" {
		words = append(words, "of agent "+m.Agent)
	}
	if m.Model != "" {
		words = append(words, "for model "+m.Model)
	}
	message := fmt.Sprintf("with a %s message", m.Role)
	if m.Position != nil {
		message = fmt.Sprintf("whose message %d is a %s message", *m.Position, m.Role)
	}
	switch {
	case m.Exact != "":
		words = append(words, fmt.Sprintf("%s that is %q", message, truncate.Ellipsis(m.Exact, matchBytes)))
	case m.Prefix != "":
		words = append(words, fmt.Sprintf("%s that begins with %q", message, truncate.Ellipsis(m.Prefix, matchBytes)))
	}
	return strings.Join(words, " ")
}
