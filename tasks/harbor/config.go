package harbor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

// Config has the supported keys of a task.toml. Unknown keys are ignored, as Harbor does.
type Config struct {
	Agent       Agent          `toml:"agent"`
	Verifier    Verifier       `toml:"verifier"`
	Environment Environment    `toml:"environment"`
	Steps       []any          `toml:"steps"`
	Metadata    map[string]any `toml:"metadata"`
}

// Agent is the table [agent].
type Agent struct {
	Seconds float64 `toml:"timeout_sec"` // 0 means that the task has no limit
	User    any     `toml:"user"`        // a name or a number, for what runs in a container
	Network
}

// Verifier is the table [verifier].
type Verifier struct {
	Seconds     float64           `toml:"timeout_sec"`
	Environment map[string]string `toml:"env"`
	User        any               `toml:"user"`
	Mode        string            `toml:"environment_mode"`
	Separate    map[string]any    `toml:"environment"`
	Collect     []any             `toml:"collect"`
	Network
}

// Environment is the table [environment].
type Environment struct {
	BuildSeconds float64           `toml:"build_timeout_sec"`
	Image        string            `toml:"docker_image"`
	System       string            `toml:"os"`
	Processors   float64           `toml:"cpus"`
	MemoryMB     int               `toml:"memory_mb"`
	Memory       string            `toml:"memory"` // in the first version of the schema, such as "2G"
	GPUs         int               `toml:"gpus"`
	TPU          map[string]any    `toml:"tpu"`
	Servers      []any             `toml:"mcp_servers"`
	Variables    map[string]string `toml:"env"`
	HealthCheck  map[string]any    `toml:"healthcheck"`
	Directory    string            `toml:"workdir"`
	Internet     *bool             `toml:"allow_internet"`
	Network
}

// Network defines which hosts a phase may reach.
type Network struct {
	Mode  string   `toml:"network_mode"`
	Hosts []string `toml:"allowed_hosts"`
}

// Network modes of Harbor. It also has "allowlist", which is not supported here.
const (
	public    = "public"
	noNetwork = "no-network"
)

const (
	verifierSeconds = 600
	buildSeconds    = 600
	// longestSeconds is the largest time limit.
	longestSeconds = 24 * 3600
)

// readConfig reads a task.toml and sets defaults for missing keys.
func readConfig(path string) (Config, error) {
	c := Config{Verifier: Verifier{Seconds: verifierSeconds}, Environment: Environment{BuildSeconds: buildSeconds}}
	data, err := textfile.Read(path)
	if err != nil {
		return c, err
	}
	if _, err := toml.Decode(string(data), &c); err != nil {
		return c, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "toml: "))
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// check returns an error for a value that makes no sense in any workspace. It also sets
// MemoryMB from Memory if only that is given.
func (c *Config) check() error {
	e := &c.Environment
	for key, seconds := range map[string]float64{
		"agent.timeout_sec": c.Agent.Seconds, "verifier.timeout_sec": c.Verifier.Seconds, "environment.build_timeout_sec": e.BuildSeconds,
	} {
		if math.IsNaN(seconds) || seconds < 0 || seconds > longestSeconds || seconds == 0 && key != "agent.timeout_sec" {
			return fmt.Errorf("%s is %v: give seconds of more than 0 and at most %d", key, seconds, longestSeconds)
		}
	}
	if math.IsNaN(e.Processors) || math.IsInf(e.Processors, 0) || e.Processors < 0 {
		return fmt.Errorf("environment.cpus is %v: give a number of more than 0", e.Processors)
	}
	if e.Memory != "" && e.MemoryMB == 0 {
		size, err := megabytes(e.Memory)
		if err != nil {
			return fmt.Errorf("environment.memory: %w", err)
		}
		e.MemoryMB = size
	}
	if e.MemoryMB < 0 {
		return fmt.Errorf("environment.memory_mb is %d: give a number of more than 0", e.MemoryMB)
	}
	if e.Directory != "" && !strings.HasPrefix(e.Directory, "/") {
		return fmt.Errorf("environment.workdir is %q: give an absolute path", e.Directory)
	}
	for _, n := range []struct {
		key  string
		mode string
	}{{"environment", e.Mode}, {"agent", c.Agent.Mode}, {"verifier", c.Verifier.Network.Mode}} {
		if n.mode != "" && !slices.Contains([]string{public, noNetwork, "allowlist"}, n.mode) {
			return fmt.Errorf("%s.network_mode is %q: give %q, %q or \"allowlist\"", n.key, n.mode, public, noNetwork)
		}
	}
	return nil
}

// offline reports whether the environment may reach no network.
func (e Environment) offline() bool {
	return e.Mode == noNetwork || e.Mode == "" && e.Internet != nil && !*e.Internet
}

// megabytes reads a size such as "512M" or "2G".
func megabytes(text string) (int, error) {
	units := map[string]float64{"K": 1.0 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
	upper := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(text)), "B"), "I")
	for unit, size := range units {
		if number, found := strings.CutSuffix(upper, unit); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err == nil && v > 0 && v*size >= 1 && v*size < math.MaxInt32 {
				return int(v * size), nil
			}
		}
	}
	return 0, fmt.Errorf("%q is not a size: give one such as 512M or 2G", text)
}

// unsupported returns the keys of a task that no workspace here supports, each with the
// reason.
func (c Config) unsupported() []string {
	var out []string
	add := func(no bool, why string) {
		if no {
			out = append(out, why)
		}
	}
	e := c.Environment
	add(len(c.Steps) > 0, "steps: tasks of several steps can't be attempted here")
	add(e.System != "" && !strings.EqualFold(e.System, "linux"), "environment.os: only linux is supported")
	add(e.GPUs > 0, "environment.gpus: workspaces have none")
	add(len(e.TPU) > 0, "environment.tpu: workspaces have none")
	add(len(e.Servers) > 0, "environment.mcp_servers: start them yourself, and name them in agent.tool_servers")
	add(len(e.HealthCheck) > 0, "environment.healthcheck: workspaces start no service")
	add(c.Verifier.Mode != "" && c.Verifier.Mode != "shared" || len(c.Verifier.Separate) > 0, `verifier.environment_mode: only "shared" is supported`)
	add(len(c.Verifier.Collect) > 0, "verifier.collect: hooks are not supported")
	for _, n := range []struct {
		key string
		Network
	}{{"environment", e.Network}, {"agent", c.Agent.Network}, {"verifier", c.Verifier.Network}} {
		add(n.Mode == "allowlist" || len(n.Hosts) > 0, n.key+".allowed_hosts: a network is either open or closed here")
		add(n.key != "environment" && n.Mode != "" && (n.Mode == noNetwork) != e.offline(), n.key+".network_mode: it is the environment's here")
	}
	return out
}

// user returns the user of a phase in the form of docker's option. It is empty for the
// image's own user.
func user(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}
