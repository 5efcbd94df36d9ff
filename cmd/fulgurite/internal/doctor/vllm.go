package doctor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// VLLM is a vLLM server that runs on this machine, as its command line and environment
// describe it.
type VLLM struct {
	PID int `json:"pid"`
	// Flags are the flags that matter here, with their values; a flag without one has "".
	Flags map[string]string `json:"flags"`
	// Updating is whether adapters may be loaded while it runs
	// (VLLM_ALLOW_RUNTIME_LORA_UPDATING).
	Updating bool `json:"runtime_lora_updating"`
	// Developing is whether it has the routes that put it to sleep (VLLM_SERVER_DEV_MODE).
	Developing bool `json:"server_dev_mode"`
}

// vllmFlags returns the flags that are read. Other flags may hold secrets.
func vllmFlags() []string {
	return []string{
		"--host", "--port", "--served-model-name", "--max-model-len", "--enable-lora", "--max-lora-rank", "--max-loras",
		"--logprobs-mode", "--enable-sleep-mode", "--gpu-memory-utilization", "--tensor-parallel-size", "--data-parallel-size", "--api-server-count",
		"--data-parallel-rank", "--data-parallel-external-lb", "--dtype", "--quantization",
	}
}

// longFlag returns the long form of a flag.
func longFlag(name string) string {
	switch name {
	case "-tp":
		return "--tensor-parallel-size"
	case "-dp":
		return "--data-parallel-size"
	case "-asc":
		return "--api-server-count"
	}
	return strings.ReplaceAll(name, "_", "-") // vLLM takes both
}

const (
	vllmPort        = "8000" // vLLM's defaults
	vllmRank        = 16
	vllmAdapters    = 1
	updatesVariable = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
	sleepVariable   = "VLLM_SERVER_DEV_MODE"
)

// runningVLLM lists the vLLM servers on this machine that Linux lets this user see.
func runningVLLM() []VLLM {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var out []VLLM
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte("vllm")) {
			continue // it has ended, or is another user's
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if !servesVLLM(args) {
			continue
		}
		dir := filepath.Dir(path)
		pid, _ := strconv.Atoi(filepath.Base(dir))                   // Glob matched only digits
		environment, _ := os.ReadFile(filepath.Join(dir, "environ")) // another user's file can't be read
		v := parseVLLM(args, strings.Split(string(environment), "\x00"))
		v.PID = pid
		out = append(out, v)
	}
	return out
}

// servesVLLM reports whether a command line is `vllm serve` or its module.
func servesVLLM(args []string) bool {
	for i, a := range args[:min(len(args), 4)] {
		if a == "vllm.entrypoints.openai.api_server" || filepath.Base(a) == "vllm" && i+1 < len(args) && args[i+1] == "serve" {
			return true
		}
	}
	return false
}

// parseVLLM reads a command line and an environment.
func parseVLLM(args, environment []string) VLLM {
	v := VLLM{Flags: map[string]string{}}
	for i, a := range args {
		name, value, given := strings.Cut(a, "=")
		name = longFlag(name)
		if !slices.Contains(vllmFlags(), name) {
			continue
		}
		if !given && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		v.Flags[name] = value
	}
	for _, e := range environment {
		name, value, _ := strings.Cut(e, "=")
		switch on := slices.Contains([]string{"1", "true"}, strings.ToLower(value)); name {
		case updatesVariable:
			v.Updating = on
		case sleepVariable:
			v.Developing = on && value == "1" // vLLM reads it as a number
		}
	}
	return v
}

func (v VLLM) port() string { return cmp.Or(v.Flags["--port"], vllmPort) }

func (v VLLM) text() string {
	text := fmt.Sprintf("process %d listens on port %s", v.PID, v.port())
	for _, name := range vllmFlags() {
		if value, given := v.Flags[name]; given && name != "--port" {
			text += strings.TrimRight(", "+name+" "+value, " ")
		}
	}
	return text
}

// isLocal reports whether an address is on this machine.
func isLocal(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// findVLLM lists the vLLM servers that run here, including those that no spec names.
func findVLLM(ctx context.Context) []Finding {
	var out []Finding
	for _, v := range runningVLLM() {
		f := Finding{Subject: "vllm", State: Found, Text: v.text(), Facts: v}
		if s, err := askServer(ctx, "http://127.0.0.1:"+v.port(), ""); err != nil {
			f.Text += ": " + err.Error()
		} else {
			f.Text += ": " + s.text()
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		out = []Finding{{Subject: "vllm", State: Absent, Text: "no server of it runs here"}}
	}
	return out
}

// findServer asks one of the servers that a spec names. If a vLLM server runs on this
// machine, findServer also compares its flags with those that the spec needs.
func findServer(s spec.Spec, address string) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		server := s.Sampling.Server
		got, err := askServer(ctx, address, server.Key)
		f := Finding{Subject: "server", State: Found, Text: got.text(), Facts: got}
		switch {
		case err != nil:
			f.State, f.Text, f.Facts = Missing, "sampling.server.urls: "+err.Error(), nil
		case !got.serves(server.Model):
			f.State, f.Text = Missing, fmt.Sprintf("%s serves no model %q (sampling.server.model)", got.text(), server.Model)
		case server.Versions == spec.VersionsAdapters && got.Adapters > 0 && got.Adapters <= s.Training.Lag:
			f.State, f.Text = Missing, fmt.Sprintf("%s: too few adapters at once (--max-loras) for training.lag %d", got.text(), s.Training.Lag)
		}
		if server.Type != spec.ServerVLLM {
			return []Finding{f}
		}
		part := 0.0
		if server.ShareGPU && isLocal(address) {
			part = sharedPart(ctx, s)
		}
		if f.State == Found && isLocal(address) {
			u, _ := url.Parse(address) // isLocal has parsed it
			for _, v := range runningVLLM() {
				if lacks := v.lacks(s, part); v.port() == cmp.Or(u.Port(), vllmPort) && len(lacks) > 0 {
					f.State, f.Text = Missing, f.Text+"; it was started without "+strings.Join(lacks, ", ")
				}
			}
		}
		if f.State == Missing {
			f.Fix = []string{serveCommand(s, address, part)}
			if err != nil && isSilent(err) && isLocal(address) && !hasVLLM(ctx) {
				f.Fix = append([]string{"python3 -m venv vllm && vllm/bin/pip install vllm && export PATH=$PWD/vllm/bin:$PATH"}, f.Fix...)
			}
		}
		return []Finding{f}
	}
}

// hasVLLM reports whether a Python here has vLLM.
func hasVLLM(ctx context.Context) bool {
	return slices.ContainsFunc(askAll(ctx, pythons(nil)), func(p Python) bool { return p.Packages["vllm"] != "" })
}
