package report_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

func TestShadowsOfAllDecisionsAreReported(t *testing.T) {
	t.Parallel()
	run := newRunWith(t, spec.Spec{Seed: seed, Traffic: &spec.Traffic{Record: spec.RecordAll, Train: &spec.TrafficTraining{}}})
	pairs := make([]model.ShadowPair, 20)
	for i := range pairs {
		pairs[i] = model.ShadowPair{Candidate: model.ShadowReply{Tokens: 4 + i%2}, Promoted: model.ShadowReply{Tokens: 4}}
	}
	evidence := func(candidate int) json.RawMessage {
		s, err := model.CompareShadow(0, 0.05, pairs)
		require.NoError(t, err)
		text, err := json.Marshal(model.Decision{Candidate: candidate, Shadow: &s})
		require.NoError(t, err)
		return text
	}
	moment := time.Unix(1000, 0).UTC()
	for _, p := range []record.Promotion{
		{Version: 0, Previous: -1, DecisionID: "first", Source: record.SourceGate, At: moment},
		{Version: 1, Previous: 0, DecisionID: "gate-1", Source: record.SourceGate, Evidence: evidence(1), At: moment.Add(time.Second)},
	} {
		p.Run, p.Policy = "demo", model.DefaultPolicy
		require.NoError(t, run.store.Promote(t.Context(), p))
	}
	pairs[0].Candidate = model.ShadowReply{Failed: true}
	require.NoError(t, run.store.PutDecision(t.Context(), record.Decision{
		Run: "demo", Policy: model.DefaultPolicy, DecisionID: "gate-2", Candidate: 2, Promoted: 1, Verdict: "withdrawn", Evidence: evidence(2), At: moment.Add(time.Minute),
	}))
	r, err := report.Of(t.Context(), run.store, run.blobs, "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, r.Use.Shadows, 2)
	require.Equal(t, 2, r.Use.Shadows[0].Candidate, "the newest first")
	require.Equal(t, 1, r.Use.Shadows[0].Failed.Candidate)
	require.Equal(t, 20, r.Use.Shadows[1].Replies)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "  version 1, in the shadow of version 0, 0 of 20 replies are cut off, against 0 of version 0 to the same prompts, 0 are empty, against 0, and 0 failed: not significantly more at level 0.05\n    tokens a reply 4.5 (4), difference +0.5 ± 0.11; seconds 0 (0)")
}
