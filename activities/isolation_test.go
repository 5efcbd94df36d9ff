package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// isolating is what a machine says of itself: why it can't isolate, or an error.
type isolating struct {
	reason string
	err    error
}

func (i isolating) why(context.Context, spec.Agent) (string, error) { return i.reason, i.err }

// preparedOn prepares a run of a command on a machine and returns its row with its agent.
func preparedOn(t *testing.T, machine isolating, change func(*spec.Agent)) (record.Run, spec.Agent, error) {
	t.Helper()
	w := newTestEnv(t)
	w.coordinator.WhyNotIsolated = machine.why
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
