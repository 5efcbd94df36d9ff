package evaluation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// ModelOf names the model that the run of a spec evaluates, if it is not the run's own: a
// version of another run, or the model of a server that loads no versions.
func ModelOf(s spec.Spec) string {
	if s.Model.Version != "" {
		return s.Model.Version
	}
	if server := s.Sampling.Server; server != nil && server.Versions == spec.VersionsNone {
		return fmt.Sprintf("%s at %s", server.Model, strings.Join(server.URLs, ", "))
	}
	if s.Evaluation.Only != "" && s.Model.WarmStart == nil {
		if l := s.Model.LoRA; l != nil && l.Adapter != "" {
			return s.Model.Base + " with " + l.Adapter
		}
		return s.Model.Base
	}
	return ""
}

// graderText returns the grader of an evaluation's spec as JSON.
func graderText(s Set) string {
	text, err := json.Marshal(s.Spec.Grader)
	if err != nil {
		return s.Spec.Grader.Type
	}
	return string(text)
}

// remarks lists what differs between two comparable evaluations and may explain the
// difference of their rewards.
func remarks(a, b Set) []string {
	out := []string{}
	say := func(what string, x, y any) {
		if !reflect.DeepEqual(x, y) {
			out = append(out, fmt.Sprintf("%s: %v against %v", what, x, y))
		}
	}
	say("sampling.temperature", *a.Spec.Sampling.Temperature, *b.Spec.Sampling.Temperature)
	say("sampling.max_tokens", a.Spec.Sampling.MaxTokens, b.Spec.Sampling.MaxTokens)
	say("seed", a.Spec.Seed, b.Spec.Seed)
	say("agent.limits", a.Spec.Agent.Limits, b.Spec.Agent.Limits)
	say("evaluation.success", a.Spec.Evaluation.SuccessThreshold(), b.Spec.Evaluation.SuccessThreshold())
	x, y := a.Spec.Agent, b.Spec.Agent
	x.Limits, y.Limits = spec.AgentLimits{}, spec.AgentLimits{}
	if !reflect.DeepEqual(x, y) {
		out = append(out, "agent: the two ran in different ways")
	}
	if !reflect.DeepEqual(a.Spec.Grader, b.Spec.Grader) {
		out = append(out, "grader: its program lies at two paths")
	}
	return out
}
