package doctor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
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
		case server.Versions == spec.VersionsAdapters && got.Adapters > 0 && got.Adapters < neededAdapters(s):
			f.State, f.Text = Missing, fmt.Sprintf("%s: too few adapters at once (--max-loras) for %s", got.text(), reasonForAdapters(s))
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

const (
	// usualPart is the fraction of a GPU that a server which shares it may take, if
	// nothing more is known.
	usualPart = 0.7
	// vllmPart is the fraction that vLLM takes by default. This command never asks for
	// more.
	vllmPart = 0.9
	// besideBase is the memory, in bytes, that CUDA and the allocator take in the
	// trainer's process while the server is awake. The trainer's base is not included.
	besideBase = 2e9
)

// sharedPart returns the fraction of a GPU that a server may take if it shares the GPU
// with the trainer. While the server is awake, the base of the adapters stays on the GPU,
// in BF16. sharedPart returns 0 if it does not know the sizes.
func sharedPart(ctx context.Context, s spec.Spec) float64 {
	found, err := gpus(ctx)
	if err != nil {
		return 0
	}
	largest := int64(0)
	for _, g := range found {
		largest = max(largest, g.Memory)
	}
	files, err := filepath.Glob(filepath.Join(s.Model.Base, "*.safetensors"))
	if err != nil {
		return 0
	}
	base := int64(0)
	for _, path := range files {
		if about, err := os.Stat(path); err == nil {
			base += about.Size()
		}
	}
	return partBeside(base, largest)
}

// partBeside returns the fraction of a GPU's memory that the trainer's base leaves free,
// rounded down to a multiple of 1/20.
func partBeside(base, memory int64) float64 {
	if base == 0 || memory == 0 {
		return 0
	}
	left := math.Floor(float64(memory-base-besideBase)/float64(memory)*20) / 20
	return max(0.05, min(left, vllmPart))
}

// lacks lists the flags that s needs and a vLLM server was started without. part is the
// fraction of the GPU that a server may take if it shares the GPU; 0 means that it is not
// known.
func (v VLLM) lacks(s spec.Spec, part float64) []string {
	var out []string
	if why := changesLogprobs(s); why != "" && v.Flags["--logprobs-mode"] != "processed_logprobs" {
		out = append(out, fmt.Sprintf("--logprobs-mode processed_logprobs (%s)", why))
	}
	l := largestAdapter(s)
	if l == nil || s.Sampling.Server.Versions != spec.VersionsAdapters {
		return out
	}
	if !v.has("--enable-lora") {
		out = append(out, "--enable-lora")
	}
	if v.number("--max-lora-rank", vllmRank) < l.Rank {
		out = append(out, fmt.Sprintf("--max-lora-rank %s (model.lora.rank is %d)", upstream.NeededRank(l.Rank), l.Rank))
	}
	if least := neededAdapters(s); v.number("--max-loras", vllmAdapters) < least {
		out = append(out, fmt.Sprintf("--max-loras %d (%s)", least, reasonForAdapters(s)))
	}
	if !v.Updating {
		out = append(out, updatesVariable+"=True")
	}
	if n := v.apiServers(); n > 1 {
		out = append(out, fmt.Sprintf("--api-server-count 1 (of its %d API server processes only one gets an adapter)", n))
	}
	if s.Sampling.Server.ShareGPU {
		out = append(out, v.lacksForSleep(part)...)
	}
	return out
}

// largestAdapter returns the adapter of the largest rank that the run trains, nil if it
// trains none.
func largestAdapter(s spec.Spec) *spec.LoRA {
	largest := s.Model.LoRA
	if len(s.Policies) > 0 {
		largest = nil
	}
	for _, policy := range s.PolicyNames() {
		if l := s.ForPolicy(policy).Model.LoRA; l != nil && (largest == nil || l.Rank > largest.Rank) {
			largest = l
		}
	}
	return largest
}

