package spec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/internal/modeldir"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/textfile"
)

// eachPath calls visit with each path in s and its key. visit may change the path.
// Generators, built-in models, and programs without a slash in their name are not paths.
func (s *Spec) eachPath(visit func(key string, path *string)) {
	one := func(key string, path *string) {
		if *path != "" {
			visit(key, path)
		}
	}
	source := func(key string, text *string) {
		if parsed, err := ParseSource(*text); err == nil && parsed.Path != "" {
			one(key, &parsed.Path)
			*text = parsed.String()
		}
	}
	program := func(key string, command []string) {
		if len(command) > 0 && strings.ContainsRune(command[0], '/') {
			one(key, &command[0])
		}
	}
	source("tasks.train", &s.Tasks.Train)
	if c := s.Training.Curriculum; c != nil {
		for i := range c.Stages {
			source(fmt.Sprintf("training.curriculum.stages[%d].tasks", i), &c.Stages[i].Tasks)
		}
	}
	source("tasks.gate", &s.Tasks.Gate)
	source("tasks.test", &s.Tasks.Test)
	source("tasks.validation", &s.Tasks.Validation)
	program("tasks.command", s.Tasks.Command)
	one("tasks.directory", &s.Tasks.Directory)
	if s.Model.Base != BaseTiny {
		one("model.base", &s.Model.Base)
	}
	one("model.template", &s.Model.Template)
	if s.Model.LoRA != nil {
		one("model.lora.adapter", &s.Model.LoRA.Adapter)
	}
	if s.Model.WarmStart != nil {
		source("model.warm_start.demonstrations", &s.Model.WarmStart.Demonstrations)
	}
	for _, name := range s.PolicyNames() {
		key, p := "policies."+name, s.Policies[name]
		if p.LoRA != nil {
			one(key+".lora.adapter", &p.LoRA.Adapter)
		}
		if p.WarmStart != nil {
			source(key+".warm_start.demonstrations", &p.WarmStart.Demonstrations)
		}
	}
	if s.Prompts != nil {
		for i := range s.Prompts.Texts {
			one(promptKey(i)+".file", &s.Prompts.Texts[i].File)
		}
	}
	if s.Optimizer != nil {
		r := &s.Optimizer.Reflector
		program("optimizer.reflector.command", r.Command)
		one("optimizer.reflector.directory", &r.Directory)
		one("optimizer.reflector.file", &r.File)
	}
	program("agent.command", s.Agent.Command)
	one("agent.directory", &s.Agent.Directory)
	program("agent.before", s.Agent.Before)
	program("agent.after", s.Agent.After)
	if s.Sampling.Server != nil {
		one("sampling.server.directory", &s.Sampling.Server.Directory)
	}
	program("grader.command", s.Grader.Command)
	one("grader.directory", &s.Grader.Directory)
}

// Resolve returns s with every relative path made absolute under directory: task files,
// demonstrations, the base model and an adapter, prompts, working directories, and programs
// whose name has a slash. Working directories that s does not give are set to directory. Names
// of generators and of built-in models stay as they are.
func (s Spec) Resolve(directory string) Spec {
	if s.Model.WarmStart != nil {
		w := *s.Model.WarmStart
		s.Model.WarmStart = &w
	}
	if s.Model.LoRA != nil {
		l := *s.Model.LoRA
		s.Model.LoRA = &l
	}
	s.Policies = withOwnPaths(s.Policies)
	if s.Sampling.Server != nil {
		server := *s.Sampling.Server
		s.Sampling.Server = &server
	}
	if s.Prompts != nil {
		p := *s.Prompts
		p.Texts = slices.Clone(p.Texts)
		s.Prompts = &p
	}
	if s.Optimizer != nil {
		o := *s.Optimizer
		o.Reflector.Command = slices.Clone(o.Reflector.Command)
		s.Optimizer = &o
	}
	if s.Training.Curriculum != nil {
		c := *s.Training.Curriculum
		c.Stages = slices.Clone(c.Stages)
		s.Training.Curriculum = &c
	}
	for _, command := range []*[]string{&s.Agent.Command, &s.Agent.Before, &s.Agent.After, &s.Tasks.Command, &s.Grader.Command} {
		*command = slices.Clone(*command)
	}
	s.eachPath(func(_ string, path *string) {
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(directory, *path)
		}
	})
	if len(s.Agent.Command) > 0 && s.Agent.Directory == "" {
		s.Agent.Directory = directory
	}
	if len(s.Tasks.Command) > 0 && s.Tasks.Directory == "" {
		s.Tasks.Directory = directory
	}
	if len(s.Grader.Command) > 0 && s.Grader.Directory == "" {
		s.Grader.Directory = directory
	}
	if o := s.Optimizer; o != nil && len(o.Reflector.Command) > 0 && o.Reflector.Directory == "" {
		o.Reflector.Directory = directory
	}
	return s
}

