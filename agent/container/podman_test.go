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
		"able":            {"", "", ""},
		"remote":          {`"serviceIsRemote": false`, `"serviceIsRemote": true`, "on another machine"},
		"rootless":        {`"rootless": false`, `"rootless": true`, "does not run as root"},
		"no runtime":      {"/usr/bin/crun", "", "no OCI runtime"},
		"no filter":       {`"seccompEnabled": true`, `"seccompEnabled": false`, "filters no system calls"},
		"no pids":         {`, "pids"`, "", "no control groups for pids"},
		"no memory":       {`"memory", `, "", "no control groups for memory"},
		"another format":  {able, "podman", "read what podman info says"},
		"does not answer": {able, "", "read what podman info says"},
	} {
		text := able
		if one.old != "" {
			text = strings.Replace(able, one.old, one.changed, 1)
		}
		script := "#!/bin/sh\n[ \"$*\" = 'info --format json' ] || exit 1\nwhile read -r line; do echo \"$line\"; done <<'END'\n" + text + "\nEND\n"
		require.NoError(t, os.WriteFile(filepath.Join(directory, "podman"), []byte(script), 0o755)) //nolint:gosec // a program
		podman, err := container.Find(t.Context())
		if one.want == "" {
			require.NoError(t, err, name)
			require.Equal(t, "podman 5.0.0", podman.String())
			continue
		}
		require.ErrorIs(t, err, container.ErrUnavailable, name)
		require.ErrorContains(t, err, one.want, name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(directory, "podman"), []byte("#!/bin/sh\necho no storage >&2\nexit 125\n"), 0o755)) //nolint:gosec // a program
	_, err = container.Find(t.Context())
	require.ErrorIs(t, err, container.ErrUnavailable)
	require.ErrorContains(t, err, "no storage")
}

func TestPodmanOfAnotherMachineIsNotAsked(t *testing.T) {
	t.Setenv("CONTAINER_HOST", "ssh://other.example")
	for _, one := range container.Environment() {
		require.NotContains(t, one, "other.example")
	}
}
