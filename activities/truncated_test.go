package activities_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// cutOff makes a call in the name of an agent whose reply has one token, so that it is cut
// off.
func cutOff(ctx context.Context, env agent.Env, name string) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": env.Model, "max_tokens": 1, "messages": []any{map[string]any{"role": "user", "content": "as " + name}},
	})
	if err != nil {
		return "", err
	}
	return post(ctx, env, strings.TrimSuffix(env.BaseURL, "/v1")+"/n/"+name+"/v1/chat/completions", body)
}

func TestAnAttemptWithAReplyThatWasCutOffFailsIfTheSpecSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		credit spec.Credit
		kind   record.Kind
		fails  bool
	}{
		"trained":                  {spec.Credit{}, record.Train, false},
		"masked":                   {spec.Credit{Truncated: "mask"}, record.Train, false},
		"failed":                   {spec.Credit{Truncated: "fail"}, record.Train, true},
		"of an agent that trains":  {spec.Credit{Truncated: "fail", TrainAgents: "writer"}, record.Train, true},
		"of an agent that doesn't": {spec.Credit{Truncated: "fail", TrainAgents: "writ"}, record.Train, false},
		"evaluated":                {spec.Credit{Truncated: "fail"}, record.Gate, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			w.write("gate.jsonl", `{"id":"c","input":"40+2","answer":"42"}`+"\n")
			s.Credit, s.Tasks.Gate = c.credit, "gate.jsonl"
			w.start(s)
			in := rollout(0, 0)
			in.Rollout.Kind = c.kind
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
				_, err := cutOff(ctx, env, "writer")
				return "42", err
			}).RunAgent, in)
			require.NoError(t, err)
			a := w.attempt(at(in, 1))
			if !c.fails {
				require.Equal(t, record.OutcomeCompleted, a.Outcome, a.Error)
				require.InDelta(t, 1, *got.Reward, 0)
				return
			}
			require.Equal(t, []any{record.AgentFailed, record.FailureTruncated}, []any{a.Outcome, a.Failure})
			require.InDelta(t, -0.5, *got.Reward, 0)
			require.Contains(t, a.Error, `1 of 1 replies were cut off at a limit of tokens, the first that of call 0, and credit.truncated is "fail"`)
		})
	}
}

// The reply of a masked call is context. Its attempt counts in the baseline, and the other
// calls get what they would get without a mask.
func TestTheTokensOfMaskedRepliesAreNotTrained(t *testing.T) {
	t.Parallel()
	group := []entry{
		{says: []string{"solo: a", "solo: b"}, cut: []int{1}, reward: 1}, {says: []string{"solo: c"}, cut: []int{0}}, {says: []string{"solo: d"}},
	}
	made := map[string][]map[int32][]float32{}
	for _, truncated := range []string{"train", "mask"} {
		w := newTestEnv(t).credited(spec.Credit{Truncated: truncated})
		b, got := w.made(w.record(1, group))
		made[truncated] = given(b)
		masked := truncated == "mask"
		require.Equal(t, map[bool]float64{true: 2}[masked], got.Metrics["batch/masked"])
		require.Equal(t, map[bool]float64{true: 4}[masked], got.Metrics["batch/masked_tokens"])
		require.InDelta(t, 2, got.Metrics["batch/cut_off"], 0)
		require.Equal(t, map[bool]int{true: 4, false: 8}[masked], b.Denominators.Tokens)
	}
	want := slices.Clone(made["train"])
	delete(want[0], 1)
	delete(want[1], 0)
	require.Equal(t, want, made["mask"])
	require.NotEmpty(t, want[0])
}

// A step whose replies were all cut off makes a version without an update, and says why.
func TestAStepOfMaskedRepliesSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Truncated: "mask"})
	got, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, []entry{
		{says: []string{"solo: a"}, cut: []int{0}, reward: 1}, {says: []string{"solo: b"}, cut: []int{0}},
	}))
	require.NoError(t, err)
	require.Contains(t, got.Idle, "all 2 replies that could be trained were cut off and are masked")
}
