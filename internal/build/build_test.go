package build_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/build"
)

func TestThisIsTheRunningProgram(t *testing.T) {
	t.Parallel()
	b := build.This("go")
	require.NotEmpty(t, b.Version)
	require.Equal(t, runtime.Version(), b.Go)
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, b.OS+"/"+b.Arch)
	require.Equal(t, "go", b.Kernels)
}

func TestABuildIsOneLine(t *testing.T) {
	t.Parallel()
	b := build.Build{Version: "v1.2.0", Go: "go1.27.4", OS: "darwin", Arch: "arm64", Kernels: "neon"}
	require.Equal(t, "v1.2.0 (go1.27.4, darwin/arm64, kernels neon)", b.String())
	b.Commit = "0123456789abcdef"
	require.Equal(t, "v1.2.0 (commit 0123456789ab, go1.27.4, darwin/arm64, kernels neon)", b.String())
	b.Modified = true
	require.Equal(t, "v1.2.0 (commit 0123456789ab with changes, go1.27.4, darwin/arm64, kernels neon)", b.String())
}
