package spec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

const withFiles = `
model:
  base: models/start
  codec: template
  template: chat.jinja
  warm_start: {demonstrations: demos.jsonl, updates: 2}
agent: {command: [./agent.sh, agent.py], environment: {PATH_LIKE: ./x}}
tasks: {train: data/train.jsonl, gate: "arithmetic:gate", test: /data/test.jsonl}
grader: {type: command, command: [python3, grade.py]}
training: {steps: 1}
`

func TestRelativePathsAreRelativeToTheSpecFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spec.yaml"), withFiles)
	s, err := spec.Load(filepath.Join(dir, "spec.yaml"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "models/start"), s.Model.Base)
	require.Equal(t, filepath.Join(dir, "demos.jsonl"), s.Model.WarmStart.Demonstrations)
	require.Equal(t, filepath.Join(dir, "chat.jinja"), s.Model.Template)
	require.Equal(t, []string{filepath.Join(dir, "agent.sh"), "agent.py"}, s.Agent.Command)
	require.Equal(t, dir, s.Agent.Directory)
	require.Equal(t, "./x", s.Agent.Environment["PATH_LIKE"])
	require.Equal(t, spec.Tasks{Train: filepath.Join(dir, "data/train.jsonl"), Gate: "arithmetic:gate", Test: "/data/test.jsonl"}, s.Tasks)
	require.Equal(t, []string{"python3", "grade.py"}, s.Grader.Command)
	require.Equal(t, dir, s.Grader.Directory)
	require.Equal(t, s, s.Resolve("/elsewhere"), "what is absolute stays")
}

func TestResolveLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	s := parse(t, withFiles)
	s.Resolve("/somewhere")
	require.Equal(t, parse(t, withFiles), s)
}

func TestRelativePathsOfAWorkflowsInputAreReported(t *testing.T) {
	t.Parallel()
	var f *spec.Faults
	require.ErrorAs(t, parse(t, withFiles).CheckAbsolute(), &f)
	var keys []string
	for _, fault := range f.List {
		keys = append(keys, fault.Key)
	}
	require.Equal(t, []string{"tasks.train", "model.base", "model.template", "model.warm_start.demonstrations", "agent.command"}, keys)
	require.NoError(t, parse(t, withFiles).Resolve("/somewhere").CheckAbsolute())
}

func TestMissingFilesAreReportedTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "models/start/config.json"), "{}")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "demos.jsonl"), 0o755))
	s := parse(t, withFiles).Resolve(dir)
	s.Tasks.Test, s.Grader.Command = filepath.Join(dir, "no-test.jsonl"), []string{"no-such-program-anywhere"}
	err := s.Check()
	var f *spec.Faults
	require.ErrorAs(t, err, &f)
	var keys []string
	for _, fault := range f.List {
		keys = append(keys, fault.Key)
	}
	require.Equal(t, []string{"model.base", "model.template", "model.warm_start.demonstrations", "agent.command", "tasks.train", "tasks.test", "grader.command"}, keys)
	require.ErrorContains(t, err, filepath.Join(dir, "models/start/model.safetensors")+": no such file or directory")
	require.ErrorContains(t, err, "demos.jsonl is a directory")
	require.ErrorContains(t, err, "program no-such-program-anywhere is not in PATH")
	require.NoError(t, s.Validate(), "Validate looks at no file")
}

func TestAgentOfAnotherQueueMayLiveElsewhere(t *testing.T) {
	t.Parallel()
	s := parse(t, minimal)
	s.Agent = spec.Agent{Command: []string{"/only/on/the/robots"}, Directory: "/only/there", Queue: "robots"}
	require.NoError(t, s.CheckFiles())
	s.Agent.Queue = ""
	require.ErrorContains(t, s.CheckFiles(), "agent.command")
}

func TestFilesThatExistAreNoFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"models/start/config.json", "models/start/model.safetensors", "demos.jsonl", "chat.jinja", "data/train.jsonl", "test.jsonl"} {
		write(t, filepath.Join(dir, name), "{}")
	}
	write(t, filepath.Join(dir, "agent.sh"), "#!/bin/sh\n")
	s := parse(t, withFiles).Resolve(dir)
	s.Tasks.Test, s.Grader.Command = filepath.Join(dir, "test.jsonl"), []string{"go"}
	require.ErrorContains(t, s.Check(), "agent.sh: permission denied", "a program must be executable")
	require.NoError(t, os.Chmod(filepath.Join(dir, "agent.sh"), 0o755))
	require.NoError(t, s.Check())
}

func TestLoadReportsMissingFilesWithOtherFaults(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spec.yaml")
	write(t, path, "agent: {func: f}\ntasks: {train: no.jsonl}\ngrader: {typ: exact}\ntraining: {steps: 0}\n")
	_, err := spec.Load(path)
	require.ErrorContains(t, err, "grader.typ (line 3): unknown key; did you mean type?")
	require.ErrorContains(t, err, "no.jsonl: no such file")
	require.ErrorContains(t, err, "training.steps: missing")
	require.NotContains(t, err.Error(), "grader.type:")
	_, err = spec.Load(path + ".missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestGeneratorSourcesHaveOneSyntax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]spec.Source{
		"arithmetic":            {Family: "arithmetic"},
		"arithmetic:gate":       {Family: "arithmetic", Split: "gate"},
		"arithmetic:test:12":    {Family: "arithmetic", Split: "test", Count: 12},
		"./arithmetic":          {Path: "./arithmetic"},
		"arithmetics.jsonl":     {Path: "arithmetics.jsonl"},
		"C:/tasks/train.jsonl":  {Path: "C:/tasks/train.jsonl"},
		"data/arithmetic:train": {Path: "data/arithmetic:train"},
	} {
		got, err := spec.ParseSource(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"arithmetic:", "arithmetic:all", "arithmetic:train:", "arithmetic:train:-1", "arithmetic:train:x", "arithmetic:train:1:2"} {
		_, err := spec.ParseSource(text)
		require.Error(t, err, text)
	}
}
