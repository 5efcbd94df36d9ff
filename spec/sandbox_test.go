package spec_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// can and can't are what machines answer.
func can() (string, error)    { return "", nil }
func cannot() (string, error) { return "this machine can't isolate a program:\nno namespaces", nil }

func commandSpec() spec.Spec {
	return spec.Spec{
		Agent: spec.Agent{Command: []string{"a"}}, Tasks: spec.Tasks{Train: "arithmetic:train"}, Grader: spec.Grader{Type: spec.GraderExact},
		Training: spec.Training{Steps: 1},
	}.WithDefaults()
}

func TestACommandIsIsolatedWhereTheMachineCan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(*spec.Spec)
		probe     func() (string, error)
		isolation string
		reason    string
	}{
		"left out, and the machine can":   {func(*spec.Spec) {}, can, spec.SandboxProcess, ""},
		"left out, and the machine can't": {func(*spec.Spec) {}, cannot, spec.SandboxNone, "this machine can't isolate a program: no namespaces"},
		"asked for":                       {func(s *spec.Spec) { s.Agent.Sandbox = spec.SandboxProcess }, nil, spec.SandboxProcess, ""},
		"turned off":                      {func(s *spec.Spec) { s.Agent.Sandbox = spec.SandboxNone }, nil, spec.SandboxNone, "the spec says agent.sandbox: none"},
		"turned off with a reason": {func(s *spec.Spec) { s.Agent.Sandbox, s.Agent.SandboxReason = spec.SandboxNone, "it needs a GPU" }, nil,
			spec.SandboxNone, "it needs a GPU"},
		"with agent.after": {func(s *spec.Spec) { s.Agent.After = []string{"clear"} }, nil,
			spec.SandboxNone, "agent.after runs outside of any sandbox, in the home that the agent has filled"},
		"tasks of Harbor": {func(s *spec.Spec) { s.Tasks.Train, s.Grader = "harbor:tasks", spec.Grader{Type: spec.GraderHarbor} }, nil,
			spec.SandboxNone, `with grader.type "harbor" each task brings the place where the agent runs`},
		"in a container whose image is recorded": {func(s *spec.Spec) {
			s.Agent.Sandbox, s.Agent.Image, s.Agent.ImageID = spec.SandboxContainer, "agent:1", anImage
		}, nil, spec.SandboxContainer, "podman, image agent:1, " + anImage},
		"a function":                 {func(s *spec.Spec) { s.Agent = spec.Agent{Func: "f"} }, nil, "", ""},
		"with keys of isolated ones": {func(s *spec.Spec) { s.Agent.Network = []string{"a:1"} }, can, spec.SandboxProcess, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := commandSpec()
			c.change(&s)
			decided, err := s.WithDefaults().DecideSandbox(c.probe) // a nil probe is not called
			require.NoError(t, err)
			isolation, reason := decided.Agent.Isolation()
			require.Equal(t, c.isolation, isolation)
			require.Equal(t, c.reason, reason)
			require.NoError(t, decided.Validate(), "what a run records is valid")

			text, err := json.Marshal(decided)
			require.NoError(t, err)
			stored, err := spec.Stored(text)
			require.NoError(t, err)
			require.Equal(t, decided.Agent, stored.Agent, "and says the same when it is read")
			again, err := decided.DecideSandbox(nil)
			require.NoError(t, err)
			require.Equal(t, decided, again, "a decision stays")
		})
	}
}

func TestADecidedSandboxHasTheDefaultsOfItsLimits(t *testing.T) {
	t.Parallel()
	isolated, err := commandSpec().DecideSandbox(can)
	require.NoError(t, err)
	require.Equal(t, 512, isolated.Agent.Limits.Processes)
	require.Equal(t, 1<<30, isolated.Agent.Limits.FileBytes)
	open, err := commandSpec().DecideSandbox(cannot)
	require.NoError(t, err)
	require.Zero(t, open.Agent.Limits.Processes)
	require.Zero(t, open.Agent.Limits.FileBytes)
}

func TestKeysOfIsolatedAgentsNeedAMachineThatCan(t *testing.T) {
	t.Parallel()
	s := commandSpec()
	s.Agent.Network, s.Agent.Writable = []string{"a:1"}, []string{"logs"}
	s.Agent.Limits.Processes, s.Agent.Limits.CPUSeconds, s.Agent.Limits.FileBytes = 4, 1, 10
	require.NoError(t, s.Validate())
	_, err := s.DecideSandbox(cannot)
	var faults *spec.Faults
	require.ErrorAs(t, err, &faults)
	var keys []string
	for _, f := range faults.List {
		keys = append(keys, f.Key)
		require.Contains(t, f.Message, "no namespaces")
		require.Contains(t, f.Remedy, "agent.sandbox: none")
	}
	require.Equal(t, []string{"agent.network", "agent.writable", "agent.limits.processes", "agent.limits.cpu_seconds", "agent.limits.file_bytes"}, keys)
}

func TestAMachineThatCannotSayDecidesNothing(t *testing.T) {
	t.Parallel()
	busy := errors.New("no process can be started now")
	s, err := commandSpec().DecideSandbox(func() (string, error) { return "", busy })
	require.ErrorIs(t, err, busy)
	require.Empty(t, s.Agent.Sandbox)
}

const anImage = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestARunRecordsTheImageThatItsNameMeansAtFirst(t *testing.T) {
	t.Parallel()
	s := commandSpec()
	s.Agent.Sandbox, s.Agent.Image = spec.SandboxContainer, "agent:1"
	s = s.WithDefaults()
	require.NoError(t, s.Validate())
	require.Equal(t, 512, s.Agent.Limits.Processes)
	decided, err := s.DecideContainer(func(a spec.Agent) (string, error) {
		require.Equal(t, "agent:1", a.Image)
		return anImage, nil
	})
	require.NoError(t, err)
	require.NoError(t, decided.Validate())
	require.Equal(t, anImage, decided.Agent.ImageID)
	again, err := decided.DecideContainer(nil) // which is not called
	require.NoError(t, err)
	require.Equal(t, decided, again)
	plain := commandSpec()
	left, err := plain.DecideContainer(nil)
	require.NoError(t, err)
	require.Equal(t, plain, left, "an agent in no container has no image")
}

func TestOnlyWhatPodmanReadsNamesAnImage(t *testing.T) {
	t.Parallel()
	s := commandSpec()
	s.Agent.Sandbox = spec.SandboxContainer
	for _, name := range []string{
		"agent", "localhost/agent:1", "registry.example:5000/a_b/c--d:V1.2", "127.0.0.1:5000/agent", "docker.io/library/python@" + anImage, "agent:1@" + anImage,
		anImage, "0123456789ab", "Registry.example/agent",
	} {
		s.Agent.Image = name
		require.NoError(t, s.WithDefaults().Validate(), name)
	}
	for _, name := range []string{"Agent", "agent::1", "agent:", "a//b", "/agent", "agent/", "a b", "agent:1:2", "agent@latest", "-agent", "agent.", "agent\n", "https://registry.example/agent"} {
		s.Agent.Image = name
		require.ErrorContains(t, s.WithDefaults().Validate(), "names no image", "%q", name)
	}
}
