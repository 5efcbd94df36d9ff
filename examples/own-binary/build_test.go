package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A module outside this repository may import none of our internal packages.
func TestItBuildsAsAModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	// The module has our requirements, so that no version has to be looked up.
	ours := read(filepath.Join(root, "go.mod"))
	_, rest, ok := strings.Cut(ours, "module github.com/fulgurite/fulgurite\n")
	require.True(t, ok)
	write("go.mod", "module example.com/own\n"+rest+"\nrequire github.com/fulgurite/fulgurite v0.0.0\nreplace github.com/fulgurite/fulgurite => "+root+"\n")
	write("go.sum", read(filepath.Join(root, "go.sum")))
	write("main.go", read("main.go"))
	program := filepath.Join(dir, "own")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-buildvcs=false", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	out, err = exec.CommandContext(t.Context(), program, "cpu", "--help").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Usage: own cpu", "it is called by its own name")
	out, err = exec.CommandContext(t.Context(), program, "paint").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "Run `own --help` for usage.")
}
