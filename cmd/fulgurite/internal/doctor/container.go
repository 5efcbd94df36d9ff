package doctor

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Container says what runs containers of agents on this machine.
type Container struct {
	// Program is podman or docker.
	Program string `json:"program"`
	Version string `json:"version"`
	// Image is the ID of the agent's image, if a spec names one.
	Image string `json:"image,omitempty"`
}

// findContainer finds podman or docker. For an agent that runs in a container, it also
// starts an empty container of its image.
func findContainer(a *spec.Agent) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		program := ""
		if a != nil {
			program = a.Container
		}
		engine, err := container.Find(ctx, program)
		f := Finding{Subject: "container", State: unless(a != nil)}
		if err != nil {
			f.Text = fmt.Sprintf("none: no attempt with agent.sandbox: container runs here: %v", err)
			if a != nil {
				f.Fix = []string{"install podman, which needs no daemon, or start docker's"}
			}
			return []Finding{f}
		}
		facts := Container{Program: engine.Program, Version: engine.Version}
		if a == nil {
			f.State, f.Text, f.Facts = Found, engine.String()+" for agent.sandbox: container", facts
			return []Finding{f}
		}
		if _, facts.Image, err = fleet.FindContainer(ctx, *a); err == nil {
			err = sandbox.CheckContainer(ctx, sandbox.Container{Program: engine.Program, Image: facts.Image, ImageName: a.Image, Attempt: "doctor", Environment: container.Environment()})
		}
		if err != nil {
			f.Text = fmt.Sprintf("%s runs no attempt of agent.image %s: %v", engine, a.Image, err)
			return []Finding{f}
		}
		f.State, f.Text, f.Facts = Found, fmt.Sprintf("%s runs agent.image %s, %s", engine, a.Image, facts.Image), facts
		return []Finding{f}
	}
}
