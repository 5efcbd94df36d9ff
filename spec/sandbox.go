package spec

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// The values of agent.sandbox.
const (
	// SandboxProcess isolates an agent.
	SandboxProcess = "process"
	// SandboxNone does not.
	SandboxNone = "none"
)

// maxNetwork bounds agent.network: each entry is a listener in each sandbox.
const maxNetwork = 64

// Isolation says what isolates the agent of a run, by the spec that the run has recorded:
// SandboxProcess, or SandboxNone and the reason. An agent that is not a command runs
// elsewhere. For it, both are empty.
func (a Agent) Isolation() (isolation, reason string) {
	switch {
	case len(a.Command) == 0:
		return "", ""
	case a.Sandbox == "": // no run that is prepared leaves it out
		return SandboxNone, "no run was prepared with it"
	case a.Sandbox == SandboxNone && a.SandboxReason == "":
		return SandboxNone, "the spec says agent.sandbox: none"
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
	for i, path := range a.Writable {
		if strings.TrimSpace(path) == "" || strings.ContainsRune(path, 0) || filepath.Clean(path) == "/" {
			f.add(fmt.Sprintf("agent.writable[%d]", i), "give a file or directory below agent.directory, or an absolute path", "%q is no path to open for an agent", path)
		}
	}
	least := 0 // these limits get their defaults once the sandbox is decided
	if a.Sandbox == SandboxProcess {
		least = 1
	}
	f.whole("agent.limits.processes", a.Limits.Processes, least, 1e6)
	f.whole("agent.limits.file_bytes", a.Limits.FileBytes, least, 1<<50)
	f.number("agent.limits.cpu_seconds", a.Limits.CPUSeconds, bounds.Between(0, 7*24*3600))
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
