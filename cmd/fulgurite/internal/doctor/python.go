package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/model/engine/torch"
)

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
