package spec

import (
	"fmt"
	"math"
	"net/textproto"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// maxVariable is Linux's MAX_ARG_STRLEN: the bytes of one variable or argument with the zero
// at its end. maxEnvironment keeps a spec below what Temporal takes as an input, 2 MB.
const (
	maxVariable    = 128 << 10
	maxEnvironment = 1 << 20
)

// Agent says how to run the agent. Exactly one of Func, Command, Service and
// Temporal is given.
type Agent struct {
	// Func is the name of a Go function that is registered in the worker.
	Func string `json:"func,omitempty"`
	// Command is a program and its arguments. The worker runs it once for each attempt; no
	// shell reads it.
	Command []string `json:"command,omitempty"`
	// Service is an agent that runs all the time, as an HTTP service.
	Service *Service `json:"service,omitempty"`
	// Temporal is an agent that is a workflow or an activity in your own Temporal worker.
	Temporal *Temporal `json:"temporal,omitempty"`
	// Before is a program and its arguments. The worker runs it before each attempt. Not
	// with agent.temporal.
	Before []string `json:"before,omitempty"`
	// After is a program and its arguments. The worker runs it after each attempt, however
	// the attempt ended. Not with agent.temporal.
	After []string `json:"after,omitempty"`
	// ToolServers lists URLs at which the servers of the agent's tools answer GET with a
	// status of success (2xx) while they are up. The worker asks before and after each
	// attempt; an attempt during which a server was away does not count. Not with
	// agent.temporal.
	ToolServers []string `json:"tool_servers,omitempty"`
	// Directory is the working directory of agent.command. Absent means the directory of
	// the spec file.
	Directory string `json:"directory,omitempty"`
	// Environment holds variables for agent.command. Of the worker's own variables, the
	// command gets only PATH.
	Environment map[string]string `json:"environment,omitempty"`
	// SecretEnvironment holds variables for agent.command, too. Each is given by the name of
	// an environment variable of the worker that holds its value.
	SecretEnvironment map[string]string `json:"secret_environment,omitempty"`
	// Sandbox isolates agent.command if it is "process": it sees and signals only its own
	// processes, reads no secrets of the worker, writes only its home and agent.writable, and
	// reaches only its model, the hosts of agent.tool_servers, and agent.network. It needs
	// Linux. "container" runs it in a container of agent.image by podman, which shows of the
	// machine only its home, agent.directory and agent.writable. "none" does not isolate. Absent means
	// "process" if the machine that prepares the run can isolate and nothing in the spec
	// forbids it, and "none" otherwise. The run records which it is.
	Sandbox string `json:"sandbox,omitempty"`
	// SandboxReason says why the agent is not isolated, for plan, status and report. A run that
	// is prepared without agent.sandbox records its own reason here. Only with agent.sandbox:
	// none.
	SandboxReason string `json:"sandbox_reason,omitempty"`
	// Image is the name of the image in which the agent runs. Workers must have it: nothing is
	// pulled or built. Required with agent.sandbox: container, and only with it.
	Image string `json:"image,omitempty"`
	// ImageID is the ID of agent.image: "sha256:" and the digest of its configuration. Absent
	// means the image that has the name when the run is prepared, which the run records. Only
	// with agent.sandbox: container.
	ImageID string `json:"image_id,omitempty"`
	// Network lists HOST:PORT of what an isolated agent reaches beside its model and the hosts
	// of agent.tool_servers. A host is a name or an IPv4 address. Not with agent.sandbox: none.
	Network []string `json:"network,omitempty"`
	// Writable lists paths that an isolated agent may write beside its home, relative to
	// agent.directory. They must exist. Not with agent.sandbox: none.
	Writable []string `json:"writable,omitempty"`
	// Queue is the task queue of the workers that run the agent. Not with agent.temporal.
	Queue string `json:"queue,omitempty"`
	// FailureReward is the reward of an attempt whose agent failed by itself: by an error,
	// a bad exit status, or because it exceeded its limits.
	FailureReward float64 `json:"failure_reward,omitempty"`
	// Limits are the limits of one attempt. An attempt that exceeds one of them is ended.
	Limits AgentLimits `json:"limits,omitzero"`
}

// Service is an agent that runs as an HTTP service.
type Service struct {
	// URL is the address of the service. It takes a task by POST and answers with the
	// result.
	URL string `json:"url"`
	// Headers are HTTP headers that are added to each request to the service.
	Headers map[string]string `json:"headers,omitempty"`
	// SecretHeaders are HTTP headers that are added, too. Each is given by the name of an
	// environment variable that holds its value. The worker that runs the agent reads it.
	SecretHeaders map[string]string `json:"secret_headers,omitempty"`
}

// Temporal is an agent that is a workflow or an activity, in any language. Exactly
// one of Workflow and Activity is given.
type Temporal struct {
	// Workflow is the type of a workflow, which is started as a child. Give this or
	// activity.
	Workflow string `json:"workflow,omitempty"`
	// Activity is the type of an activity. Give this or workflow.
	Activity string `json:"activity,omitempty"`
	// Queue is the task queue of the workers that run this workflow or activity.
	Queue string `json:"queue"`
}

// AgentLimits holds the limits of one attempt. An attempt that exceeds one of them is
// ended.
type AgentLimits struct {
	// Calls is the largest number of model calls in one attempt.
	Calls int `json:"calls,omitempty"`
	// Tokens is the largest number of sampled tokens in one attempt. 0, the default, means
	// no limit.
	Tokens int `json:"tokens,omitempty"`
	// Seconds is the longest wall-clock time of one attempt, in seconds.
	Seconds float64 `json:"seconds,omitempty"`
	// OutputBytes is the largest number of bytes that agent.command may write to standard
	// output and standard error together.
	OutputBytes int `json:"output_bytes,omitempty"`
	// MemoryBytes is the largest resident memory, in bytes, of agent.command and all
	// processes that it starts.
	MemoryBytes int `json:"memory_bytes,omitempty"`
	// Processes is the largest number of processes and threads of an isolated agent at one
	// time. Not with agent.sandbox: none.
	Processes int `json:"processes,omitempty"`
	// CPUSeconds is the most processor time, in seconds, of all processes of an isolated agent
	// together. 0, the default, means no limit. Not with agent.sandbox: none.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// FileBytes is the largest size, in bytes, of a file that an isolated agent writes. Not
	// with agent.sandbox: none.
	FileBytes int `json:"file_bytes,omitempty"`
	// IdleSeconds is the longest time, in seconds, without a model call or output. 0, the
	// default, means no limit. After the first such hang, the attempt is made again. If
	// the agent hangs at the same place again, that is the agent's failure. Not with
	// agent.temporal.workflow.
	IdleSeconds float64 `json:"idle_seconds,omitempty"`
}

func (a Agent) check(f *Faults) {
	kinds := a.kinds()
	switch {
	case len(kinds) == 0:
		f.add("agent", "give agent.func, agent.command, agent.service or agent.temporal", "no agent")
	case len(kinds) > 1:
		f.add("agent", "keep one of agent."+strings.Join(kinds, " and agent."), "both %s", strings.Join(kinds, " and "))
	case kinds[0] != "command":
		why := map[string]string{
			"func": "agent.func runs inside the worker", "service": "agent.service runs by itself", "temporal": "agent.temporal runs in your own worker",
		}[kinds[0]]
		f.unused("agent.directory", a.Directory != "", why)
		f.unused("agent.environment", len(a.Environment) > 0, why)
		f.unused("agent.secret_environment", len(a.SecretEnvironment) > 0, why)
		f.unused("agent.limits.output_bytes", a.Limits.OutputBytes != 0, why)
		f.unused("agent.limits.memory_bytes", a.Limits.MemoryBytes != 0, why)
		f.unused("agent.sandbox", a.Sandbox != "", why+", and only agent.command can be isolated")
	}
	a.checkSandbox(f)
	f.name("agent.func", a.Func)
	f.program("agent.command", a.Command)
	f.program("agent.before", a.Before)
	f.program("agent.after", a.After)
	for i, address := range a.ToolServers {
		key := fmt.Sprintf("agent.tool_servers[%d]", i)
		f.url(key, address)
		if slices.Contains(a.ToolServers[:i], address) {
			f.add(key, "remove it", "%s is given twice", withoutCredentials(address))
		}
	}
	if a.Service != nil {
		a.Service.check(f)
	}
	if a.Temporal != nil {
		a.Temporal.check(f)
		f.unused("agent.queue", a.Queue != "" && a.Queue != defaultQueue, "agent.temporal runs on agent.temporal.queue")
		f.unused("agent.limits.idle_seconds", a.Limits.IdleSeconds != 0 && a.Temporal.Activity == "", "a workflow shows no signs of life")
		f.unused("agent.before", len(a.Before) > 0, "agent.temporal runs in your own worker")
		f.unused("agent.tool_servers", len(a.ToolServers) > 0, "agent.temporal runs in your own worker")
		f.unused("agent.after", len(a.After) > 0, "agent.temporal runs in your own worker")
	}
	total := 0
	for _, name := range sortedKeys(a.Environment) {
		size := len(name) + len("=") + len(a.Environment[name])
		if total += size; size >= maxVariable {
			f.add("agent.environment."+name, "put it into a file, and give the file's path", "its %d bytes are more than Linux gives to a program in one variable, %d", size, maxVariable-1)
		}
	}
	if total > maxEnvironment {
		f.add("agent.environment", "put large values into files, and give their paths", "its %d bytes are more than %d", total, maxEnvironment)
	}
	for _, name := range sortedKeys(a.Environment) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(a.Environment[name], 0) {
			f.add("agent.environment."+name, "names have no '=', and neither names nor values a zero byte", "no environment variable")
		}
	}
	for _, name := range sortedKeys(a.SecretEnvironment) {
		key := "agent.secret_environment." + name
		_, twice := a.Environment[name]
		switch {
		case !variableName.MatchString(name):
			f.add(key, "give the name of a variable for the command, such as SEARCH_KEY", "no environment variable")
		case !variableName.MatchString(a.SecretEnvironment[name]):
			f.add(key, "give the name of a variable in the worker's environment, such as SEARCH_KEY, and never the secret itself", "no name of an environment variable")
		case twice:
			f.add(key, "keep one of both", "agent.environment.%s is the same variable", name)
		}
		f.ofFleet(key, a.SecretEnvironment[name])
	}
	if a.Queue != "" {
		f.queue("agent.queue", a.Queue)
	}
	f.number("agent.failure_reward", a.FailureReward, bounds.Between(math.Inf(-1), math.Inf(1)))
	f.whole("agent.limits.calls", a.Limits.Calls, 1, 1e6)
	f.whole("agent.limits.tokens", a.Limits.Tokens, 0, 1e9)
	f.number("agent.limits.seconds", a.Limits.Seconds, bounds.Positive(7*24*3600))
	f.number("agent.limits.idle_seconds", a.Limits.IdleSeconds, bounds.Between(0, 7*24*3600))
	if len(a.Command) > 0 {
		f.whole("agent.limits.output_bytes", a.Limits.OutputBytes, 1, 1<<30)
		f.whole("agent.limits.memory_bytes", a.Limits.MemoryBytes, 1<<20, 1<<50)
	}
}

