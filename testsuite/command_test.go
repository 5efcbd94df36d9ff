package testsuite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/internal/containertest"
	"github.com/fulgurite/fulgurite/spec"
)

// agentVariable makes this binary an agent.
const agentVariable = "FULGURITE_TEST_AGENT"

// commandAgent is the calculator agent as a program.
func commandAgent() int {
	var task agent.Task
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil && os.Getenv(agentVariable) == plantingAgent {
		err = plant(task)
	} else if err == nil {
		var answer string
		client := calculator.Connect(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"))
		answer, err = calculator.Agent{Client: client, Model: os.Getenv("OPENAI_MODEL_NAME")}.Solve(context.Background(), task.Input)
		fmt.Println(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestAnAgentTrainsTheSameAsFunctionAndAsCommand(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	s := small(2)
	s.Tasks.Gate, s.Tasks.Test, s.Evaluation, s.Promotion = "", "", spec.Evaluation{}, spec.Promotion{} // a process for each of 32 rollouts is enough
	asFunction, err := train(ctx, st, "as-function", s)
	require.NoError(t, err)

	program, err := os.Executable()
	require.NoError(t, err)
	s.Agent = spec.Agent{Command: []string{program}, Environment: map[string]string{agentVariable: "1"}, Sandbox: spec.SandboxNone}
	asCommand, err := train(ctx, st, "as-command", s.WithDefaults())
	require.NoError(t, err)
	require.Equal(t, asFunction.Weights, asCommand.Weights)

	if err := sandbox.Check(ctx); err != nil {
		t.Skip(err)
	}
	s.Agent.Sandbox = spec.SandboxProcess
	isolated, err := train(ctx, st, "isolated", s.WithDefaults())
	require.NoError(t, err)
	require.Equal(t, asFunction.Weights, isolated.Weights, "a sandbox changes nothing that is learned")
}

func TestAnAgentTrainsTheSameInAContainer(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	ctx := t.Context()
	st := sharedStack(t)
	s := small(1)
	s.Tasks.Gate, s.Tasks.Test, s.Evaluation, s.Promotion = "", "", spec.Evaluation{}, spec.Promotion{}
	asFunction, err := train(ctx, st, "uncontained", s)
	require.NoError(t, err)

	s.Agent = spec.Agent{
		Command: []string{"agent"}, Environment: map[string]string{agentVariable: "1"}, Directory: t.TempDir(),
		Sandbox: spec.SandboxContainer, Image: image.Name,
	}
	contained, err := train(ctx, st, "contained", s.WithDefaults())
	require.NoError(t, err)
	require.Equal(t, asFunction.Weights, contained.Weights, "a container changes nothing that is learned")
	run, err := st.Store.Run(ctx, "contained")
	require.NoError(t, err)
	recorded, err := spec.Stored(run.Spec)
	require.NoError(t, err)
	require.Equal(t, image.ID, recorded.Agent.ImageID)
	image.RequireNone(t)
}
