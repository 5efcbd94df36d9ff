package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Container says what runs the containers of a spec's agent on this machine.
type Container struct {
	// Version is that of podman.
	Version string `json:"version"`
	// Image is the ID of the agent's image.
	Image string `json:"image"`
}

// findContainer finds podman and the image of an agent that runs in a container, and starts
// an empty container of that.
func findContainer(a spec.Agent) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		f := Finding{Subject: "container", State: Missing}
		podman, err := container.Find(ctx)
		if err != nil {
			f.Text = fmt.Sprintf("no attempt with agent.sandbox: container runs here: %v", err)
			if errors.Is(err, container.ErrUnavailable) {
				f.Fix = []string{"install podman and runc, and start the worker as root"}
			}
			return []Finding{f}
		}
		facts := Container{Version: podman.Version}
		if facts.Image, err = fleet.FindContainer(ctx, a); err == nil {
			err = sandbox.CheckContainer(ctx, sandbox.Container{Image: facts.Image, ImageName: a.Image, Environment: container.Environment()})
		}
		if err != nil {
			var faults *spec.Faults
			if errors.As(err, &faults) {
				f.Fix = append(f.Fix, "give this machine the image: `podman load` or `podman pull`")
			}
			f.Text = fmt.Sprintf("%s runs no attempt of agent.image %s: %v", podman, a.Image, err)
			return []Finding{f}
		}
		f.State, f.Text, f.Facts = Found, fmt.Sprintf("%s runs agent.image %s, %s", podman, a.Image, facts.Image), facts
		return []Finding{f}
	}
}
