package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
	"github.com/fulgurite/fulgurite/internal/containertest"
	"github.com/fulgurite/fulgurite/spec"
)

func TestTheImageOfAnAgentIsStartedBeforeARunNeedsIt(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	a := spec.Agent{Command: []string{"agent"}, Sandbox: spec.SandboxContainer, Image: image.Name}
	got := doctor.FindContainer(t.Context(), a)
	require.Len(t, got, 1)
	require.Equal(t, doctor.Found, got[0].State, got[0].Text)
	require.Equal(t, doctor.Container{Version: image.Podman.Version, Image: image.ID}, got[0].Facts)
	require.Equal(t, image.Podman.String()+" runs agent.image "+image.Name+", "+image.ID, got[0].Text)
	image.RequireNone(t)

	a.Image += "-other"
	got = doctor.FindContainer(t.Context(), a)
	require.Len(t, got, 1)
	require.Equal(t, doctor.Missing, got[0].State)
	require.Contains(t, got[0].Text, "runs no attempt of agent.image "+a.Image)
	require.Contains(t, got[0].Fix, "give this machine the image: `podman load` or `podman pull`")
}
