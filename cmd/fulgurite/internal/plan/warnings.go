package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// warnings lists what may keep the run from learning. Specs that certainly can't learn
// are refused elsewhere.
func (p Plan) warnings() []string {
	out := []string{}
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	m := p.Spec.Model
	// A server has a model of its own, and so has the run that model.version names.
	elsewhere := p.Spec.Optimizer != nil && p.Spec.Sampling.Server != nil || m.Version != ""
	random := func(s spec.Spec) bool {
		return s.Model.WarmStart == nil && (s.Model.LoRA == nil || s.Model.LoRA.Adapter == "")
	}
	if m.Base == spec.BaseTiny && !elsewhere && slices.ContainsFunc(ofPolicies(p.Spec), random) {
		warn("the built-in model starts from random weights and solves nothing by itself: give model.warm_start, or a directory as model.base")
	}
	if least := p.leastSignificance(); p.Tasks[record.Gate] > 0 && p.Spec.Promotion.Significance < 1 && least > p.Spec.Promotion.Significance {
		warn("tasks.gate has %s, too few for a p-value of promotion.significance %g (the least is %g): nothing will be promoted",
			readable.Count(p.Tasks[record.Gate], "task"), p.Spec.Promotion.Significance, least)
	}
	for _, text := range p.unlearnable() {
		warn("%s", text)
	}
	if text := unwatchedServers(p.Spec); text != "" {
		warn("%s", text)
	}
	out = append(out, trafficWarnings(p.Spec)...)
	if text := p.beyondContext(); text != "" && m.Version == "" {
		warn("%s", text)
	}
	if text := p.failurePays(); text != "" {
		warn("%s", text)
	}
	if text := p.reflectsForItself(); text != "" {
		warn("%s", text)
	}
	if p.Spec.Evaluation.Only == "" && p.Spec.Optimizer == nil {
		out = append(out, departures(p.Spec)...)
	}
	return out
}

