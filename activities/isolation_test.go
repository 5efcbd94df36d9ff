package activities_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

const anImage = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestARunRecordsTheImageOfItsAgents(t *testing.T) {
	t.Parallel()
	contained := func(a *spec.Agent) { a.Sandbox, a.Image = spec.SandboxContainer, "agent:1" }
	has := isolating{image: anImage}
	with, agent, err := preparedOn(t, has, contained)
	require.NoError(t, err)
	require.Equal(t, anImage, agent.ImageID)
	other, agent, err := preparedOn(t, isolating{image: strings.Replace(anImage, "0", "f", 1)}, contained)
	require.NoError(t, err)
	require.NotEqual(t, anImage, agent.ImageID)
	require.Equal(t, with.SpecDigest, other.SpecDigest, "the digest is that of the spec, on every machine")

	_, _, err = preparedOn(t, isolating{reason: "there is no program podman"}, contained)
	requireRefused(t, err, "agent.image: ", "there is no program podman", "agent.image_id")
	_, agent, err = preparedOn(t, isolating{reason: "there is no program podman"}, func(a *spec.Agent) {
		contained(a)
		a.ImageID = anImage
	})
	require.NoError(t, err, "the machine that prepares a run need not have the image that the spec names")
	require.Equal(t, anImage, agent.ImageID)
}

// isolating is what a machine says of itself: why it can't isolate, or an error.
type isolating struct {
	reason string
	err    error
	image  string // what the name of the agent's image means
}

func (i isolating) container(_ context.Context, a spec.Agent) (string, error) {
	if i.reason != "" {
		return "", a.NoContainer(errors.New(i.reason))
	}
	return i.image, i.err
}

func (i isolating) why(context.Context, spec.Agent) (string, error) { return i.reason, i.err }

// preparedOn prepares a run of a command on a machine and returns its row with its agent.
func preparedOn(t *testing.T, machine isolating, change func(*spec.Agent)) (record.Run, spec.Agent, error) {
	t.Helper()
	w := newTestEnv(t)
	w.coordinator.WhyNotIsolated, w.coordinator.FindContainer = machine.why, machine.container
	// Relative paths are the same in all test environments, and so is the digest.
	s := w.spec()
	s.Tasks.Train, s.Model.Base = "arithmetic:train:4", ""
	s.Agent = spec.Agent{Command: []string{"sh"}, Directory: "/"}
	change(&s.Agent)
	prepared, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	if err != nil {
		return record.Run{}, spec.Agent{}, err
	}
	run, err := w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	stored, err := spec.Stored(run.Spec)
	require.NoError(t, err)
	require.Equal(t, stored.Agent.Sandbox, prepared.Spec.Agent.Sandbox, "workflows read what is recorded")
	return run, stored.Agent, nil
}

func TestARunRecordsWhetherItsAgentsAreIsolated(t *testing.T) {
	t.Parallel()
	unable := isolating{reason: "this machine can't isolate a program: no namespaces"}
	left := func(*spec.Agent) {}

	can, agent, err := preparedOn(t, isolating{}, left)
	require.NoError(t, err)
	require.Equal(t, spec.SandboxProcess, agent.Sandbox)
	require.Equal(t, 512, agent.Limits.Processes)

	cannot, agent, err := preparedOn(t, unable, left)
	require.NoError(t, err)
	require.Equal(t, spec.SandboxNone, agent.Sandbox)
	require.Equal(t, unable.reason, agent.SandboxReason)
	require.Equal(t, can.SpecDigest, cannot.SpecDigest, "the digest is that of the spec, on every machine")

	_, agent, err = preparedOn(t, isolating{}, func(a *spec.Agent) { a.Sandbox = spec.SandboxNone })
	require.NoError(t, err)
	require.Equal(t, spec.SandboxNone, agent.Sandbox, "as the spec says")
	_, agent, err = preparedOn(t, unable, func(a *spec.Agent) { a.Sandbox = spec.SandboxProcess })
	require.NoError(t, err)
	require.Equal(t, spec.SandboxProcess, agent.Sandbox, "workers elsewhere may be able to")
}

func TestKeysOfIsolatedAgentsRefuseARunThatIsNotIsolated(t *testing.T) {
	t.Parallel()
	unable := isolating{reason: "this machine can't isolate a program: no namespaces"}
	network := func(a *spec.Agent) { a.Network = []string{"api.example:443"} }
	_, _, err := preparedOn(t, unable, network)
	requireRefused(t, err, "agent.network: ", "no namespaces", "agent.sandbox: none")
	_, agent, err := preparedOn(t, isolating{}, network)
	require.NoError(t, err)
	require.Equal(t, spec.SandboxProcess, agent.Sandbox)
}

// An error says nothing about what the machine can do, so another try decides.
func TestARunIsPreparedAgainIfItsMachineCanNotSayWhetherItIsolates(t *testing.T) {
	t.Parallel()
	_, _, err := preparedOn(t, isolating{err: errors.New("too many processes")}, func(*spec.Agent) {})
	require.ErrorContains(t, err, "find out whether this machine can isolate agents: too many processes")
	requireRetryable(t, err)
}

// The worker that prepares a run may die after it wrote the row, and another machine goes on.
func TestAnotherMachineDoesNotChangeWhetherARunIsIsolated(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Agent = spec.Agent{Command: []string{"sh"}}
	require.Equal(t, spec.SandboxProcess, w.prepare(s).Spec.Agent.Sandbox)
	w.coordinator.WhyNotIsolated = isolating{reason: "no namespaces"}.why
	require.Equal(t, spec.SandboxProcess, w.prepare(s).Spec.Agent.Sandbox)
}
