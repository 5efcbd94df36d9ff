package doctor

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

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