// withOwnPaths returns policies whose paths can change without a change of the given ones.
func withOwnPaths(policies map[string]Policy) map[string]Policy {
	policies = maps.Clone(policies)
	for _, name := range sortedKeys(policies) {
		p := policies[name]
		if p.LoRA != nil {
			l := *p.LoRA
			p.LoRA = &l
		}
		if p.WarmStart != nil {
			w := *p.WarmStart
			p.WarmStart = &w
		}
		policies[name] = p
	}
	return policies
}

// CheckAbsolute reports, as *Faults, the relative paths in s. A spec that is not read from
// a file has no directory that they could be relative to.
func (s Spec) CheckAbsolute() error {
	f := &Faults{}
	s.eachPath(func(key string, path *string) {
		if !filepath.IsAbs(*path) {
			f.add(key, "give an absolute path", "%q is relative, but a workflow's input is not a file, so there is no directory that it could be relative to", *path)
		}
	})
	return f.err()
}

// Check reports the faults that Validate and CheckFiles find, together.
func (s Spec) Check() error {
	f := &Faults{}
	f.join(s.Validate())
	f.join(s.CheckFiles())
	return f.err()
}

// Complete fills in the defaults and checks the result, the files that it names included.
// A spec with faults is complete, too.
func (s Spec) Complete() (Spec, error) {
	s = s.WithDefaults()
	return s, s.Check()
}

// CheckFiles reports, as *Faults, the files and programs that s names but that are missing
// on this machine. It looks for the agent's programs and directory only if the agent uses
// the default queue: the workers of another queue may be on other machines.
func (s Spec) CheckFiles() error {
	f := &Faults{}
	s.eachPath(func(key string, path *string) {
		if !utf8.ValidString(*path) { // JSON, which carries specs, can't hold it
			f.add(key, "rename the file or directory", "the path %q is not UTF-8", *path)
		}
	})
	f.model(s.Model)
	if s.Model.Template != "" {
		f.file("model.template", s.Model.Template)
	}
	s.Prompts.withFiles(f)
	if w := s.Model.WarmStart; w != nil {
		f.sourceFile("model.warm_start.demonstrations", w.Demonstrations)
	}
	for _, name := range s.PolicyNames() {
		key, p := "policies."+name, s.Policies[name]
		if p.LoRA != nil {
			f.adapter(key+".lora.adapter", p.LoRA.Adapter)
		}
		if p.WarmStart != nil {
			f.sourceFile(key+".warm_start.demonstrations", p.WarmStart.Demonstrations)
		}
	}
	if s.Agent.Queue == "" || s.Agent.Queue == defaultQueue {
		f.directory("agent.directory", s.Agent.Directory)
		contained := s.Agent.Sandbox == SandboxContainer // its image has the program
		if !contained {
			f.executable("agent.command", s.Agent.Command)
		}
		f.executable("agent.before", s.Agent.Before)
		f.executable("agent.after", s.Agent.After)
		if !contained && !s.harbored() && len(s.Agent.Before) == 0 { // their files may be made first, or lie in a container
			f.interpreted("agent.command", s.Agent.Directory, s.Agent.Command)
		}
	}
	f.sourceFile("tasks.train", s.Tasks.Train)
	if c := s.Training.Curriculum; c != nil {
		for i, stage := range c.Stages {
			f.sourceFile(fmt.Sprintf("training.curriculum.stages[%d].tasks", i), stage.Tasks)
		}
	}
	f.sourceFile("tasks.gate", s.Tasks.Gate)
	f.sourceFile("tasks.test", s.Tasks.Test)
	f.sourceFile("tasks.validation", s.Tasks.Validation)
	f.directory("tasks.directory", s.Tasks.Directory)
	f.executable("tasks.command", s.Tasks.Command)
	f.interpreted("tasks.command", s.Tasks.Directory, s.Tasks.Command)
	f.directory("grader.directory", s.Grader.Directory)
	f.executable("grader.command", s.Grader.Command)
	f.interpreted("grader.command", s.Grader.Directory, s.Grader.Command)
	if s.Optimizer != nil {
		f.reflector(s.Optimizer.Reflector)
	}
	return f.err()
}

