package doctor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// CPU is this machine's processor.
type CPU struct {
	Model string `json:"model"`
	// Cores is how many cores of the machine this process may run on; Threads is how many
	// of them a container's share lets it use.
	Cores   int `json:"cores"`
	Threads int `json:"threads"`
	// Kernels lists the native engine's sets of kernels that run here, the fastest first.
	Kernels []string `json:"kernels"`
}

func findCPU(ctx context.Context) []Finding {
	c := CPU{Model: processorName(ctx), Cores: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0)}
	for _, s := range kernel.Sets() {
		c.Kernels = append(c.Kernels, s.Name())
	}
	text := fmt.Sprintf("%s, %s", c.Model, readable.Count(c.Cores, "core"))
	if c.Threads < c.Cores {
		text += fmt.Sprintf(", of which %d at a time (GOMAXPROCS or the container's limit)", c.Threads)
	}
	text += "; kernels of the native engine: " + strings.Join(c.Kernels, ", ")
	if len(c.Kernels) == 1 {
		text += " (only plain Go, which is slow: amd64 with AVX2 and arm64 have faster ones)"
	}
	return []Finding{{Subject: "cpu", State: Found, Text: text, Facts: c}}
}

// processorName returns the processor's own name.
func processorName(ctx context.Context) string {
	if runtime.GOOS == "darwin" {
		if out, err := output(ctx, "/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"); err == nil {
			return strings.TrimSpace(out)
		}
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Memory describes the memory of the machine, and of a container around this process, in
// bytes.
type Memory struct {
	Total int64 `json:"total"`
	// Limit is the least of Total and what the container may take.
	Limit int64 `json:"limit"`
}

func findMemory(context.Context) []Finding {
	m := Memory{memory.Total(), memory.Limit()}
	f := Finding{Subject: "memory", State: Found, Text: bytesText(m.Total), Facts: m}
	switch {
	case m.Limit == 0:
		f.State, f.Text = Unknown, "this system does not report how much there is"
	case m.Limit < m.Total:
		f.Text += fmt.Sprintf(", of which the container may take %s", bytesText(m.Limit))
	}
	return []Finding{f}
}

// Disk is the file system of the data directory, in bytes.
type Disk struct {
	Directory string `json:"directory"`
	Free      int64  `json:"free"`
	Writable  bool   `json:"writable"`
}

func findDisk(s *state.Flags) func(context.Context) []Finding {
	return func(context.Context) []Finding {
		free, err := state.FreeSpace(s.Dir)
		if err != nil {
			return []Finding{{Subject: "disk", State: Missing, Text: err.Error(), Fix: []string{"choose another directory with --dir"}}}
		}
		d := Disk{s.Dir, free, writable(s.Dir)}
		f := Finding{Subject: "disk", State: Found, Text: fmt.Sprintf("%s free for %s", bytesText(free), s.Dir), Facts: d}
		if err := s.CheckSpace(); err != nil {
			f.State, f.Text, f.Fix = Missing, err.Error(), []string{"make room, or choose another directory with --dir"}
		}
		if !d.Writable {
			f.State, f.Text, f.Fix = Missing, s.Dir+" can't be written", []string{"choose another directory with --dir, or change who may write it"}
		}
		return []Finding{f}
	}
}

// writable reports whether files can be made in a directory, or in the one that it will
// be made in.
func writable(dir string) bool {
	for {
		err := unix.Access(dir, unix.W_OK|unix.X_OK)
		if parent := parentOf(dir); errors.Is(err, unix.ENOENT) && parent != dir {
			dir = parent
			continue
		}
		return err == nil
	}
}

// GPU is an NVIDIA GPU, as nvidia-smi describes it.
type GPU struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// Memory and Used are in bytes. They are 0 if nvidia-smi does not report them:
	// devices that share the machine's memory have no memory of their own.
	Memory int64 `json:"memory"`
	Used   int64 `json:"used"`
}

// errNoGPU says that there is no GPU to ask for.
var errNoGPU = errors.New("no NVIDIA GPU")

// gpus asks nvidia-smi for all GPUs.
func gpus(ctx context.Context) ([]GPU, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		if onBus() {
			return nil, errors.New("an NVIDIA GPU is there, but nvidia-smi is not in PATH: its driver is not installed, or this container was not given the GPU")
		}
		return nil, errNoGPU
	}
	out, err := output(ctx, path, "--query-gpu=index,name,driver_version,memory.total,memory.used", "--format=csv,noheader,nounits")
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	found, err := parseGPUs(out)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	return found, nil
}