// kinds returns the ways to run the agent that the spec gives.
func (a Agent) kinds() []string {
	var kinds []string
	for _, k := range []struct {
		name  string
		given bool
	}{{"func", a.Func != ""}, {"command", len(a.Command) > 0}, {"service", a.Service != nil}, {"temporal", a.Temporal != nil}} {
		if k.given {
			kinds = append(kinds, k.name)
		}
	}
	return kinds
}

func (s Service) check(f *Faults) {
	f.url("agent.service.url", s.URL)
	seen := map[string]string{}
	for _, of := range []struct {
		key     string
		headers map[string]string
	}{{"agent.service.headers.", s.Headers}, {"agent.service.secret_headers.", s.SecretHeaders}} {
		for _, name := range sortedKeys(of.headers) {
			key := of.key + name
			if name == "" || strings.ContainsAny(name, " :\t\r\n\x00") || strings.ContainsAny(of.headers[name], "\r\n\x00") {
				f.add(key, "give a name without spaces and colons, and a value of one line", "no header")
			}
			canonical := textproto.CanonicalMIMEHeaderKey(name)
			if slices.Contains(workerHeaders(), canonical) {
				f.add(key, "remove it", "the worker sets this header itself")
			}
			if other := seen[canonical]; other != "" {
				f.add(key, "keep one of both", "%s is the same header", other)
			}
			seen[canonical] = key
		}
	}
	for _, name := range sortedKeys(s.SecretHeaders) {
		if variable := s.SecretHeaders[name]; !variableName.MatchString(variable) {
			f.add("agent.service.secret_headers."+name, "give the name of a variable in the worker's environment, such as AGENT_TOKEN", "no environment variable")
		}
		f.ofFleet("agent.service.secret_headers."+name, s.SecretHeaders[name])
	}
}

