package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/api/enums/v1"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/internal/modeldir"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/spec"
)

// Room is the space that a run takes, in bytes.
type Room struct {
	Disk   int64 `json:"disk"`
	Memory int64 `json:"memory"`
	// Device is the least GPU memory that engine torch needs for weights, gradients and
	// moments. Where several GPUs train, it is that of the first, which also samples. The
	// memory of a batch is needed in addition.
	Device int64 `json:"device,omitempty"`
	// Ranks is the number of processes, one for each GPU, over which engine torch spreads
	// the model.
	Ranks int `json:"ranks,omitempty"`
}

// readSpec reads a spec and sets its defaults. Errors in its text are returned as
// findings, with a nil spec. A file that can't be read is an error of usage.
func readSpec(path string) (*spec.Spec, []Finding, error) {
	s, err := spec.Load(path)
	var faults *spec.Faults
	switch {
	case errors.As(err, &faults):
		return nil, findFaults(faults, spec.Spec{}), nil
	case err != nil:
		return nil, nil, terminal.Usage(err)
	}
	s = s.WithDefaults()
	return &s, nil, nil
}

// usesTorch reports whether engine torch trains or samples.
func usesTorch(s spec.Spec) bool {
	return s.Model.Engine == spec.EngineTorch || s.Sampling.Engine == spec.EngineTorch
}

// findSpec checks a spec as `fulgurite plan` does, and that its run has room here.
func findSpec(s *state.Flags, path string, sp spec.Spec) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		var faults *spec.Faults
		if err := sp.Check(); errors.As(err, &faults) {
			return findFaults(faults, sp)
		}
		p, err := plan.Read(ctx, sp)
		if err == nil && sp.Evaluation.Only == "" && sp.Optimizer == nil {
			err = p.Spec.Trainable()
		}
		if errors.As(err, &faults) {
			return findFaults(faults, sp)
		}
		if err != nil {
			return []Finding{{Subject: "spec", State: Missing, Text: err.Error()}}
		}
		out := []Finding{{Subject: "spec", State: Found, Text: fmt.Sprintf("%s: %s, %d parameters, engine %s", filepath.Base(path), sp.Model.Base, p.Parameters, sp.Model.Engine)}}
		return append(out, findRoom(ctx, s, p))
	}
}

// findRoom compares what a run takes with what is free here.
func findRoom(ctx context.Context, s *state.Flags, p plan.Plan) Finding {
	r := Room{Disk: p.Sizes.Disk, Memory: p.Sizes.Memory()}
	f := Finding{Subject: "room", State: Found, Text: fmt.Sprintf("the run takes %s of disk and about %s of memory", bytesText(r.Disk), bytesText(r.Memory))}
	free, err := state.FreeSpace(s.Dir)
	if err == nil {
		err = p.CheckRoom(free, memory.Limit())
	}
	if p.Spec.Model.Engine == spec.EngineTorch {
		found, problem := gpus(ctx)
		r.Ranks = torch.RanksOf(len(found))
		device := p.Room(r.Ranks)
		r.Device = device.Bytes()
		each := "a GPU"
		if r.Ranks > 1 {
			each = fmt.Sprintf("the first of %d GPUs", r.Ranks)
		}
		f.Text += fmt.Sprintf("; of %s at least %s, and what it computes with a batch", each, bytesText(r.Device))
		if err == nil && problem == nil {
			var tight string
			tight, err = roomOn(found, device)
			f.Text += tight
		}
	}
	if err != nil {
		f.State, f.Text = Missing, err.Error()
	}
	f.Facts = r
	return f
}

// roomOn says what would fit if the largest GPU has no room for training. It returns an
// error if the GPU can't hold even what training keeps in memory, and a remark if it
// leaves hardly any room for a batch.
func roomOn(found []GPU, r torch.Room) (tight string, err error) {
	largest := int64(0)
	for _, g := range found {
		largest = max(largest, g.Memory)
	}
	if largest == 0 || r.Fits(largest) {
		return "", nil
	}
	advice := "what would fit: " + strings.Join(r.Advice(largest), "; ")
	if r.Bytes() < largest {
		return fmt.Sprintf("; the largest GPU here has %s, which leaves a batch little room; %s", bytesText(largest), advice), nil
	}
	return "", fmt.Errorf("training keeps at least %s on a GPU, and the largest here has %s; %s", bytesText(r.Bytes()), bytesText(largest), advice)
}

