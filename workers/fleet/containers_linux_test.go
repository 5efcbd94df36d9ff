package fleet_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/internal/containertest"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestTheImageOfAnAgentIsTheOneThatItsNameMeansHere(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		a := spec.Agent{Command: []string{"agent"}, Sandbox: spec.SandboxContainer, Image: image.Name, Container: image.Engine.Program}
		program, id, err := fleet.FindContainer(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, image.Engine.Program, program)
		require.Equal(t, image.ID, id)
		a.Image = image.Name + "-other"
		_, _, err = fleet.FindContainer(t.Context(), a)
		var faults *spec.Faults
		require.ErrorAs(t, err, &faults)
		require.Equal(t, "agent.image", faults.List[0].Key)
		require.Contains(t, faults.List[0].Message, a.Image)
	})
}

func TestAWorkerThatStartsRemovesContainersOfAKilledOne(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		home := filepath.Join(t.TempDir(), "home")
		args := []string{"create"}
		for _, label := range container.Labels("demo/train-1/2/3/4", home) {
			args = append(args, "--label", label)
		}
		id := strings.TrimSpace(image.Run(t, append(args, image.ID, "agent")...))
		t.Cleanup(func() { _ = image.Engine.Remove(context.WithoutCancel(t.Context()), id) })
		fleet.RemoveContainers(t.Context(), zap.NewNop())
		require.Zero(t, image.Labelled(t, "fulgurite.home="+home))
	})
}
