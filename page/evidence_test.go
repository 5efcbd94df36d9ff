package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
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

func TestIntervalsOfFractionsEndAtZeroAndOne(t *testing.T) {
	t.Parallel()
	for _, steps := range []int{0, 2} { // before the first step the grader allows no other rewards
		r := newEmpty(t, "plain")
		if steps == 0 {
			_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "e", Spec: []byte(`{"grader":{"type":"exact"}}`)})
			require.NoError(t, err)
		} else {
			r.createRun()
		}
		for step := 1; step <= steps; step++ {
			r.step(step)
		}
		r.decide()
		for version, mean := range map[int]float64{1: 0.05, 2: 0.95} {
			require.NoError(t, r.store.PutEvaluation(t.Context(), record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Test, Version: version, Tasks: 5, Rollouts: 5, Mean: mean, StdError: 0.1}}))
			require.NoError(t, r.store.PutEvaluation(t.Context(), record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: version + 2, Tasks: 5, Rollouts: 5, Mean: mean, StdError: 0.1}}))
		}
		at := r.serveActing()
		for path, want := range map[string]string{
			"/runs/demo/actions/promote?version=4": "0.754 – 1.000", "/runs/demo/actions/promote?version=3": "0.000 – 0.246", "/runs/demo/actions/approve?version=4": "0.754 – 1.000",
			"/runs/demo/steps": "0.754 – 1.000",
		} {
			body, _ := get(t, at+path)
			require.Contains(t, texts(t, body), want, path)
			require.NotRegexp(t, `−0\.|[^0-9]1\.[0-9]*[1-9]`, texts(t, body), path)
		}
	}
}

// remembered is an operator that does nothing but remember what it was asked.
type remembered struct{ asked chan record.Action }

func (remembered) Reach(context.Context) error { return nil }

func (o remembered) Act(_ context.Context, a record.Action) (record.Action, error) {
	o.asked <- a
	a.Outcome, a.Result = record.ActionRefused, record.ActionResult{Message: "a test does nothing"}
	return a, errAway
}

func TestARetryMaySetNumbers(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Failed, record.Failure{Error: "step 3: the loss is not finite"}.Result()))
	o := remembered{make(chan record.Action, 1)}
	p, err := page.New(page.Options{Records: r.store, Blobs: r.blobs, Codecs: dialog.Named, Patience: time.Hour, Operator: o})
	require.NoError(t, err)
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	v := &visitor{t: t, url: server.URL}
	_, body, _ := v.send(http.MethodGet, "/runs/demo/actions/retry", nil)
	require.Contains(t, texts(t, body), "loss.clip_low 0.2 ", "the numbers of now")
	for values, want := range map[string]map[string]float64{"": nil, " \n": nil, "training.optimizer.learning_rate=1e-5\nloss.clip_low=0.1": {"training.optimizer.learning_rate": 1e-5, "loss.clip_low": 0.1}} {
		form := hidden(body)
		form.Set("values", values)
		_, answer, _ := v.send(http.MethodPost, "/runs/demo/actions/retry", form)
		a := <-o.asked
		require.Equal(t, record.ActionRetry, a.Name)
		require.Equal(t, want, a.Input.Values)
		require.Contains(t, answer, ">\n"+values+"</textarea>", "what was typed is kept")
	}
	form := hidden(body)
	form.Set("values", "loss.clip_low=much")
	_, answer, _ := v.send(http.MethodPost, "/runs/demo/actions/retry", form)
	require.Contains(t, texts(t, answer), `"loss.clip_low=much": want KEY=NUMBER, one a line`)
}

func TestARunThatHasEndedContinuesWithMoreSteps(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Completed, nil))
	o := remembered{make(chan record.Action, 1)}
	p, err := page.New(page.Options{Records: r.store, Blobs: r.blobs, Codecs: dialog.Named, Patience: time.Hour, Operator: o})
	require.NoError(t, err)
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	v := &visitor{t: t, url: server.URL}
	const path = "/runs/demo/actions/retry"
	_, body, _ := v.send(http.MethodGet, "/runs/demo", nil)
	require.Contains(t, texts(t, body), "Continue with more steps")
	_, body, _ = v.send(http.MethodGet, path, nil)
	require.Contains(t, texts(t, body), "Steps in all The run has finished 2 of 4 steps.")
	require.Contains(t, body, `name="steps" min="3" step="1" value="" required`)
	for _, c := range []struct {
		steps, values, problem string
	}{
		{"", "", "steps: missing: the run is completed, so it goes on only for more steps: give their number in all"},
		{"", "loss.clip_low=0.1", "steps: missing"},
		{"many", "", `steps: "many": give the number of steps that the run has in all`},
		{"0", "", "give the number of steps"},
		{"2.5", "", "give the number of steps"},
		{"6", "training.steps=7", "training.steps: given twice"},
	} {
		form := hidden(body)
		form.Set("steps", c.steps)
		form.Set("values", c.values)
		code, answer, _ := v.send(http.MethodPost, path, form)
		require.Equal(t, http.StatusUnprocessableEntity, code)
		require.Contains(t, texts(t, answer), c.problem)
		require.Contains(t, answer, `value="`+c.steps+`" required`, "what was typed is kept")
	}
	form := hidden(body)
	form.Set("steps", "6")
	form.Set("values", "loss.clip_low=0.1")
	v.send(http.MethodPost, path, form)
	a := <-o.asked
	require.Equal(t, record.ActionRetry, a.Name)
	require.Equal(t, map[string]float64{"training.steps": 6, "loss.clip_low": 0.1}, a.Input.Values)

	r.measured("measured", true, []int{0}, better)
	require.NoError(t, r.store.FinishRun(t.Context(), "measured", record.Completed, nil))
	_, body, _ = v.send(http.MethodGet, "/runs/measured", nil)
	require.NotContains(t, texts(t, body), "more steps", "it has none")
}