// findFaults returns a spec's faults as findings, with the commands that mend them.
func findFaults(faults *spec.Faults, s spec.Spec) []Finding {
	var out []Finding
	for _, fault := range faults.List {
		out = append(out, Finding{Subject: "spec", State: Missing, Text: fault.String(), Fix: fixFault(fault, s)})
	}
	return out
}

func fixFault(fault spec.Fault, s spec.Spec) []string {
	if command, known := commandsOf(s)[fault.Key]; known {
		if _, err := exec.LookPath(command[0]); err == nil {
			return nil // the program is there, and the fault says what is wrong with it
		}
		directory := s.Agent.Directory
		if strings.HasPrefix(fault.Key, "grader.") {
			directory = s.Grader.Directory
		}
		return installProgram(command[0], directory)
	}
	if fault.Key == "model.base" && s.Model.Base != "" {
		return importBase(s.Model.Base)
	}
	return nil
}

// importBase returns the command that makes the directory of a base model.
func importBase(dir string) []string {
	name := filepath.Base(dir)
	if file := modeldir.GGUF(dir); file != "" {
		return []string{shell.Command("import", file, strings.TrimSuffix(dir, ".gguf")+"-imported") + " # and name that directory in model.base"}
	}
	if _, err := os.Stat(dir); err == nil {
		return nil // no import makes a model of what is there, and the fault says what does
	}
	if onHub := modeldir.OnHub(dir); onHub != "" {
		return []string{shell.Command("import", "hf:"+onHub, path.Base(onHub)) + " # and name that directory in model.base"}
	}
	for _, owner := range [][2]string{{"Qwen", "Qwen"}, {"SmolLM", "HuggingFaceTB"}, {"Llama-", "meta-llama"}, {"Mistral-", "mistralai"}} {
		if strings.HasPrefix(name, owner[0]) {
			return []string{shell.Command("import", "hf:"+owner[1]+"/"+name, dir)}
		}
	}
	return []string{shell.Command("import", "hf:OWNER/NAME", dir) + " # or a GGUF file, or another Hugging Face directory"}
}

// Program is a program that a spec starts as an agent or a grader.
type Program struct {
	Key  string `json:"key"` // the key in the spec
	Name string `json:"name"`
	Path string `json:"path"`
}

// commandsOf returns the commands of a spec by their keys.
func commandsOf(s spec.Spec) map[string][]string {
	out := map[string][]string{}
	for key, command := range map[string][]string{
		"agent.command": s.Agent.Command, "agent.before": s.Agent.Before, "agent.after": s.Agent.After, "grader.command": s.Grader.Command,
	} {
		contained := key == "agent.command" && s.Agent.Sandbox == spec.SandboxContainer // its image has the program
		if len(command) > 0 && command[0] != "" && !contained {
			out[key] = command
		}
	}
	return out
}

// programNames returns the names of these programs.
func programNames(s spec.Spec) []string {
	var out []string
	for _, command := range commandsOf(s) {
		out = append(out, command[0])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// agentQueue returns the queue that the agent's workers poll.
func agentQueue(s spec.Spec) queue {
	switch t := s.Agent.Temporal; {
	case t == nil:
		return queue{s.Agent.Queue, enums.TASK_QUEUE_TYPE_ACTIVITY}
	case t.Workflow != "":
		return queue{t.Queue, enums.TASK_QUEUE_TYPE_WORKFLOW}
	default:
		return queue{t.Queue, enums.TASK_QUEUE_TYPE_ACTIVITY}
	}
}

// findAgent looks for the programs, the service and the functions that run the agent.
// Commands that don't exist are faults of the spec and are reported as such.
func findAgent(s spec.Spec) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		var out []Finding
		commands := commandsOf(s)
		for _, key := range slices.Sorted(maps.Keys(commands)) {
			if path, err := exec.LookPath(commands[key][0]); err == nil {
				out = append(out, Finding{Subject: "agent", State: Found, Text: fmt.Sprintf("%s runs %s", key, path), Facts: Program{key, commands[key][0], path}})
			}
		}
		switch a := s.Agent; {
		case a.Service != nil:
			out = append(out, findService(ctx, a.Service.URL))
		case a.Temporal != nil:
			out = append(out, Finding{Subject: "agent", State: Found, Text: fmt.Sprintf("of workers on queue %s, see temporal", a.Temporal.Queue)})
		case a.Func != "":
			f := Finding{Subject: "agent", State: Found, Text: "function " + a.Func}
			if names := slices.Sorted(maps.Keys(builtin.Agents())); !slices.Contains(names, a.Func) {
				f.State = Unknown
				f.Text += fmt.Sprintf(" is not one of this program's (%s): start a worker of your own that has it", strings.Join(names, ", "))
			}
			out = append(out, f)
		}
		return out
	}
}