// neededAdapters returns from how many adapters a server has to sample at once: those of all
// policies, for each step that may be under way.
func neededAdapters(s spec.Spec) int { return (s.Training.Lag + 1) * max(len(s.Policies), 1) }

// reasonForAdapters says why that many are needed.
func reasonForAdapters(s spec.Spec) string {
	if n := len(s.Policies); n > 0 {
		return fmt.Sprintf("training.lag %d and %d policies", s.Training.Lag, n)
	}
	return fmt.Sprintf("training.lag %d", s.Training.Lag)
}

// changesLogprobs says what makes the distribution that a server samples from differ from
// the model's. It returns "" if nothing does.
func changesLogprobs(s spec.Spec) string {
	if t := s.Sampling.Temperature; t != nil && *t != 1 {
		return fmt.Sprintf("sampling.temperature is %g", *t)
	}
	if s.Model.Codec != spec.CodecTemplate {
		return ""
	}
	codec, _, err := dialog.ReadCodecWith(s.Model.Base, update.CodecChoices(s))
	if err != nil {
		return "" // another finding says so
	}
	if sparse, ok := codec.(dialog.Sparse); ok {
		if n := sparse.Unused(codec.VocabSize()).Tokens(); n > 0 {
			return fmt.Sprintf("%d rows of the model's vocabulary have no token and are left out", n)
		}
	}
	return ""
}

// lacksForSleep lists what a server lacks that is to share its GPU with the trainer.
func (v VLLM) lacksForSleep(part float64) []string {
	const why = " (sampling.server.share_gpu)"
	var out []string
	if !v.Developing {
		out = append(out, sleepVariable+"=1"+why)
	}
	if !v.has("--enable-sleep-mode") {
		out = append(out, "--enable-sleep-mode"+why)
	}
	is, err := strconv.ParseFloat(v.Flags["--gpu-memory-utilization"], 64)
	if err != nil || part > 0 && is > part {
		out = append(out, fmt.Sprintf("--gpu-memory-utilization %g, which leaves room for the trainer's base%s", cmp.Or(part, usualPart), why))
	}
	return out
}

func (v VLLM) has(flag string) bool {
	_, given := v.Flags[flag]
	return given
}

func (v VLLM) number(flag string, usual int) int {
	n, err := strconv.Atoi(v.Flags[flag])
	if err != nil {
		return usual
	}
	return n
}

// apiServers returns how many processes answer on the server's port. By default there is
// one for each data-parallel engine, or a single one if each engine has its own port.
func (v VLLM) apiServers() int {
	usual := v.number("--data-parallel-size", 1)
	if v.has("--data-parallel-rank") || v.has("--data-parallel-external-lb") {
		usual = 1
	}
	return v.number("--api-server-count", usual)
}

// serveCommand returns a command that starts a vLLM server at address from which s can
// sample. part is the fraction of the GPU that a server may take if it shares the GPU; 0
// means that it is not known.
func serveCommand(s spec.Spec, address string, part float64) string {
	line, port := "vllm serve "+shell.Quote(s.Model.Base)+" --served-model-name "+shell.Quote(s.Sampling.Server.Model), vllmPort
	if u, err := url.Parse(address); err == nil {
		port = cmp.Or(u.Port(), port)
	}
	if port != vllmPort {
		line += " --port " + port
	}
	if changesLogprobs(s) != "" {
		line += " --logprobs-mode processed_logprobs"
	}
	l := largestAdapter(s)
	if l == nil || s.Sampling.Server.Versions != spec.VersionsAdapters {
		return line
	}
	line = updatesVariable + "=True " + line + fmt.Sprintf(" --enable-lora --max-lora-rank %s --max-loras %d", upstream.NeededRank(l.Rank), neededAdapters(s))
	if s.Sampling.Server.ShareGPU {
		line = sleepVariable + "=1 " + line + fmt.Sprintf(" --enable-sleep-mode --gpu-memory-utilization %g", cmp.Or(part, usualPart))
	}
	return line
}