// reflector looks for a reflector's program, or for its file of replies.
func (f *Faults) reflector(r Reflector) {
	const at = "optimizer.reflector."
	f.directory(at+"directory", r.Directory)
	f.executable(at+"command", r.Command)
	f.interpreted(at+"command", r.Directory, r.Command)
	if r.File != "" {
		f.file(at+"file", r.File)
	}
}

// model looks for the directories of a base and of an adapter.
func (f *Faults) model(m Model) {
	if m.Base != "" && m.Base != BaseTiny {
		remedy := "`fulgurite import` makes such a directory of a GGUF file, or of a model on the hub, named as hf:OWNER/NAME"
		if name := modeldir.OnHub(m.Base); name != "" {
			remedy = fmt.Sprintf("make a directory of the model on the hub with `%s`, and give that", shell.Command("import", "hf:"+name, "DIR"))
		}
		f.modelDirectory("model.base", m.Base, remedy, modeldir.Missing, modeldir.InsteadOfModel)
	}
	if m.LoRA != nil {
		f.adapter("model.lora.adapter", m.LoRA.Adapter)
	}
}

// adapter looks for the directory of an adapter, if one is given.
func (f *Faults) adapter(key, path string) {
	if path == "" {
		return
	}
	remedy := "give a directory with adapter_config.json and adapter_model.safetensors"
	if name := modeldir.OnHub(path); name != "" {
		remedy = fmt.Sprintf("download adapter_config.json and adapter_model.safetensors of %s into a directory, and give that", name)
	}
	f.modelDirectory(key, path, remedy, modeldir.MissingOfAdapter, modeldir.InsteadOfAdapter)
}

// modelDirectory looks for a directory and its files. remedy is for a directory that is not
// there; instead says what is there instead of missing files.
func (f *Faults) modelDirectory(key, path, remedy string, missing func(string) []string, instead func(string) string) {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		f.add(key, cmp.Or(pathRemedy(path), remedy), "%s: %s", path, reason(err))
		return
	case !stat.IsDir():
		f.add(key, modeldir.InsteadOfDirectory(path), "%s is a file", path)
		return
	}
	for _, name := range missing(path) {
		found := instead(path)
		f.add(key, found, "%s: no such file or directory", filepath.Join(path, name))
		if found != "" {
			return // it holds for all of them
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (f *Faults) sourceFile(key, text string) {
	if source, err := ParseSource(text); err == nil && source.Path != "" {
		stat, err := os.Stat(source.Path)
		switch {
		case err != nil:
			f.add(key, cmp.Or(pathRemedy(source.Path), FamilyRemedy(source.Path)), "%s: %s", source.Path, reason(err))
		case source.Family == Harbor && !stat.IsDir():
			f.add(key, "give a directory", "%s is a file", source.Path)
		case source.Family == "" && stat.IsDir():
			f.add(key, fmt.Sprintf("give a file in it, or %s:%s for tasks in Harbor's format", Harbor, source.Path), "%s is a directory", source.Path)
		case source.Family != Harbor && stat.IsDir():
			f.add(key, "give a file", "%s is a directory", source.Path)
		}
	}
}

func (f *Faults) file(key, path string) {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		f.add(key, pathRemedy(path), "%s: %s", path, reason(err))
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
		f.add(key, pathRemedy(path), "%s: %s", path, reason(err))
	case !stat.IsDir():
		f.add(key, "give a directory", "%s is a file", path)
	}
}

func (f *Faults) executable(key string, command []string) {
	if len(command) == 0 || command[0] == "" {
		return
	}
	path, err := exec.LookPath(command[0])
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		f.script(key, path)
	case errors.Is(err, exec.ErrNotFound):
		f.add(key, "install it, or give its path", "program %s is not in PATH", command[0])
	default:
		f.add(key, pathRemedy(command[0]), "program %s: %s", command[0], reason(err))
	}
}

