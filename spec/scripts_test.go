package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func TestScriptsThatCantStartAreFaults(t *testing.T) {
	t.Parallel()
	for text, message := range map[string]string{
		"#!/bin/sh\r\necho 1\r\n":           "lines that end with CR LF",
		"\ufeff#!/bin/sh\necho 1\n":         "begins with a byte order mark",
		"#!/none/python3\nprint(1)\n":       "its first line names /none/python3, which is not there",
		"#!/usr/bin/env none-such\nx\n":     "names none-such, which is not in PATH",
		"#!\necho 1\n":                      "names no interpreter",
		"import os\nprint(os.getpid())\n":   "is a text without an interpreter",
		"#!/bin/sh\necho 1\n":               "",
		"#! /bin/sh -e\necho 1\n":           "",
		"#!/usr/bin/env -S sh -e\necho 1\n": "",
		"\x7fELF\x02\x01\x01\x00\x00":       "",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "agent.sh"), text)
		require.NoError(t, os.Chmod(filepath.Join(dir, "agent.sh"), 0o755))
		s, err := spec.LoadText([]byte("agent: {command: [./agent.sh]}\ntasks: {train: \"arithmetic:train\"}\ngrader: {type: exact}\ntraining: {steps: 1}"), "a.yaml", dir)
		require.NoError(t, err)
		err = s.Check()
		if message == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, "agent.command: program "+filepath.Join(dir, "agent.sh"), text)
		require.ErrorContains(t, err, message, text)
	}
}

func TestScriptsForAnInterpreterAreLookedInto(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "crlf.sh"), "echo 1\r\necho 2\r\n")
	write(t, filepath.Join(dir, "wide.sh"), "\xff\xfee\x00c\x00")
	write(t, filepath.Join(dir, "good.sh"), "echo 1\n")
	for command, message := range map[string]string{
		"[sh, none.sh]":     filepath.Join(dir, "none.sh") + ": no such file or directory",
		"[sh, ~/none.sh]":   "write the path out: ~ is not expanded in a spec",
		"[sh, crlf.sh]":     "crlf.sh has lines that end with CR LF, which sh takes for a part of its words; save it with LF alone",
		"[sh, wide.sh]":     "wide.sh is in UTF-16; save it in UTF-8",
		"[sh, good.sh]":     "",
		"[sh, -c, none.sh]": "",
		"[cat, none.sh]":    "",
	} {
		for _, text := range []string{
			"agent: {command: " + command + "}\ntasks: {train: \"arithmetic:train\"}\ngrader: {type: exact}\ntraining: {steps: 1}",
			"agent: {func: f}\ntasks: {train: \"arithmetic:train\"}\ngrader: {type: command, command: " + command + "}\ntraining: {steps: 1}",
		} {
			s, err := spec.LoadText([]byte(text), "a.yaml", dir)
			require.NoError(t, err)
			if message == "" {
				require.NoError(t, s.Check(), text)
			} else {
				require.ErrorContains(t, s.Check(), message, text)
			}
		}
	}
	s := parse(t, minimal)
	s.Agent = spec.Agent{Command: []string{"sh", "none.sh"}, Directory: dir, Before: []string{"true"}}
	require.NoError(t, s.CheckFiles(), "what runs before the agent may write the script")
}

func TestAnEnvironmentThatNoProgramCanGetIsAFault(t *testing.T) {
	t.Parallel()
	s := parse(t, minimal)
	s.Agent.Func, s.Agent.Command = "", []string{"sh"}
	s.Agent.Environment = map[string]string{"DATA": strings.Repeat("x", 128<<10-len("DATA=")-1)}
	require.NoError(t, s.Validate())
	s.Agent.Environment["DATA"] += "x"
	require.ErrorContains(t, s.Validate(), "agent.environment.DATA: its 131072 bytes are more than Linux gives to a program in one variable, 131071")
	s.Agent.Environment = map[string]string{}
	for _, name := range strings.Split("abcdefghijk", "") {
		s.Agent.Environment[name] = strings.Repeat("x", 100_000)
	}
	require.ErrorContains(t, s.Validate(), "agent.environment: its 1100022 bytes are more than 1048576")
}

func TestWhatIsNotUTF8IsAFault(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.yaml", "a.json"} {
		_, err := spec.Parse([]byte("{\"name\":\n\"caf\xe9\"}"), name)
		require.ErrorContains(t, err, "line 2", name)
		require.ErrorContains(t, err, "not UTF-8", name)
	}
	dir := filepath.Join(t.TempDir(), "caf\xe9")
	write(t, filepath.Join(dir, "train.jsonl"), `{"id": 1, "input": "x", "answer": "y"}`)
	s, err := spec.LoadText([]byte(strings.Replace(minimal, "agent:", "agent:", 1)+"name: x\n"), "a.yaml", dir)
	require.NoError(t, err)
	s.Tasks.Train = filepath.Join(dir, "train.jsonl")
	require.ErrorContains(t, s.Check(), `tasks.train: the path "`)
	require.ErrorContains(t, s.Check(), "is not UTF-8")
}
