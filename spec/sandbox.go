package spec

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// The values of agent.sandbox.
const (
	// SandboxProcess isolates an agent by namespaces.
	SandboxProcess = "process"
	// SandboxContainer isolates it in a container of an image.
	SandboxContainer = "container"
	// SandboxNone does not.
	SandboxNone = "none"
)

// maxNetwork bounds agent.network: each entry is a listener in each sandbox.
const maxNetwork = 64

// Isolation says what isolates the agent of a run, by the spec that the run has recorded:
// SandboxProcess, SandboxContainer and the image, or SandboxNone and the reason. An agent
// that is not a command runs elsewhere. For it, both are empty.
func (a Agent) Isolation() (isolation, reason string) {
	switch {
	case len(a.Command) == 0:
		return "", ""
	case a.Sandbox == "": // no run that is prepared leaves it out
		return SandboxNone, "no run was prepared with it"
	case a.Sandbox == SandboxNone && a.SandboxReason == "":
		return SandboxNone, "the spec says agent.sandbox: none"
	case a.Sandbox == SandboxContainer && a.ImageID != "":
		return SandboxContainer, fmt.Sprintf("podman, image %s, %s", a.Image, a.ImageID)
	}
	return a.Sandbox, a.SandboxReason
}

// NeedsSandbox reports whether a run with this agent needs a machine that can isolate: the
// spec says so, or has a key that holds only for isolated agents.
func (a Agent) NeedsSandbox() bool {
	f := &Faults{}
	a.refuseIsolationKeys(f, "", "")
	return a.Sandbox == SandboxProcess || a.Sandbox == "" && len(f.List) > 0
}

// isolated reports whether the spec says that the agent is isolated.
func (a Agent) isolated() bool { return a.Sandbox == SandboxProcess || a.Sandbox == SandboxContainer }

// DecideContainer returns s with the ID of the image, if its agent runs in a container and
// the spec left that out. find returns it for what the spec says; it is called only if the
// answer depends on that. So each attempt of a run has the same image, also if its name
// means another one later.
func (s Spec) DecideContainer(find func(Agent) (id string, err error)) (Spec, error) {
	if s.Agent.Sandbox != SandboxContainer || s.Agent.ImageID != "" {
		return s, nil
	}
	id, err := find(s.Agent)
	if err != nil {
		return s, err
	}
	s.Agent.ImageID = id
	return s, nil
}

// NoContainer returns the fault of a spec whose image can't be found where the run is
// prepared.
func (a Agent) NoContainer(err error) error {
	f := &Faults{}
	f.add("agent.image", "give the machine that prepares the run podman, as root, and the image (`podman load` or `podman pull`), or give agent.image_id", "%v", err)
	return f.err()
}

// DecideSandbox returns s with a value for agent.sandbox if it left that out and its agent is
// a command. The agent is isolated unless something in the spec forbids it or the machine
// can't. probe returns why the machine can't isolate a program, or "" if it can; it is called
// only if the answer depends on that. DecideSandbox returns *Faults if the machine can't
// isolate and s has keys that hold only for isolated agents.
//
// Digests are those of specs before this decision, so that they do not depend on the
// machine.
func (s Spec) DecideSandbox(probe func() (reason string, err error)) (Spec, error) {
	if len(s.Agent.Command) == 0 || s.Agent.Sandbox != "" {
		return s, nil
	}
	reason := s.forbidsSandbox()
	if reason == "" {
		var err error
		if reason, err = probe(); err != nil {
			return s, err
		}
		if reason != "" {
			f := &Faults{}
			s.Agent.refuseIsolationKeys(f, "give agent.sandbox: none and leave the key out, or let the machine isolate (`fulgurite doctor` says what that needs)",
				"holds only for isolated agents, and "+reason)
			if err := f.err(); err != nil {
				return s, err
			}
		}
	}
	s.Agent.Sandbox = SandboxProcess
	if reason != "" {
		s.Agent.Sandbox, s.Agent.SandboxReason = SandboxNone, strings.Join(strings.Fields(reason), " ") // one line
	}
	return s.WithDefaults(), nil // limits of isolated agents have defaults
}

// forbidsSandbox returns what in s forbids to isolate an agent that is a command, or "".
func (s Spec) forbidsSandbox() string {
	switch {
	case len(s.Agent.After) > 0:
		return "agent.after runs outside of any sandbox, in the home that the agent has filled"
	case s.Grader.Type == GraderHarbor:
		return `with grader.type "harbor" each task brings the place where the agent runs`
	}
	return ""
}

// refuseIsolationKeys adds a fault for each key of a that holds only for isolated agents.
func (a Agent) refuseIsolationKeys(f *Faults, remedy, message string) {
	for _, k := range []struct {
		key     string
		written bool
	}{
		{"agent.network", len(a.Network) > 0},
		{"agent.writable", len(a.Writable) > 0},
		{"agent.limits.processes", a.Limits.Processes != 0},
		{"agent.limits.cpu_seconds", a.Limits.CPUSeconds != 0},
		{"agent.limits.file_bytes", a.Limits.FileBytes != 0},
	} {
		if k.written {
			f.add(k.key, remedy, "%s", message)
		}
	}
}

