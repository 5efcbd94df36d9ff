package activities

import (
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// AttemptTerms returns the terms under which RunAgent begins an attempt of a run with
// version v. Code outside of RunAgent that runs the run's agent uses them to get the same
// answers to its calls.
func AttemptTerms(s spec.Spec, v model.VersionID) trace.Terms {
	return terms(s, RunAgentInput{Policy: v.Policy, Version: v.Number})
}

// AttemptLimits returns the limits under which RunAgent launches the agent of a run.
func AttemptLimits(s spec.Spec) agent.Limits { return limitsOf(s) }
