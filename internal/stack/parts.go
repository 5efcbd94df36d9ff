package stack

import (
	"context"
	"fmt"

	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/gomlx"
	"github.com/fulgurite/fulgurite/model/native"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Engines finds an engine by its name in a spec.
func Engines(name string) (model.Engine, error) {
	switch name {
	case "native":
		return native.New(native.Options{}), nil
	case "gomlx":
		return gomlx.New(gomlx.Options{})
	}
	return nil, fmt.Errorf("engine %q: there are native and gomlx", name)
}

// Launchers makes what a spec's agent section asks for, out of the functions
// of this process.
type Launchers agent.Registry

// Launcher implements activities.Launchers.
func (l Launchers) Launcher(s spec.Spec) (agent.Launcher, error) {
	if s.Agent.Func != "" {
		return agent.Registry(l).Launcher(s.Agent.Func)
	}
	return agent.Command{Args: s.Agent.Command}, nil
}

// cluster asks Temporal what it has registered.
type cluster struct {
	client    client.Client
	namespace string
}

func (c cluster) HasSearchAttributes(ctx context.Context) (bool, error) {
	r, err := c.client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: c.namespace})
	if err != nil {
		return false, err
	}
	for name := range workflows.SearchAttributes() {
		if _, ok := r.CustomAttributes[name]; !ok {
			return false, nil
		}
	}
	return true, nil
}