// checkSandbox checks the keys of isolated agents.
func (a Agent) checkSandbox(f *Faults) {
	const after = "agent.after would run outside of the sandbox, in the home that the agent has filled"
	f.unused("agent.sandbox_reason", a.SandboxReason != "" && a.Sandbox != SandboxNone, "it says why an agent with agent.sandbox: none is not isolated")
	if strings.ContainsAny(a.SandboxReason, "\r\n") {
		f.add("agent.sandbox_reason", "give one line", "it has several lines")
	}
	a.checkContainer(f)
	why := ""
	switch {
	case len(a.Command) == 0 && a.Sandbox != "":
		return // refused already
	case len(a.Command) == 0:
		why = "only agent.command can be isolated"
	case a.Sandbox == SandboxNone:
		why = "with agent.sandbox: none the agent is not isolated"
	case a.Sandbox == "" && len(a.After) > 0:
		why = after + ", so the agent is not isolated"
	}
	if why != "" {
		a.refuseIsolationKeys(f, why+": remove the key", unusedKey)
		return
	}
	if a.Sandbox != "" {
		f.choice("agent.sandbox", a.Sandbox)
		f.unused("agent.after", len(a.After) > 0, "it would run outside of the sandbox, in the home that the agent has filled (agent.before of the next attempt can clear up)")
	}
	a.checkNetwork(f)
	if a.Sandbox == SandboxContainer {
		a.checkContainerNetwork(f)
	}
	for i, path := range a.Writable {
		if strings.TrimSpace(path) == "" || strings.ContainsRune(path, 0) || filepath.Clean(path) == "/" {
			f.add(fmt.Sprintf("agent.writable[%d]", i), "give a file or directory below agent.directory, or an absolute path", "%q is no path to open for an agent", path)
		}
	}
	least := 0 // these limits get their defaults once the sandbox is decided
	if a.isolated() {
		least = 1
	}
	f.whole("agent.limits.processes", a.Limits.Processes, least, 1e6)
	f.whole("agent.limits.file_bytes", a.Limits.FileBytes, least, 1<<50)
	f.number("agent.limits.cpu_seconds", a.Limits.CPUSeconds, bounds.Between(0, 7*24*3600))
}

// imageName is how an image is called: [host[:port]/]name[/name...][:tag][@digest], or an ID.
// To podman, another text is a fault like those that pass.
var imageName = regexp.MustCompile(`^([a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$`)

// checkContainer checks the keys of agents in containers.
func (a Agent) checkContainer(f *Faults) {
	if a.Sandbox != SandboxContainer {
		const why = "only an agent with agent.sandbox: container has an image"
		f.unused("agent.image", a.Image != "", why)
		f.unused("agent.image_id", a.ImageID != "", why)
		return
	}
	switch {
	case a.Image == "":
		f.add("agent.image", "give the name of an image, such as localhost/agent:1", "missing, and with agent.sandbox: container the agent runs in one")
	case !imageName.MatchString(a.Image):
		f.add("agent.image", "give the name of an image, such as localhost/agent:1", "%q names no image", a.Image)
	}
	if a.ImageID != "" && !sha256Digest.MatchString(a.ImageID) {
		f.add("agent.image_id", "give sha256: and 64 hexadecimal digits, as `podman image inspect --format {{.Id}}` shows them", "%q is no ID of an image", a.ImageID)
	}
}

// checkContainerNetwork refuses addresses that the loopback interface of a container can't
// have.
func (a Agent) checkContainerNetwork(f *Faults) {
	const remedy = "give a name in its place: an agent in a container has no address but those of its loopback interface"
	foreign := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return err == nil && ip.Is4() && !ip.IsLoopback()
	}
	for i, text := range a.Network {
		if host, _, err := net.SplitHostPort(text); err == nil && foreign(host) {
			f.add(fmt.Sprintf("agent.network[%d]", i), remedy, "%s can't be reached from a container", text)
		}
	}
	for i, text := range a.ToolServers {
		if u, err := url.Parse(text); err == nil && foreign(u.Hostname()) {
			f.add(fmt.Sprintf("agent.tool_servers[%d]", i), remedy, "%s can't be reached from a container", withoutCredentials(text))
		}
	}
}

func (a Agent) checkNetwork(f *Faults) {
	if len(a.Network) > maxNetwork {
		f.add("agent.network", "give fewer, or one proxy for all", "%d entries, at most %d are possible", len(a.Network), maxNetwork)
	}
	for i, text := range a.Network {
		key := fmt.Sprintf("agent.network[%d]", i)
		host, port, err := net.SplitHostPort(text)
		number, bad := strconv.ParseUint(port, 10, 16)
		ip, notIP := netip.ParseAddr(host)
		switch {
		case err != nil || host == "" || bad != nil || number == 0 || strings.ContainsAny(host, " \t\r\n#/@*"):
			f.add(key, "write HOST:PORT, such as api.example:443", "%q is no host and port", text)
		case notIP == nil && (!ip.Is4() || ip.IsUnspecified() || ip.IsMulticast()):
			f.add(key, "give a name or an IPv4 address", "%q has no IPv4 address of a host", text)
		case slices.Contains(a.Network[:i], text):
			f.add(key, "remove it", "%s is given twice", text)
		}
	}
}
