package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
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

// Container says in which container of podman a command runs.
type Container struct {
	// Image is the ID of the image, and Name what agent.image calls it.
	Image, Name string
}

// policy returns the policy for a job, and the job with the base URL at which the command
// reaches its model.
func (i Isolation) policy(job Job, home, directory string) (Job, *sandbox.Policy, error) {
	p := &sandbox.Policy{Home: home, Directory: directory, Limits: sandbox.Limits{Processes: job.Limits.Processes, CPU: job.Limits.CPU, FileBytes: job.Limits.FileBytes}}
	model, err := sandbox.RouteOf(job.BaseURL)
	if err == nil && i.Container != nil {
		job.BaseURL, model, err = withName(job.BaseURL, model)
	}
	if err != nil {
		return job, nil, fmt.Errorf("isolate the agent: its base URL: %w", err)
	}
	p.Routes = append(p.Routes, model)
	for n, address := range i.Servers {
		r, err := sandbox.RouteOf(address)
		if err != nil {
			return job, nil, fmt.Errorf("isolate the agent: agent.tool_servers[%d]: %w", n, err)
		}
		p.Routes = append(p.Routes, r)
	}
	for n, text := range i.Reach {
		r, err := sandbox.ParseRoute(text)
		if err != nil {
			return job, nil, fmt.Errorf("isolate the agent: agent.network[%d]: %w", n, err)
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
			Image: i.Container.Image, ImageName: i.Container.Name, Attempt: job.Address.String(), Memory: job.Limits.MemoryBytes,
			Environment: container.Environment(),
		}
	}
	return job, p, nil
}

// modelHost is the name of a gateway that has only an address, for agents in containers.
const modelHost = "model.fulgurite.internal"

// withName returns the URL and the route of a model for a command in a container. The
// loopback interface there can't have the address of another machine, so that gets a name.
func withName(base string, r sandbox.Route) (string, sandbox.Route, error) {
	if ip, err := netip.ParseAddr(r.Host); err != nil || ip.IsLoopback() {
		return base, r, nil
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", r, errors.New("it is not a URL")
	}
	if u.Scheme != "http" { // a certificate is for the address
		return "", r, fmt.Errorf("agent.sandbox: container: an agent in a container can't reach the address %s by HTTPS: announce the gateway by a name", r.Host)
	}
	r.At, r.Host = r.Host, modelHost
	u.Host = r.String()
	return u.String(), r, nil
}