// parseGPUs reads lines of index, name, driver, memory and used memory, both in MiB.
func parseGPUs(text string) ([]GPU, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, -1
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("its output can't be read: %w: %q", err, shortened(text))
	}
	var out []GPU
	for _, line := range lines {
		if len(line) != 5 {
			return nil, fmt.Errorf("it printed %q, want an index, a name, a driver and two amounts of memory", shortened(strings.Join(line, ", ")))
		}
		g := GPU{Name: strings.TrimSpace(line[1]), Driver: strings.TrimSpace(line[2])}
		if g.Index, err = strconv.Atoi(strings.TrimSpace(line[0])); err != nil {
			return nil, fmt.Errorf("it printed the index %q, want a number", shortened(line[0]))
		}
		for _, of := range []struct {
			to   *int64
			text string
		}{{&g.Memory, line[3]}, {&g.Used, line[4]}} {
			if *of.to, err = mebibytes(strings.TrimSpace(of.text)); err != nil {
				return nil, err
			}
		}
		out = append(out, g)
	}
	if len(out) == 0 {
		return nil, errNoGPU
	}
	return out, nil
}

// mebibytes reads a number of mebibytes as bytes; "[N/A]" is 0.
func mebibytes(text string) (int64, error) {
	if strings.HasPrefix(text, "[") {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("it printed %q for an amount of memory, want a number of MiB", shortened(text))
	}
	return n << 20, nil
}

// onBus reports whether Linux sees an NVIDIA display device on the PCI bus.
func onBus() bool {
	vendors, err := filepath.Glob("/sys/bus/pci/devices/*/vendor")
	if err != nil {
		return false
	}
	for _, path := range vendors {
		vendor, _ := os.ReadFile(path) // it may have gone
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}

func findGPUs(ctx context.Context) []Finding {
	found, err := gpus(ctx)
	switch {
	case errors.Is(err, errNoGPU):
		return []Finding{{Subject: "gpu", State: Absent, Text: "none"}}
	case err != nil:
		return []Finding{{Subject: "gpu", State: Unknown, Text: err.Error(), Fix: []string{
			"run `nvidia-smi` yourself; `sudo modprobe nvidia` loads an installed driver, `docker run --gpus all` gives GPUs to a container",
		}}}
	}
	var out []Finding
	for _, g := range found {
		text := fmt.Sprintf("%d: %s, ", g.Index, g.Name)
		if g.Memory > 0 {
			text += fmt.Sprintf("%s (%s in use), ", bytesText(g.Memory), bytesText(g.Used))
		}
		out = append(out, Finding{Subject: "gpu", State: Found, Text: text + "driver " + g.Driver, Facts: g})
	}
	return out
}

// Python is an interpreter and the packages in it that matter here.
type Python struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
	// Packages holds the versions of torch, transformers, peft, safetensors and vllm. It
	// has no entry for a package that is not installed.
	Packages map[string]string `json:"packages,omitempty"`
	// Environments is whether it can make virtual environments with pip in them.
	Environments bool `json:"environments"`
	// Error says why it could not be asked.
	Error string `json:"error,omitempty"`
}

// packageNames returns the packages to ask for, in the order in which they are printed.
func packageNames() []string {
	return []string{"torch", "transformers", "peft", "safetensors", "vllm"}
}

