package sandbox

import "github.com/fulgurite/fulgurite/agent/container"

// Container says in which container of podman a program runs. Its files are then those of
// the image, and of the machine only the paths of the policy.
type Container struct {
	// Image is the ID of the image, ImageName what a person calls it.
	Image     string `json:"image"`
	ImageName string `json:"image_name,omitempty"`
	// Attempt is the address of the attempt. A container without one is only a check.
	Attempt string `json:"attempt,omitempty"`
	// Memory is the limit of the program's memory in bytes, 0 if there is none.
	Memory int64 `json:"memory,omitempty"`
	// Environment are the variables for podman itself.
	Environment []string `json:"environment,omitempty"`
}

// podman returns the podman that runs the container.
func (c *Container) podman() container.Podman {
	return container.Podman{Environment: c.Environment}
}

// Kind names the kind of sandbox that a policy asks for, as agent.sandbox does.
func (p Policy) Kind() string {
	if p.Container != nil {
		return "container"
	}
	return "process"
}