// workerHeaders are the headers that describe the request itself.
func workerHeaders() []string {
	return []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Idempotency-Key", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

func (t Temporal) check(f *Faults) {
	switch {
	case t.Workflow == "" && t.Activity == "":
		f.add("agent.temporal", "give agent.temporal.workflow or agent.temporal.activity", "neither workflow nor activity")
	case t.Workflow != "" && t.Activity != "":
		f.add("agent.temporal", "keep one of agent.temporal.workflow and agent.temporal.activity", "both workflow and activity")
	}
	f.name("agent.temporal.workflow", t.Workflow)
	f.name("agent.temporal.activity", t.Activity)
	switch t.Queue {
	case "":
		f.add("agent.temporal.queue", "give the task queue of your worker", "missing")
	case defaultQueue:
		f.add("agent.temporal.queue", "give the task queue of your worker", "Fulgurite's own workers poll this queue for other work")
	default:
		f.queue("agent.temporal.queue", t.Queue)
	}
}

// Kind returns "an activity" or "a workflow", whichever the agent is.
func (t Temporal) Kind() string {
	if t.Activity != "" {
		return "an activity"
	}
	return "a workflow"
}

// WithoutSecrets returns s without the agent's environment and the headers of its service.
// They may be secret and only the worker that runs the agent needs them, but Temporal
// shows its payloads to everyone who has access. It also leaves out the texts of prompts,
// which are long and which no workflow needs.
func (s Spec) WithoutSecrets() Spec {
	s.Prompts = nil
	s.Agent.Environment = nil
	if s.Agent.Service != nil {
		service := *s.Agent.Service
		service.Headers = nil
		s.Agent.Service = &service
	}
	return s
}
