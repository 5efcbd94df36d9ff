package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "embed"
)

// setup is a spec with all that it needs, and what is claimed of it.
type setup struct {
	name string
	// sections are the parts of the spec that differ from those of base; an empty one
	// is left out.
	sections map[string]string
	// agent is what agent.py does with its task after prelude.py; empty asks the model
	// once.
	agent string
	// files are further ones by name; those ending in ".sh" can be executed.
	files map[string]string
	// model is the chat template of a model in the directory "model"; empty makes none.
	model string
	// refused are words of plan, which ends with 2; without any it ends with 0.
	refused []string
	// args of try beside the spec.
	args []string
	// stopped are words of the problems that try finds, so that it ends with 1; without
	// any it ends with 0.
	stopped []string
	// printed are words that try prints besides.
	printed []string
	// train says what training comes to; empty does not train.
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

// finder is the command that refuses or finds what is wrong.
func (s setup) finder() string {
	switch {
	case len(s.refused) > 0:
		return "plan"
	case len(s.stopped) > 0:
		return "try"
	}
	return "-"
}

// base are the sections of a spec that learns: a program asks the model once, and
// every second sample is rewarded.
func base() map[string]string {
	return map[string]string{
		"model":    "{context: 128}",
		"agent":    "{command: [python3, agent.py]}",
		"sampling": "{max_tokens: 4}",
		"tasks":    "{train: tasks.jsonl}",
		"grader":   "{type: agent}",
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

// write makes the directory of a setup. In all texts "{{name}}" stands for an address.
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