// packagesProgram is a Python program that prints the fields of Python as JSON. It
// imports none of the packages, because that would take seconds.
const packagesProgram = `
import importlib.metadata as metadata, importlib.util as util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps({"version": ".".join(map(str, sys.version_info[:3])), "packages": found,
                  "environments": all(util.find_spec(name) for name in ("venv", "ensurepip"))}))
`

// askPython asks the interpreter at path.
func askPython(ctx context.Context, path string) Python {
	out, err := output(ctx, path, append([]string{"-c", packagesProgram}, packageNames()...)...)
	p := Python{}
	if err == nil {
		if err = json.Unmarshal([]byte(out), &p); err != nil {
			err = fmt.Errorf("it printed %q, which is not what was asked", shortened(out))
		}
	}
	p.Path = path
	if err != nil {
		p.Error = err.Error()
	}
	return p
}

// newEnough reports whether engine torch takes this version of Python: see
// model/engine/torch/program/versions.py.
func (p Python) newEnough() bool {
	var major, minor int
	_, err := fmt.Sscanf(p.Version, "%d.%d", &major, &minor)
	return err == nil && (major > 3 || major == 3 && minor >= 10)
}

func (p Python) text() string {
	if p.Error != "" {
		return p.Path + ": " + p.Error
	}
	var has, lacks []string
	for _, name := range packageNames() {
		if v := p.Packages[name]; v != "" {
			has = append(has, name+" "+v)
		} else if name != "vllm" && name != "safetensors" {
			lacks = append(lacks, name)
		}
	}
	text := p.Path + " " + p.Version
	if len(has) > 0 {
		text += " with " + strings.Join(has, ", ")
	}
	if len(lacks) > 0 {
		text += "; without " + strings.Join(lacks, ", ")
	}
	return text
}

// pythons returns the paths of the interpreters that something here may use, each once:
// the one that engine torch is configured with, python3, the one of vllm, and those that
// an agent or a grader is started with.
func pythons(more []string) []string {
	var out []string
	add := func(name string) {
		if name == "" {
			return
		}
		path, err := exec.LookPath(name)
		if err != nil {
			return
		}
		if path, err = filepath.Abs(path); err == nil && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	add(os.Getenv(torch.EnvPython))
	add("python3")
	if path, err := exec.LookPath("vllm"); err == nil {
		add(interpreterOf(path))
	}
	for _, name := range more {
		if strings.HasPrefix(filepath.Base(name), "python") {
			add(name)
		}
	}
	return out
}

// interpreterOf returns the program in the first line of a script, or "" if that line
// names none.
func interpreterOf(script string) string {
	f, err := os.Open(script)
	if err != nil {
		return ""
	}
	defer f.Close()
	start := make([]byte, 256)
	n, _ := f.Read(start) // as much as there is
	line, _, _ := strings.Cut(string(start[:n]), "\n")
	fields := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(fields) == 0 || filepath.Base(fields[0]) == "env" {
		return ""
	}
	return fields[0]
}

// askAll asks interpreters at once.
func askAll(ctx context.Context, paths []string) []Python {
	out := make([]Python, len(paths))
	var asking sync.WaitGroup
	for i, path := range paths {
		asking.Go(func() { out[i] = askPython(ctx, path) })
	}
	asking.Wait()
	return out
}

func findPythons(more []string) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		var out []Finding
		for _, p := range askAll(ctx, pythons(more)) {
			f := Finding{Subject: "python", State: Found, Text: p.text(), Facts: p}
			if p.Error != "" {
				f.State = Unknown
			}
			out = append(out, f)
		}
		if len(out) == 0 {
			out = append(out, Finding{Subject: "python", State: Absent, Text: "none: python3 is not in PATH"})
		}
		return out
	}
}

// Torch describes engine torch on this machine.
type Torch struct {
	Python string `json:"python"`
	torch.About
}

// leastDriver is the first version of NVIDIA's driver with which a torch for CUDA 13
// works.
const leastDriver = 580

// torchProbe finds out whether engine torch works: with its own program, which checks
// versions and device.
type torchProbe struct {
	needed  bool
	install string // the command that installs it
	limit   time.Duration
}

