package container_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/container"
)

// able is what a podman says that can run the containers of agents.
const able = `{"host": {"cgroupControllers": ["cpu", "memory", "pids"], "ociRuntime": {"path": "/usr/bin/crun"}, "serviceIsRemote": false,
	"security": {"rootless": false, "seccompEnabled": true}}, "version": {"Version": "5.0.0"}}`

func TestAPodmanThatCannotBoundOrIsolateIsNotUsed(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("PATH", directory)
	_, err := container.Find(t.Context())
	require.ErrorIs(t, err, container.ErrUnavailable)
	require.ErrorContains(t, err, "there is no program podman")
	for name, one := range map[string]struct{ old, changed, want string }{
		"able":       {"", "", ""},
		"remote":     {`"serviceIsRemote": false`, `"serviceIsRemote": true`, "on another machine"},
		"rootless":   {`"rootless": false`, `"rootless": true`, "does not run as root"},
		"no runtime": {"/usr/bin/crun", "", "no OCI runtime"},
		"no filter":  {`"seccompEnabled": true`, `"seccompEnabled": false`, "filters no system calls"},
		"no pids":    {`, "pids"`, "", "no control groups for pids"},
		"no memory":  {`"memory", `, "", "no control groups for memory"},
	} {
		text := able
		if one.old != "" {
			text = strings.Replace(able, one.old, one.changed, 1)
		}
		writePodman(t, directory, "[ \"$*\" = 'info --format json' ] || exit 1\nwhile read -r line; do echo \"$line\"; done <<'END'\n"+text+"\nEND\n")
		podman, err := container.Find(t.Context())
		if one.want == "" {
			require.NoError(t, err, name)
			require.Equal(t, "podman 5.0.0", podman.String())
			continue
		}
		require.ErrorIs(t, err, container.ErrUnavailable, name)
		require.ErrorContains(t, err, one.want, name)
	}
}

// writePodman writes a program of the shell in the place of podman.
func writePodman(t *testing.T, directory, script string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(directory, container.Program), []byte("#!/bin/sh\n"+script), 0o755)) //nolint:gosec // a program
}

func TestAPodmanThatOnlyFailsMayWorkLater(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("PATH", directory)
	for script, want := range map[string]string{"echo no storage >&2\nexit 125\n": "no storage", "echo podman\n": "read what podman info says"} {
		writePodman(t, directory, script)
		_, err := container.Find(t.Context())
		require.NotErrorIs(t, err, container.ErrUnavailable)
		require.ErrorContains(t, err, want)
	}
}

func TestAnImageIsMissingOnlyIfPodmanSaysSo(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	podman := container.Podman{Environment: []string{"PATH=" + directory}}
	of := func(code string) (has bool, unknown, missing error) {
		writePodman(t, directory, "[ $2 = exists ] && exit "+code+"\necho its reason >&2\nexit 125\n")
		has, unknown = podman.HasImage(t.Context(), "name")
		_, missing = podman.ImageID(t.Context(), "name")
		require.ErrorContains(t, missing, "its reason")
		return has, unknown, missing
	}
	has, unknown, missing := of("1")
	require.False(t, has)
	require.NoError(t, unknown)
	require.ErrorIs(t, missing, container.ErrNoImage)
	has, unknown, missing = of("125")
	require.False(t, has)
	require.Error(t, unknown)
	require.NotErrorIs(t, missing, container.ErrNoImage)
	has, unknown, missing = of("0")
	require.True(t, has)
	require.NoError(t, unknown)
	require.NotErrorIs(t, missing, container.ErrNoImage)
}

func TestPodmanOfAnotherMachineIsNotAsked(t *testing.T) {
	t.Setenv("CONTAINER_HOST", "ssh://other.example")
	t.Setenv("STORAGE_DRIVER", "vfs")
	for _, one := range container.Environment() {
		require.NotContains(t, one, "other.example")
	}
	require.Contains(t, container.Environment(), "STORAGE_DRIVER=vfs", "where it has its images")
}
