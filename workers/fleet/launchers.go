package fleet

import (
	"errors"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
)

// Launchers makes the launcher that a spec's agent section asks for. The functions of
// this process can be named by a spec.
type Launchers agent.Registry

// Launcher implements activities.Launchers.
func (l Launchers) Launcher(s spec.Spec) (agent.Launcher, error) {
	return HomeLaunchers{Functions: agent.Registry(l)}.Launcher(s)
}

// HomeLaunchers are Launchers whose rollouts have their homes below a directory.
type HomeLaunchers struct {
	Functions agent.Registry
	// Scratch is that directory; by default agent.Command's.
	Scratch string
}

// Launcher implements activities.Launchers.
func (l HomeLaunchers) Launcher(s spec.Spec) (agent.Launcher, error) {
	inner, err := l.inner(s.Agent)
	if err != nil {
		return nil, err
	}
	inner = agent.WithToolServers(inner, s.Agent.ToolServers)
	if s.Grader.Type == spec.GraderHarbor {
		inner = agent.InWorkspace(inner, workspaces{s}, l.Scratch)
	}
	if len(s.Agent.Before)+len(s.Agent.After) == 0 {
		return inner, nil
	}
	return agent.Around(inner, agent.HookCommands(s.Agent.Before, s.Agent.After), l.Scratch), nil
}

func (l HomeLaunchers) inner(a spec.Agent) (agent.Launcher, error) {
	switch {
	case a.Func != "":
		return l.Functions.Launcher(a.Func)
	case a.Service != nil:
		return agent.Service{URL: a.Service.URL, Headers: a.Service.Headers, SecretHeaders: a.Service.SecretHeaders}, nil
	case a.Temporal != nil:
		return nil, errors.New("only the workflow of a rollout can start agent.temporal")
	}
	return agent.Command{Args: a.Command, Scratch: l.Scratch}, nil
}
