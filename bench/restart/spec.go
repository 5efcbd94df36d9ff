package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// runName is the name of the run.
const runName = "restart"

// specification is a run that is longer than all kills together. Its steps are short, so
// that progress shows soon. Its agents compute nothing else, so that the stack alone
// determines the times.
const specification = `name: %s
seed: 7
model:
  warm_start: {demonstrations: arithmetic, updates: 150, batch: 32}
agent:
%s
  limits: {calls: 8, seconds: 60}
tasks: {train: "arithmetic:train:256", gate: "arithmetic:gate:16", test: "arithmetic:test:16"}
grader: {type: exact}
training: {steps: 100000, tasks_per_step: 8, samples_per_task: 4, keep: {last: 2}}
evaluation: {every: 10}
`

// writeSpec writes the spec of a run with the given kind of agents.
func writeSpec(dir, agents, command string, thought time.Duration) (string, error) {
	var agent string
	switch agents {
	case "func":
		agent = "  func: calculator"
	case "command":
		agent = fmt.Sprintf("  command: [/bin/sh, -c, 'sleep %g; exec %s']", thought.Seconds(), command)
	default:
		return "", fmt.Errorf("-agents %s: want func or command", agents)
	}
	path := filepath.Join(dir, "spec.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, specification, runName, agent), 0o644)
}
