package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.temporal.io/api/enums/v1"

	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/spec"
)

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
		if len(command) > 0 && command[0] != "" {
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