// unlearnable says which marks of tool calls adapters can't learn to write.
func (p Plan) unlearnable() []string {
	m := p.Spec.Model
	if m.Codec != spec.CodecTemplate {
		return nil
	}
	var out []string
	add := func(of spec.Spec, tokens []int32) {
		if of.Model.LoRA == nil {
			return
		}
		if text, err := update.Unlearnable(m.Base, p.codec, tokens); err == nil && text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(p.Spec.Policies) == 0 {
		add(p.Spec, p.tokens)
	}
	for _, name := range p.Spec.TrainedPolicies() {
		add(p.Spec.ForPolicy(name), p.tokensOf[name])
	}
	return out
}

// leastAdapterRate is a learning rate below which plan warns of an adapter: rates around 1e-5
// are usual for complete models, and the best rate of an adapter is about ten times that of
// the complete model (Schulman et al. 2025, "LoRA Without Regret", Thinking Machines Lab).
// The bound itself is a choice, not a measurement.
const leastAdapterRate = 3e-5

// departures lists where a spec departs from what is known to work. s has its defaults.
func departures(s spec.Spec) []string {
	if len(s.Policies) == 0 {
		return departuresOf(s, "training.optimizer.learning_rate", "model.lora")
	}
	var out []string
	for _, name := range s.TrainedPolicies() {
		rate, lora := "training.optimizer.learning_rate", "model.lora"
		own := s.Policies[name]
		if own.Optimizer != nil && own.Optimizer.LearningRate != 0 {
			rate = "policies." + name + ".optimizer.learning_rate"
		}
		if own.LoRA != nil {
			lora = "policies." + name + ".lora"
		}
		for _, text := range departuresOf(s.ForPolicy(name), rate, lora) {
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// departuresOf does what departures does for one policy. It names the keys that have its
// learning rate and its adapter.
func departuresOf(s spec.Spec, rateKey, loraKey string) []string {
	var out []string
	if rate := s.Training.Optimizer.LearningRate; s.Model.LoRA != nil && rate < leastAdapterRate {
		out = append(out, fmt.Sprintf("%s is %g, a rate of complete models: an adapter (%s) needs about ten times as much; 3e-4 is a start", rateKey, rate, loraKey))
	}
	if s.Training.SamplesPerTask == 2 && s.Credit.Std != credit.None && s.Credit.Mean == credit.Group {
		out = append(out, "training.samples_per_task is 2: over the deviation of a group of two, each difference of rewards becomes the same advantage, however small it is; give 4 or more, or credit.std: none")
	}
	return out
}

// beyondContext says that no reply can be as long as the spec lets it be. It returns "" if
// one can, or if only a server knows the model's context.
func (p Plan) beyondContext() string {
	context, most := p.architecture.MaxPositions, p.Spec.Sampling.MaxTokens
	if context == 0 || most < context {
		return ""
	}
	remedy := "raise model.context, or lower sampling.max_tokens"
	if p.Spec.Model.Base != spec.BaseTiny {
		remedy = "lower sampling.max_tokens"
	}
	return fmt.Sprintf("sampling.max_tokens is %d, but the model's context has %s for prompt and reply together: longer replies are cut off where the context ends; %s",
		most, readable.Count(context, "token"), remedy)
}

// unheld says what an agent may ask for that the codec can't do.
func unheld(s spec.Spec, codec dialog.Codec) []string {
	var out []string
	gaps := dialog.GapsOf(codec)
	switch {
	case gaps.Tools != nil:
		out = append(out, fmt.Sprintf("an agent that offers tools gets status 400: %v", gaps.Tools))
	case s.Model.ToolParser == "" && dialog.CheckTools(codec, "of its template") != nil:
		out = append(out, "the chat template leaves out tools that are offered: an agent that offers some runs without its model seeing them")
	}
	if s.Sampling.History == "template" {
		return out
	}
	switch {
	case gaps.Replies != nil:
		out = append(out, fmt.Sprintf("an agent that goes on with a dialog after a reply gets status 400: %v", gaps.Replies))
	case gaps.Calls != nil && gaps.Tools == nil:
		out = append(out, fmt.Sprintf("an agent that goes on with a dialog after a tool call gets status 400: %v", gaps.Calls))
	}
	return out
}

// leastSignificance returns the least p-value that the gate split can give.
func (p Plan) leastSignificance() float64 { return math.Pow(0.5, float64(p.Tasks[record.Gate])) }

// unwatchedServers warns of environment variables of the agent that hold addresses of
// servers, if no server is watched. It leaves out the addresses of the model, of proxies
// and of telemetry, which don't affect a reward.
func unwatchedServers(s spec.Spec) string {
	if len(s.Agent.ToolServers) > 0 {
		return ""
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.Agent.Environment)) {
		value, upper := s.Agent.Environment[name], strings.ToUpper(name)
		if !strings.HasPrefix(value, "http://") && !strings.HasPrefix(value, "https://") {
			continue
		}
		ofModel := s.Sampling.Server != nil && slices.ContainsFunc(s.Sampling.Server.URLs, func(url string) bool { return strings.HasPrefix(value, url) })
		other := strings.HasSuffix(upper, "_PROXY") || strings.HasPrefix(upper, "OTEL_") || strings.HasPrefix(upper, "OPENAI_") || strings.HasPrefix(upper, "ANTHROPIC_")
		if !ofModel && !other {
			names = append(names, "agent.environment."+name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s names a server, but agent.tool_servers is missing, so an attempt that fails because the server is down is graded like any other; name an address of the server there that answers GET",
		strings.Join(names, " and "))
}

// failurePays does what the function of this name does, for the first policy of which it holds.
func (p Plan) failurePays() string {
	for _, of := range ofPolicies(p.Spec) {
		if text := failurePays(of); text != "" {
			return text
		}
	}
	return ""
}

// failurePays says why an attempt that fails may earn more than one that goes on, so that
// the policy would learn to crash. It returns "" if no reward can be less than
// agent.failure_reward. s has its defaults.
func failurePays(s spec.Spec) string {
	failure, c := s.Agent.FailureReward, s.Credit
	var less []string
	switch least := s.Grader.Least(); {
	case failure <= least:
	case s.Grader.Minimum == nil && least == -s.Grader.Limit:
		less = append(less, fmt.Sprintf("grader.type %s may give down to %g (grader.minimum narrows it)", s.Grader.Type, least))
	default:
		less = append(less, fmt.Sprintf("grader.type %s gives down to %g", s.Grader.Type, least))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Signals)) {
		if w := c.Signals[name]; w < 0 || name == spec.SignalEmitted {
			less = append(less, fmt.Sprintf("credit.signals.%s × %g may be negative", name, w))
		}
	}
	if c.FormatPenalty > 0 {
		less = append(less, fmt.Sprintf("credit.format_penalty takes %g", c.FormatPenalty))
	}
	if o := c.Overlong; o != nil {
		less = append(less, fmt.Sprintf("credit.overlong takes up to %g", o.Penalty))
	}
	if len(less) == 0 {
		return ""
	}
	return fmt.Sprintf("an agent that crashes gets agent.failure_reward %g, and one that does not crash may get less, so crashing may pay: %s; set agent.failure_reward below the least reward of an attempt",
		failure, strings.Join(less, ", "))
}