func (p torchProbe) find(ctx context.Context) []Finding {
	named := cmp.Or(os.Getenv(torch.EnvPython), "python3")
	absent := func(text string) []Finding {
		return []Finding{{Subject: "torch", State: unless(p.needed), Text: text, Fix: []string{p.install}}}
	}
	path, err := exec.LookPath(named)
	if err != nil {
		return absent(fmt.Sprintf("%s, the Python of engine torch, is not there", named))
	}
	if !p.needed { // loading the libraries takes seconds
		if has := askPython(ctx, path); has.Packages["torch"] == "" {
			return absent(cmp.Or(has.Error, fmt.Sprintf("not installed in %s", path)))
		}
	}
	about, err := torch.Describe(torch.Options{Python: path}, p.limit)
	if err != nil {
		return absent(err.Error())
	}
	f := Finding{Subject: "torch", State: Found, Text: fmt.Sprintf("torch %s, transformers %s, peft %s; computes on %s (%s), in %s",
		about.Versions["torch"], about.Versions["transformers"], about.Versions["peft"], about.Device, about.Processor, about.DType), Facts: Torch{path, about}}
	switch {
	case about.Ranks > 1:
		f.Text += fmt.Sprintf("; a model that is trained is spread over %d processes (%s)", about.Ranks, torch.EnvRanks)
	case about.GPUs > 1:
		f.Text += fmt.Sprintf("; trains on one of %d GPUs: %s=auto spreads a model over all", about.GPUs, torch.EnvRanks)
	}
	if about.Device == "cpu" && os.Getenv(torch.EnvDevice) != "cpu" {
		if found, err := gpus(ctx); err == nil {
			f.State, f.Fix = unless(p.needed), withoutCUDA(path, about.CUDA, found[0].Driver)
			f.Text += fmt.Sprintf(": CUDA does not work, though there is a GPU (torch is built for %s, the driver is %s)", cudaText(about.CUDA), found[0].Driver)
		}
	}
	return []Finding{f}
}

func cudaText(version string) string {
	if version == "" {
		return "CPUs alone"
	}
	return "CUDA " + version
}

// withoutCUDA returns the commands that let torch use a GPU with that driver.
func withoutCUDA(python, cuda, driver string) []string {
	major, _ := strconv.Atoi(strings.SplitN(driver, ".", 2)[0]) // 0 is older than any
	index := "https://download.pytorch.org/whl/cu130"
	if major < leastDriver {
		index = "https://download.pytorch.org/whl/cu126"
	}
	fix := []string{fmt.Sprintf("%s -m pip install --force-reinstall torch --index-url %s", shell.Quote(python), index)}
	if cuda != "" && major < leastDriver {
		fix = append([]string{fmt.Sprintf("install NVIDIA's driver %d or later, which CUDA 13 needs", leastDriver)}, fix...)
	}
	return append(fix, "export "+torch.EnvDevice+"=cpu # to train on the CPU on purpose")
}

// Sandbox says whether agents can be isolated on this machine.
type Sandbox struct {
	// Isolation is "process", or "none" where the machine can't isolate.
	Isolation string `json:"isolation"`
	// Limits says by what the limits of isolated agents are enforced.
	Limits string `json:"limits,omitempty"`
}

// findSandbox starts an empty sandbox.
func findSandbox(needed bool) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		if err := sandbox.Check(ctx); err != nil {
			text := fmt.Sprintf("none: runs prepared here isolate no agent, and no attempt of an isolated one runs here: %v", err)
			return []Finding{{Subject: "sandbox", State: unless(needed), Text: text, Fix: sandbox.Fix(err), Facts: Sandbox{Isolation: "none"}}}
		}
		facts := Sandbox{Isolation: "process", Limits: sandbox.LimitedBy()}
		return []Finding{{Subject: "sandbox", State: Found, Text: "process: agents that are commands are isolated by namespaces of Linux, unless agent.sandbox: none; limits by " + facts.Limits, Facts: facts}}
	}
}
