package page_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestWhoDecidesSeesWhatIsKnownOfBothVersions(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	at := r.serveActing()
	body, _ := get(t, at+"/runs/demo/actions/approve?version=2")
	require.Contains(t, texts(t, body), "2 waits for approval 0.750 0.652 – 0.848 1 promoted now 0.500 0.402 – 0.598 Compare the two, task by task")
	require.Contains(t, links(t, body), "/runs/demo/versions/compare?a=1&b=2&split=gate")
	body, _ = get(t, at+"/runs/demo/actions/promote?version=7")
	require.Contains(t, texts(t, body), "7 named – not evaluated 1 promoted now 0.500")
	require.NotContains(t, body, "Compare the two")
	body, _ = get(t, at+"/runs/demo/actions/rollback")
	require.Contains(t, texts(t, body), "0 the one before 0.250 0.152 – 0.348 1 promoted now")
	require.Contains(t, texts(t, body), "Version 0 is promoted again, unless you name another.")
	require.NoError(t, r.store.Promote(t.Context(), record.Promotion{Run: "demo", Policy: model.DefaultPolicy, DecisionID: "back", Version: 0, Previous: 1, Source: record.SourceRollback}))
	body, _ = get(t, at+"/runs/demo/actions/rollback")
	require.NotContains(t, body, "comes back", "there is none before the first")
	body, _ = get(t, at+"/runs/demo/actions/approve?version=%3Cb%3E")
	require.Contains(t, texts(t, body), "0 promoted now")
}

func TestTheFormThatSetsNumbersShowsThoseOfNow(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	at := r.serveActing()
	body, _ := get(t, at+"/runs/demo/actions/set")
	require.Contains(t, texts(t, body), "loss.clip_low 0.2 ")
	for i, change := range []struct {
		value   float64
		outcome record.ActionOutcome
	}{{0.3, record.ActionDone}, {0.15, record.ActionDone}, {0.4, record.ActionRefused}} {
		a := record.Action{ID: string(rune('a'+i)) + "-set-low", Run: "demo", Name: record.ActionSet, By: "ada", Input: record.ActionInput{Values: map[string]float64{"loss.clip_low": change.value}}}
		_, err := r.store.BeginAction(t.Context(), a)
		require.NoError(t, err)
		require.NoError(t, r.store.EndAction(t.Context(), a.ID, change.outcome, record.ActionResult{Step: 2}))
	}
	body, _ = get(t, at+"/runs/demo/actions/set")
	require.Contains(t, texts(t, body), "loss.clip_low 0.15 ", "the last one that was done")
}
