package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/gomlx"
	"github.com/fulgurite/fulgurite/model/native"
	"github.com/fulgurite/fulgurite/spec"
)

// EngineNames are the engines that are compiled in.
func EngineNames() []string { return []string{"native", "gomlx"} }

// Engines finds an engine by its name in a spec.
func Engines(name string) (model.Engine, error) {
	switch name {
	case "native":
		return native.New(native.Options{}), nil
	case "gomlx":
		return gomlx.New(gomlx.Options{})
	}
	return nil, fmt.Errorf("engine %q: there are %s", name, strings.Join(EngineNames(), " and "))
}

// OnlyEngines is Engines for a process that has but some of them.
func OnlyEngines(names []string) func(name string) (model.Engine, error) {
	return func(name string) (model.Engine, error) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("engine %q: this worker has %s", name, strings.Join(names, " and "))
		}
		return Engines(name)
	}
}

// Launchers makes what a spec's agent section asks for, out of the functions
// of this process.
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
	if err != nil || len(s.Agent.Before)+len(s.Agent.After) == 0 {
		return inner, err
	}
	return agent.Around(inner, agent.HookCommands(s.Agent.Before, s.Agent.After), l.Scratch), nil
}

func (l HomeLaunchers) inner(a spec.Agent) (agent.Launcher, error) {
	switch {
	case a.Func != "":
		return l.Functions.Launcher(a.Func)
	case a.Service != nil:
		return agent.Service{URL: a.Service.URL, Headers: a.Service.Headers}, nil
	case a.Temporal != nil:
		return nil, errors.New("agent.temporal is started by the workflow of a rollout, and by nothing else")
	}
	return agent.Command{Args: a.Command, Scratch: l.Scratch}, nil
}
