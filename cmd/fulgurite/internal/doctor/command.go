// Package doctor looks at what this machine offers for training, compares it with what a
// spec needs, and says how to get what is missing. It changes nothing, except that it
// installs the Python environment of engine torch when asked to. Whether a run will learn
// is a question for `fulgurite plan` and `fulgurite try`.
package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite doctor`.
type Command struct {
	Spec         string            `arg:"" optional:"" help:"Spec file, YAML or JSON: say what it still needs." type:"path"`
	JSON         bool              `help:"Print JSON." name:"json"`
	For          string            `help:"What this machine is for: all, or in a fleet stack (all but training) or gpu (training alone)." enum:"all,stack,gpu" default:"all"`
	InstallTorch bool              `help:"Install the Python packages of engine torch first (some 5 GB), into torch below --dir." name:"install-torch"`
	TorchDir     string            `help:"Install them there instead." name:"torch-dir" placeholder:"DIR" type:"path"`
	Limit        time.Duration     `help:"Time limit of each check." default:"60s"`
	Records      state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{Report{}} }

// Run prints what is here, and fails where something is missing.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Limit <= 0 {
		return terminal.Usagef("--limit %s: want a time above 0, such as 60s", c.Limit)
	}
	if c.TorchDir != "" && !c.InstallTorch {
		return terminal.Usagef("--torch-dir says where --install-torch installs: give both")
	}
	var sp *spec.Spec
	var findings []Finding
	if c.Spec != "" {
		var err error
		if sp, findings, err = readSpec(c.Spec); err != nil {
			return err
		}
	}
	if c.InstallTorch {
		if err := c.install(ctx, s, t); err != nil {
			return err
		}
	}
	r := newReport(c.markAbsent(append(findAll(ctx, c.Limit, c.probes(s, sp)), findings...)))
	for i, f := range r.Findings {
		r.Findings[i].Text, r.Findings[i].Fix = s.Place().Complete(f.Text), s.Place().CompleteAll(f.Fix)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.JSON {
		if err := t.JSON(r); err != nil {
			return err
		}
		return r.err()
	}
	r.print(t)
	if err := r.err(); err != nil || c.Spec == "" {
		return err
	}
	t.Printf("Nothing is missing to train %s.\n", c.Spec)
	return nil
}

// markAbsent marks as absent what is missing here but belongs on another machine.
func (c *Command) markAbsent(findings []Finding) []Finding {
	for i, f := range findings {
		others := c.For == "gpu" && (f.Subject == "server" || f.Subject == "agent" || f.Subject == "sandbox" || f.Subject == "container" || strings.HasPrefix(f.Text, "agent.") || strings.HasPrefix(f.Text, "grader."))
		if others && f.State == Missing {
			findings[i].State = Absent
		}
	}
	return findings
}

// probes returns the probes to run, including those for sp if there is one.
func (c *Command) probes(s *state.Flags, sp *spec.Spec) []probe {
	agents := queue{workflows.QueueRollout, enums.TASK_QUEUE_TYPE_ACTIVITY}
	var programs []string
	computes, isolates := false, false
	if sp != nil {
		if whole, err := update.WithAdapter(*sp); err == nil { // findSpec says what is wrong
			sp = &whole
		}
		agents, programs, computes = agentQueue(*sp), programNames(*sp), usesTorch(*sp) && c.For != "stack"
		isolates = sp.Agent.NeedsSandbox()
	}
	install := s.Command("doctor", "--install-torch")
	engine := torchProbe{needed: computes, install: install, limit: c.Limit}
	out := []probe{
		{"cpu", false, findCPU},
		{"memory", false, findMemory},
		{"limits", true, findLimits},
		{"disk", true, findDisk(s)},
		{"gpu", false, findGPUs},
		{"python", false, findPythons(programs)},
		{"torch", computes, engine.find},
		{"vllm", false, findVLLM},
		{"sandbox", isolates && c.For != "gpu", findSandbox(isolates)},
		{"temporal", false, findTemporal(s, agents)},
		{"store", c.Records.Store != "", findStore(s, c.Records)},
	}
	if sp == nil {
		return out
	}
	if sp.Agent.Sandbox == spec.SandboxContainer {
		out = append(out, probe{"container", c.For != "gpu", findContainer(sp.Agent)})
	}
	if server := sp.Sampling.Server; server != nil {
		for _, address := range server.URLs {
			out = append(out, probe{"server", true, findServer(*sp, address)})
		}
	}
	return append(out, probe{"agent", true, findAgent(*sp)}, probe{"spec", true, findSpec(s, c.Spec, *sp)})
}

// install makes the environment of engine torch and makes this process use it.
func (c *Command) install(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	dir := s.TorchDir()
	if c.TorchDir != "" {
		dir = c.TorchDir
	}
	e := environment{dir: dir, requirements: torch.Requirements(), space: torchSpace, log: t.Err, check: func(python string) error {
		_, err := torch.Describe(torch.Options{Python: python}, max(c.Limit, installedLimit))
		return err
	}}
	if err := e.install(ctx); err != nil {
		return err
	}
	if dir != s.TorchDir() {
		fmt.Fprintf(t.Err, "For commands and workers that are to use it:\n  export %s=%s\n", torch.EnvPython, shell.Quote(e.python()))
	}
	if err := os.Setenv(torch.EnvPython, e.python()); err != nil {
		return fmt.Errorf("name the Python of engine torch: %w", err)
	}
	return nil
}

// State is the result of a probe.
type State string

// The states of a finding.
const (
	// Found means that the thing exists and can be used.
	Found State = "found"
	// Absent means that the thing does not exist or does not work, and is not needed.
	Absent State = "absent"
	// Missing means that the thing does not exist or does not work, but is needed.
	Missing State = "missing"
	// Unknown means that the probe could not find out, and the thing is not needed.
	Unknown State = "unknown"
)

// Finding is the result of one check.
type Finding struct {
	// Subject is the subject of the check: cpu, memory, limits, disk, gpu, python, torch, vllm,
	// sandbox, server, temporal, store, agent, spec or room.
	Subject string `json:"subject"`
	State   State  `json:"state"`
	// Text describes the result in words.
	Text string `json:"text"`
	// Fix lists commands, or other ways to get what does not exist or work.
	Fix []string `json:"fix,omitempty"`
	// Facts are the figures for programs, by subject.
	Facts any `json:"facts,omitempty"`
}

// unless returns the state of a thing that does not work: Missing if it is needed, else
// Absent.
func unless(needed bool) State {
	if needed {
		return Missing
	}
	return Absent
}

// Report is the JSON output of `fulgurite doctor --json`.
type Report struct {
	// Ready is true where nothing is missing.
	Ready    bool      `json:"ready"`
	Findings []Finding `json:"findings"`
}

func newReport(findings []Finding) Report {
	r := Report{Ready: true, Findings: findings}
	for _, f := range findings {
		r.Ready = r.Ready && f.State != Missing
	}
	return r
}

// missing returns the subjects of missing things, each once.
func (r Report) missing() []string {
	var out []string
	for _, f := range r.Findings {
		if f.State == Missing && (len(out) == 0 || out[len(out)-1] != f.Subject) {
			out = append(out, f.Subject)
		}
	}
	return out
}

// err returns nil if nothing is missing.
func (r Report) err() error {
	if r.Ready {
		return nil
	}
	return fmt.Errorf("not ready, see what is missing: %s", strings.Join(r.missing(), ", "))
}

// print writes a line for each finding, and one for each command that mends it. Findings
// hold output of other programs, which may be any bytes, so they are escaped.
func (r Report) print(t *terminal.Terminal) {
	for _, f := range r.Findings {
		text := terminal.Escape(f.Text)
		if f.State == Missing || f.State == Unknown {
			text = string(f.State) + ": " + text
		}
		t.Printf("%-12s %s\n", f.Subject, text)
		for _, fix := range f.Fix {
			t.Printf("%-12s   fix: %s\n", "", terminal.Escape(fix))
		}
	}
}

// bytesText returns a number of bytes as readable text.
func bytesText(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/1e6)
}

func parentOf(path string) string { return filepath.Dir(path) }
