package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "embed"
)

// setup is a spec with all files that it needs, and with claims about its outcome.
type setup struct {
	name string
	// sections are the parts of the spec that differ from those of base; an empty one
	// is left out.
	sections map[string]string
	// agent is the code of agent.py after prelude.py. Empty means an agent that asks the
	// model once.
	agent string
	// files are further files by name. Those ending in ".sh" are executable.
	files map[string]string
	// model is the chat template of a model in the directory "model". Empty means that
	// there is no such model.
	model string
	// refused are texts that plan must print when it exits with 2. Without any, it must
	// exit with 0.
	refused []string
	// args are further arguments of try.
	args []string
	// stopped are texts of the problems that try must find when it exits with 1. Without
	// any, it must exit with 0.
	stopped []string
	// printed are further texts that try must print.
	printed []string
	// train is the outcome that training must have. Empty means that the setup is not
	// trained.
	train outcome
	// because are words of the error with which training ends.
	because []string
}

// outcome is the outcome of training.
type outcome string

// The outcomes.
const (
	trainingFails outcome = "fails"
	learnsNothing outcome = "learns nothing"
	learns        outcome = "learns"
)

// finder returns the command that must find the problem.
func (s setup) finder() string {
	switch {
	case len(s.refused) > 0:
		return "plan"
	case len(s.stopped) > 0:
		return "try"
	}
	return "-"
}

// base returns the sections of a spec that learns: a program asks the model once, and
// every second sample gets a reward.
func base() map[string]string {
	return map[string]string{
		"model":    "{context: 128}",
		"agent":    "{command: [python3, agent.py]}",
		"sampling": "{max_tokens: 4}",
		"tasks":    "{train: tasks.jsonl}",
		"grader":   "{type: agent, reward: last_line}",
		"training": "{steps: 1, tasks_per_step: 2, samples_per_task: 4}",
	}
}

// prelude begins every agent.
//
//go:embed prelude.py
var prelude string

const (
	asksOnce = `
chat([user(task["input"])])
print(sample % 2)
`
	twoTasks = `{"id": "a", "input": "one", "answer": "1"}
{"id": "b", "input": "two", "answer": "2"}
`
)

// write makes the directory of a setup. In all texts, "{{name}}" is replaced by an
// address.
func (s setup) write(dir string, addresses *strings.Replacer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sections := base()
	maps.Copy(sections, s.sections)
	var spec strings.Builder
	for _, key := range slices.Sorted(maps.Keys(sections)) {
		if sections[key] != "" {
			spec.WriteString(key + ": " + sections[key] + "\n")
		}
	}
	agent := s.agent
	if agent == "" {
		agent = asksOnce
	}
	files := map[string]string{"spec.yaml": spec.String(), "agent.py": prelude + agent, "tasks.jsonl": twoTasks}
	maps.Copy(files, s.files)
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(addresses.Replace(text)), mode); err != nil {
			return err
		}
	}
	if s.model == "" {
		return nil
	}
	return writeModel(filepath.Join(dir, "model"), s.model)
}
