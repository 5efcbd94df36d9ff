package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// readIsolation decides what isolates agents, as the machine that prepares the run does. That
// may be another machine, so what this one can't do is a warning and no error.
func (p *Plan) readIsolation(ctx context.Context) error {
	if p.Spec.Agent.Sandbox == spec.SandboxContainer {
		return p.readContainer(ctx)
	}
	var machine error // why this one can't isolate
	if len(p.Spec.Agent.Command) > 0 && p.Spec.Agent.Sandbox != spec.SandboxNone {
		if machine = sandbox.Check(ctx); machine != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	unfit := ""
	if len(p.Spec.Agent.Command) > 0 {
		unfit = sandbox.Unfit(p.Spec.Agent.Directory, p.Spec.Agent.Command, nil)
	}
	reason := unfit
	if machine != nil {
		reason = machine.Error()
	}
	decided, err := p.Spec.DecideSandbox(func() (string, error) { return reason, nil })
	p.agent = decided.Agent
	warning := ""
	var faults *spec.Faults
	switch {
	case errors.As(err, &faults):
		p.Isolation, p.IsolationReason = spec.SandboxNone, reason
		warning = fmt.Sprintf("a run that is prepared here is refused: %v", faults)
	case err != nil:
		return err
	case decided.Agent.Sandbox == "": // the agent is no command
		return nil
	default:
		p.Isolation, p.IsolationReason = decided.Agent.Isolation()
	}
	if warning == "" && machine != nil && p.Spec.Agent.Sandbox == spec.SandboxProcess {
		warning = fmt.Sprintf("agent.sandbox: %v: workers here run no attempt of it", machine)
	}
	if warning != "" {
		if machine != nil {
			warning = strings.Join(append([]string{warning}, sandbox.Fix(machine)...), "; ")
		}
		p.Warnings = append(p.Warnings, warning)
	}
	return nil
}

// readContainer finds the image in which agents run, as the machine that prepares the run
// does.
func (p *Plan) readContainer(ctx context.Context) error {
	decided, err := p.Spec.DecideContainer(func(a spec.Agent) (string, error) { return fleet.FindContainer(ctx, a) })
	var faults *spec.Faults
	switch {
	case errors.As(err, &faults):
		p.Warnings = append(p.Warnings, fmt.Sprintf("a run that is prepared here is refused: %v", faults))
	case err != nil:
		return err
	}
	p.agent = decided.Agent
	p.Isolation, p.IsolationReason = decided.Agent.Isolation()
	return nil
}

// sandbox says what isolates an agent that is a command.
func (p Plan) sandbox() string {
	if p.Isolation == spec.SandboxNone {
		out := "none: " + p.IsolationReason
		if p.Spec.Agent.Sandbox == "" && len(p.Spec.Agent.After) == 0 && p.Spec.Grader.Type != spec.GraderHarbor {
			out += "; the machine that prepares the run decides"
		}
		return out
	}
	a := p.agent
	reach := append([]string{"its model"}, a.ToolServers...)
	isolation := p.Isolation
	if isolation == spec.SandboxContainer {
		isolation = fmt.Sprintf("container (%s)", cmp.Or(p.IsolationReason, "image "+a.Image))
	}
	out := fmt.Sprintf("%s: reaches only %s; at most %d processes and threads, files of %d MiB", isolation, strings.Join(append(reach, a.Network...), ", "),
		a.Limits.Processes, a.Limits.FileBytes>>20)
	if a.Limits.CPUSeconds > 0 {
		out += fmt.Sprintf(", %g s of processor time", a.Limits.CPUSeconds)
	}
	if p.Spec.Agent.Sandbox == "" {
		out += "; agent.sandbox: none turns it off"
	}
	return out
}
