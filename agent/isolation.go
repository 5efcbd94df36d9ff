package agent

import (
	"fmt"
	"path/filepath"

	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/sandbox"
)

// Isolation says what a command in a sandbox sees and reaches beside its home, its working
// directory and its model.
type Isolation struct {
	// Reach lists HOST:PORT of other servers.
	Reach []string
	// Servers lists URLs of other servers.
	Servers []string
	// Writable lists paths that may be written, relative to the working directory.
	Writable []string
	// Hidden lists absolute paths that the command can't see, beside those of
	// sandbox.Secrets and the homes of other rollouts.
	Hidden []string
	// Container puts the command into a container; nil does not.
	Container *Container
}

// Container says in which container a command runs.
type Container struct {
	// Program is podman or docker.
	Program string
	// Image is the ID of the image, and Name what agent.image calls it.
	Image, Name string
}

// policy returns the policy for a job.
func (i Isolation) policy(job Job, home, directory string) (*sandbox.Policy, error) {
	p := &sandbox.Policy{Home: home, Directory: directory, Limits: sandbox.Limits{Processes: job.Limits.Processes, CPU: job.Limits.CPU, FileBytes: job.Limits.FileBytes}}
	model, err := sandbox.RouteOf(job.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("isolate the agent: its base URL: %w", err)
	}
	p.Routes = append(p.Routes, model)
	for n, url := range i.Servers {
		r, err := sandbox.RouteOf(url)
		if err != nil {
			return nil, fmt.Errorf("isolate the agent: agent.tool_servers[%d]: %w", n, err)
		}
		p.Routes = append(p.Routes, r)
	}
	for n, text := range i.Reach {
		r, err := sandbox.ParseRoute(text)
		if err != nil {
			return nil, fmt.Errorf("isolate the agent: agent.network[%d]: %w", n, err)
		}
		p.Routes = append(p.Routes, r)
	}
	for _, path := range i.Writable {
		if !filepath.IsAbs(path) {
			path = filepath.Join(directory, path)
		}
		p.Writable = append(p.Writable, path)
	}
	p.Hidden = append(append(p.Hidden, filepath.Dir(home)), i.Hidden...)
	if i.Container != nil {
		p.Container = &sandbox.Container{
			Program: i.Container.Program, Image: i.Container.Image, ImageName: i.Container.Name, Attempt: job.Address.String(), Memory: job.Limits.MemoryBytes,
			Environment: container.Environment(),
		}
	}
	return p, nil
}
