package spec

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Resolve makes every relative path of s absolute under directory: task files,
// demonstrations, the base model, working directories, and programs whose name
// has a slash. Working directories that are not given become directory. Names of
// generators and of built-in models stay as they are.
func (s Spec) Resolve(directory string) Spec {
	under := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(directory, path)
	}
	source := func(text string) string {
		if parsed, err := ParseSource(text); err != nil || parsed.Family != "" {
			return text
		}
		return under(text)
	}
	program := func(command []string) []string {
		if len(command) == 0 || !strings.ContainsRune(command[0], '/') {
			return command
		}
		command = slices.Clone(command)
		command[0] = under(command[0])
		return command
	}
	s.Tasks = Tasks{Train: source(s.Tasks.Train), Gate: source(s.Tasks.Gate), Test: source(s.Tasks.Test)}
	if s.Model.Base != BaseTiny {
		s.Model.Base = under(s.Model.Base)
	}
	if s.Model.WarmStart != nil {
		w := *s.Model.WarmStart
		w.Demonstrations = source(w.Demonstrations)
		s.Model.WarmStart = &w
	}
	s.Agent.Command, s.Agent.Directory = program(s.Agent.Command), under(s.Agent.Directory)
	if len(s.Agent.Command) > 0 && s.Agent.Directory == "" {
		s.Agent.Directory = directory
	}
	s.Agent.Before, s.Agent.After = program(s.Agent.Before), program(s.Agent.After)
	if s.Sampling.Server != nil {
		server := *s.Sampling.Server
		server.Directory = under(server.Directory)
		s.Sampling.Server = &server
	}
	s.Grader.Command, s.Grader.Directory = program(s.Grader.Command), under(s.Grader.Directory)
	if len(s.Grader.Command) > 0 && s.Grader.Directory == "" {
		s.Grader.Directory = directory
	}
	return s
}

// CheckAbsolute reports, as *Faults, the paths of s that Resolve would change. A spec
// that is not a file has no directory that they could be relative to.
func (s Spec) CheckAbsolute() error {
	f := &Faults{}
	path := func(key, text string) {
		if text != "" && !filepath.IsAbs(text) {
			f.add(key, "give an absolute path", "%q is relative, and a workflow's input is no file that it could be relative to", text)
		}
	}
	source := func(key, text string) {
		if parsed, err := ParseSource(text); err == nil && parsed.Family == "" {
			path(key, text)
		}
	}
	program := func(key string, command []string) {
		if len(command) > 0 && strings.ContainsRune(command[0], '/') {
			path(key, command[0])
		}
	}
	source("tasks.train", s.Tasks.Train)
	source("tasks.gate", s.Tasks.Gate)
	source("tasks.test", s.Tasks.Test)
	if s.Model.Base != BaseTiny {
		path("model.base", s.Model.Base)
	}
	if s.Model.WarmStart != nil {
		source("model.warm_start.demonstrations", s.Model.WarmStart.Demonstrations)
	}
	program("agent.command", s.Agent.Command)
	path("agent.directory", s.Agent.Directory)
	program("agent.before", s.Agent.Before)
	program("agent.after", s.Agent.After)
	if s.Sampling.Server != nil {
		path("sampling.server.directory", s.Sampling.Server.Directory)
	}
	program("grader.command", s.Grader.Command)
	path("grader.directory", s.Grader.Directory)
	return f.err()
}

// Check reports what Validate and CheckFiles find, together.
func (s Spec) Check() error {
	f := &Faults{}
	f.join(s.Validate())
	f.join(s.CheckFiles())
	return f.err()
}

// CheckFiles reports, as *Faults, the files and programs that s names and that are
// missing on this machine. Programs count as missing only if they should run here:
// an agent with a queue of its own may live on other machines.
func (s Spec) CheckFiles() error {
	f := &Faults{}
	if base := s.Model.Base; base != "" && base != BaseTiny {
		f.directory("model.base", base)
		for _, name := range []string{"config.json", "model.safetensors"} {
			if exists(base) {
				f.file("model.base", filepath.Join(base, name))
			}
		}
	}
	if w := s.Model.WarmStart; w != nil {
		f.sourceFile("model.warm_start.demonstrations", w.Demonstrations)
	}
	if s.Agent.Queue == "" || s.Agent.Queue == defaultQueue {
		f.directory("agent.directory", s.Agent.Directory)
		f.executable("agent.command", s.Agent.Command)
		f.executable("agent.before", s.Agent.Before)
		f.executable("agent.after", s.Agent.After)
	}
	f.sourceFile("tasks.train", s.Tasks.Train)
	f.sourceFile("tasks.gate", s.Tasks.Gate)
	f.sourceFile("tasks.test", s.Tasks.Test)
	f.directory("grader.directory", s.Grader.Directory)
	f.executable("grader.command", s.Grader.Command)
	return f.err()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (f *Faults) sourceFile(key, text string) {
	if source, err := ParseSource(text); err == nil && source.Path != "" {
		f.file(key, source.Path)
	}
}

func (f *Faults) file(key, path string) {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		f.add(key, "", "%s: %s", path, reason(err))
	case stat.IsDir():
		f.add(key, "give a file", "%s is a directory", path)
	}
}

func (f *Faults) directory(key, path string) {
	if path == "" {
		return
	}
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		f.add(key, "", "%s: %s", path, reason(err))
	case !stat.IsDir():
		f.add(key, "give a directory", "%s is a file", path)
	}
}

func (f *Faults) executable(key string, command []string) {
	if len(command) == 0 || command[0] == "" {
		return
	}
	_, err := exec.LookPath(command[0])
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
	case errors.Is(err, exec.ErrNotFound):
		f.add(key, "install it, or give its path", "program %s is not in PATH", command[0])
	default:
		f.add(key, "", "program %s: %s", command[0], reason(err))
	}
}

// reason is the cause in err without the path, which the message has already.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
