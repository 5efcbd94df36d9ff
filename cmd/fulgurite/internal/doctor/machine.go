package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
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
