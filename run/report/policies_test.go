package report_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

func TestEachPolicyHasItsAccount(t *testing.T) {
	t.Parallel()
	run := newRunWith(t, spec.Spec{
		Seed: seed, Training: spec.Training{Steps: 3, TasksPerStep: 1, SamplesPerTask: samples},
		Policies: map[string]spec.Policy{"a-long-name": {Frozen: true, Match: []spec.PolicyMatch{{Agent: "a"}}}, "checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "w"}}}},
	})
	call := func(a record.Address, seq int, policy string, tokens int) {
		require.NoError(t, run.store.AppendCall(t.Context(), &record.Exchange{Call: record.Call{
			Address: a, Seq: seq, ID: a.String() + policy, Parent: -1, Policy: policy, Key: policy, Prompt: []int32{1},
			Completion: make([]int32, tokens), Logprobs: make([]float32, tokens),
		}}))
	}
	for step := 1; step <= 2; step++ {
		for sample := range samples {
			a := run.begin(record.RolloutID{Run: "demo", Kind: record.Train, Step: step, Task: step - 1, Sample: sample})
			call(a, 0, "writer", 3)
			call(a, 1, "a-long-name", 4)
			run.seal(a, record.OutcomeCompleted)
			run.batches[step] = append(run.batches[step], a)
		}
	}
	run.edit = func(step int, b *model.Batch) {
		for i := range b.Rows {
			b.Rows[i].Policy = "writer"
		}
		if step == 2 {
			b.Rows[0].Policy = "checker"
		}
	}
	run.metrics = map[int]map[string]float64{
		1: {"policy/writer/train/gradient_norm": 0.5, "policy/writer/train/mismatch": 1e-5, "policy/checker/train/entropy": 1},
		2: {"policy/writer/train/gradient_norm": 0.25, "policy/writer/train/mismatch": 2e-5, "policy/writer/train/entropy": 0.75},
	}
	r := run.report()
	require.Empty(t, r.Faults)
	one, two := 1, 2
	require.Equal(t, []report.Policy{
		{Policy: "a-long-name", Frozen: true, Calls: 4, Tokens: 16},
		{Policy: "checker", Trained: 1, Version: &one, Metrics: map[string]float64{"train/entropy": 1}},
		{Policy: "writer", Calls: 4, Tokens: 12, Trained: 3, Version: &two, Metrics: map[string]float64{"train/gradient_norm": 0.25, "train/mismatch": 2e-5, "train/entropy": 0.75}},
	}, r.Policies)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	golden.Compare(t, "report_policies", text.String())
	require.Nil(t, newTestRun(t).report().Policies)
}