// script reports what keeps the system from starting a script, because the system itself
// then says that there is no such file, whatever is missing.
func (f *Faults) script(key, path string) {
	file, err := os.Open(path)
	if err != nil {
		return // a program may be executable without being readable
	}
	defer func() { _ = file.Close() }() // it was only read
	begin := make([]byte, 256)
	n, _ := io.ReadFull(file, begin) // a program may be shorter
	begin = begin[:n]
	first, _, ended := bytes.Cut(begin, []byte("\n"))
	line, isScript := bytes.CutPrefix(first, []byte("#!"))
	words := strings.Fields(string(line))
	switch {
	case bytes.HasPrefix(begin, []byte("\ufeff")):
		f.add(key, "save it without", "program %s begins with a byte order mark", path)
	case !isScript && n > 0 && !bytes.ContainsRune(begin, 0) && utf8.Valid(begin[:max(0, n-utf8.UTFMax)]):
		f.add(key, "begin it with a line such as #!/bin/sh, or name the interpreter before it", "program %s is a text without an interpreter", path)
	case !isScript || !ended:
	case bytes.HasSuffix(first, []byte("\r")):
		f.add(key, "save it with LF alone", "program %s has lines that end with CR LF, so its interpreter is not found", path)
	case len(words) == 0:
		f.add(key, "write #!/bin/sh, for example", "program %s names no interpreter in its first line", path)
	case filepath.IsAbs(words[0]) && !exists(words[0]):
		f.add(key, "install it, or correct the line", "program %s: its first line names %s, which is not there", path, words[0])
	case filepath.Base(words[0]) == "env" && len(words) == 2:
		if _, err := exec.LookPath(words[1]); errors.Is(err, exec.ErrNotFound) {
			f.add(key, "install it, or correct the line", "program %s: its first line names %s, which is not in PATH", path, words[1])
		}
	}
}

// harbored reports whether tasks are in Harbor's format.
func (s Spec) harbored() bool {
	return slices.ContainsFunc(append(s.TrainSources(), s.Tasks.Gate, s.Tasks.Test, s.Tasks.Validation), func(source string) bool {
		return strings.HasPrefix(source, Harbor+":")
	})
}

// interpreted looks for the script that a command gives to an interpreter: without it, or if
// it can't be read, each attempt would fail.
func (f *Faults) interpreted(key, directory string, command []string) {
	if len(command) < 2 || strings.HasPrefix(command[1], "-") || filepath.Ext(command[1]) == "" || directory == "" {
		return
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return // executable reports it
	}
	program := strings.TrimRight(filepath.Base(command[0]), "0123456789.")
	shell := slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh"}, program)
	if !shell && !slices.Contains([]string{"python", "pypy", "node", "deno", "ruby", "perl", "Rscript"}, program) {
		return
	}
	path := command[1]
	if !filepath.IsAbs(path) {
		path = filepath.Join(directory, path)
	}
	file, err := os.Open(path)
	if err != nil {
		f.add(key, pathRemedy(path), "%s: %s", path, reason(err))
		return
	}
	defer func() { _ = file.Close() }() // it was only read
	begin := make([]byte, textfile.Begin)
	n, _ := io.ReadFull(file, begin) // a script may be shorter
	first, _, _ := bytes.Cut(begin[:n], []byte("\n"))
	format, other := textfile.FormatOf(begin[:n])
	switch {
	case other && format.Remedy != "" && format.Name != textfile.ZIP: // python runs archives
		f.add(key, format.Remedy, "%s is %s", path, format.Name)
	case shell && bytes.HasSuffix(first, []byte("\r")):
		f.add(key, "save it with LF alone", "%s has lines that end with CR LF, which %s takes for a part of its words", path, program)
	}
}

// pathRemedy returns what to do about a path that is not there, if its text shows why. A
// spec has made the path absolute.
func pathRemedy(path string) string {
	for _, part := range strings.Split(path, "/") {
		switch {
		case strings.HasPrefix(part, "~"), strings.HasPrefix(part, "$"), strings.HasPrefix(part, "%") && strings.HasSuffix(part, "%"):
			return fmt.Sprintf("write the path out: %s is not expanded in a spec", part)
		case part == "file:":
			return "write the path alone, without file://"
		case strings.TrimSpace(part) != part:
			return fmt.Sprintf("there is white space around %q: remove it", strings.TrimSpace(part))
		}
	}
	return ""
}

// reason returns the cause in err without the path, because the message already contains
// the path.
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
