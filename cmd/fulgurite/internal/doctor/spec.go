package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
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
		if err == nil && sp.Evaluation.Only == "" {
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
