package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

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
