package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test checks that each command in the README exists, and runs those that end
// immediately.
func TestTheREADMEsCommandsRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	commands := regexp.MustCompile("(?m)(?:^|[`/])fulgurite ([a-z-]+)([^`\n#]*)").FindAllStringSubmatch(string(text), -1)
	seen := map[string]bool{}
	for _, c := range commands {
		args := []string{c[1], "--help"}
		if c[1] == "plan" {
			args = append([]string{c[1]}, strings.Fields(c[2])...)
		}
		line := strings.Join(args, " ")
		if seen[line] {
			continue
		}
		seen[line] = true
		command := exec.CommandContext(t.Context(), "fulgurite", args...)
		command.Dir = "../.."
		out, err := command.CombinedOutput()
		require.NoError(t, err, "fulgurite %s: %s", line, out)
	}
	for _, line := range []string{"demo --help", "dev --help", "train --help", "chat --help", "plan examples/calc/spec.yaml"} {
		require.Contains(t, seen, line)
	}
}
