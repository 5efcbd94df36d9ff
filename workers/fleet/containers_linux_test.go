package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/containertest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestTheImageOfAnAgentIsTheOneThatItsNameMeansHere(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	a := spec.Agent{Command: []string{"agent"}, Sandbox: spec.SandboxContainer, Image: image.Name}
	id, err := fleet.FindContainer(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, image.ID, id)
	a.Image = image.Name + "-other"
	_, err = fleet.FindContainer(t.Context(), a)
	var faults *spec.Faults
	require.ErrorAs(t, err, &faults)
	require.Equal(t, "agent.image", faults.List[0].Key)
	require.Contains(t, faults.List[0].Message, a.Image)
}

func TestAWorkerRemovesContainersOfAKilledOneBeforeItsFirst(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	left := record.RolloutID{Run: "left", Kind: record.Train, Step: 1}
	home, err := process.OpenHome(t.Context(), t.TempDir(), process.Owner{Attempt: 1}, left) // workers of other tests leave it alone
	require.NoError(t, err)
	labels, err := container.Labels("left/train-1/0/0/1", home.Path)
	require.NoError(t, err)
	var options []string
	for _, label := range labels {
		options = append(options, "--label", label)
	}
	image.Create(t, options...)
	launchers := fleet.Launchers{Scratch: t.TempDir(), Containers: &fleet.Containers{Log: zap.NewNop()}}
	launch := func(s string) {
		launcher, err := launchers.Launcher(spec.Spec{Agent: spec.Agent{Command: []string{"no-such-program"}, Sandbox: s, Image: image.Name, ImageID: image.ID}})
		require.NoError(t, err)
		_, err = launcher.Launch(t.Context(), agent.Job{Address: record.Address{RolloutID: record.RolloutID{Run: "first", Kind: record.Train, Step: 1}, Attempt: 1}, BaseURL: "http://127.0.0.1:1/v1"})
		require.ErrorIs(t, err, agent.ErrNotStarted)
	}
	launch(spec.SandboxNone)
	require.Equal(t, 1, image.Containers(t), "a worker without containers leaves them alone")
	require.NoError(t, home.Close())
	launch(spec.SandboxContainer)
	image.RequireNone(t)
}

func TestAWorkerAsksPodmanOnceForContainersOfAKilledOne(t *testing.T) {
	directory := t.TempDir()
	asked := filepath.Join(directory, "asked")
	script := "#!/bin/sh\necho \"$1\" >>" + asked + "\nexit 125\n"
	require.NoError(t, os.WriteFile(filepath.Join(directory, container.Program), []byte(script), 0o755)) //nolint:gosec // a program
	t.Setenv("PATH", directory)
	logged, logs := observer.New(zap.InfoLevel)
	launchers := fleet.Launchers{Scratch: t.TempDir(), Containers: &fleet.Containers{Log: zap.New(logged)}}
	launcher, err := launchers.Launcher(spec.Spec{Agent: spec.Agent{Command: []string{"agent"}, Sandbox: spec.SandboxContainer, Image: "x", ImageID: "x"}})
	require.NoError(t, err)
	for range 2 {
		_, err = launcher.Launch(t.Context(), agent.Job{Address: record.Address{RolloutID: record.RolloutID{Run: "first", Kind: record.Train, Step: 1}, Attempt: 1}, BaseURL: "http://127.0.0.1:1/v1"})
		require.ErrorIs(t, err, agent.ErrNotStarted)
	}
	text, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), "info\n"))
	require.Equal(t, 1, logs.Len())
	require.Contains(t, logs.All()[0].Message, "may still be there")
}
