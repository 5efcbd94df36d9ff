package fleet_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/container"
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
	labels, err := container.Labels("demo/train-1/2/3/4", filepath.Join(t.TempDir(), "home"))
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
	launch(spec.SandboxContainer)
	require.Zero(t, image.Containers(t))
}