// findService connects to the address of an agent's service, and asks nothing of it.
func findService(ctx context.Context, address string) Finding {
	f := Finding{Subject: "agent", State: Found, Text: "service " + address}
	u, err := url.Parse(address)
	if err != nil {
		return Finding{Subject: "agent", State: Missing, Text: "agent.service.url: " + err.Error()}
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	var d net.Dialer
	connection, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		f.State, f.Text = Missing, fmt.Sprintf("agent.service.url: %s: %v", address, err)
		f.Fix = []string{"start the service, or correct agent.service.url"}
		return f
	}
	_ = connection.Close() // it served to find out that somebody listens
	return f
}

// installProgram returns commands that install a program that a spec names.
func installProgram(name, directory string) []string {
	base := filepath.Base(name)
	switch {
	case strings.HasPrefix(base, "python") && strings.Contains(name, "/"):
		// bin/python of a virtual environment
		environment := filepath.Dir(filepath.Dir(name))
		line := "python3 -m venv " + shell.Quote(environment)
		if requirements := filepath.Join(directory, "requirements.txt"); directory != "" && isFile(requirements) {
			line += " && " + shell.Quote(name) + " -m pip install -r " + shell.Quote(requirements)
		}
		return []string{line}
	case strings.Contains(name, "/"):
		return []string{"put the program there, or correct the path"}
	case base == "uv" || base == "uvx":
		return []string{"python3 -m pip install uv"}
	}
	packages := map[string]string{"python3": "python3 python3-venv", "python": "python-is-python3", "node": "nodejs", "npx": "npm"}
	wanted := base
	if p, known := packages[base]; known {
		wanted = p
	}
	if runtime.GOOS == "darwin" {
		return []string{"brew install " + shell.Quote(strings.TrimSuffix(base, "3"))}
	}
	if _, err := exec.LookPath("apt-get"); err == nil && (wanted != base || packages[base] != "") {
		return []string{"sudo apt-get install " + wanted}
	}
	return []string{fmt.Sprintf("install %s, or give its path", wanted)}
}

func isFile(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.Mode().IsRegular()
}

// outputBytes is how much of a program's output is kept.
const outputBytes = 1 << 20

// output runs a program and returns what it writes to standard output. When ctx ends, the
// program and all processes that it started are killed. The error of a program that fails
// includes the last line that it wrote.
func output(ctx context.Context, name string, args ...string) (string, error) {
	began := time.Now()
	var out, problems limited
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	command.Stdout, command.Stderr = &out, &problems
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err := command.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", silence(time.Since(began).Round(100 * time.Millisecond))
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("%w%s", err, cmp.Or(lastLine(problems.String()), lastLine(out.String())))
	}
	return out.String(), nil
}

// lastLine returns ": " and the last line of text that is not empty.
func lastLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			last = ": " + shortened(line)
		}
	}
	return last
}

// shortened returns text cut to a length that fits a line.
func shortened(text string) string {
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// limited keeps the beginning of its input.
type limited struct{ kept []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[:min(len(p), outputBytes-len(l.kept))]...)
	return len(p), nil
}

func (l *limited) String() string { return string(l.kept) }
