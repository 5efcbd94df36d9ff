package page_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestRunsAreComparedKeyByKey(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "runs_compared")
	r := newRecorded(t, "plain")
	r.secondRun("other", `{"seed":9,"training":{"steps":4},"agent":{"command":["<img>"],"environment":{"API_KEY":"other-secret"}}}`)
	server := r.serve(nil)
	body := shown.get(server.URL, "/")
	require.Contains(t, body, `type="checkbox" name="run" value="other"`)
	body = shown.get(server.URL, "/compare?run=demo&run=other")
	require.Contains(t, body, "<code>seed</code>")
	require.Contains(t, body, "&lt;img&gt;")
	require.NotContains(t, body, "other-secret")
	require.NotContains(t, body, "very-secret")
	require.NotContains(t, body, "<code>training.steps</code>", "it is alike")
	require.Regexp(t, `[1-9]\d* keys are equal`, body)
	require.Contains(t, html.UnescapeString(body), `"name":"other","points":[[1,0.25],`)
	for _, c := range [][2]string{{"", "two runs"}, {"?run=demo", "two runs"}, {"?run=demo&run=%3Cb%3E", "&lt;b&gt;"}, {"?run=demo&run=other&to=1", `"to":1`}} {
		body := shown.get(server.URL, "/compare"+c[0])
		require.Contains(t, html.UnescapeString(body)+body, c[1], c[0])
	}
}

// evaluated puts whole evaluations of versions 3 and 4 on record, which can be compared. Version
// 4 is better on every other task, and worse on none.
func (r *recorded) evaluated() {
	r.t.Helper()
	ctx, t := r.t.Context(), r.t
	for version := 3; version <= 4; version++ {
		for task := range r.tasks {
			a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "demo", Kind: record.Gate, Step: version, Task: task}, r.tasks[task].ID, record.Terms{Policy: model.DefaultPolicy, Version: version}, "c")
			require.NoError(t, err)
			reward := float64((task + version) % 2)
			if version == 4 {
				reward = 1
			}
			require.NoError(t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward, Result: fmt.Sprintf("said by version %d on %d", version, task)}))
		}
		require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{
			Kind: record.Gate, Version: version, Tasks: len(r.tasks), Rollouts: len(r.tasks), Mean: 0.5,
		}}))
	}
}

func TestVersionsAreComparedAsTheToolDoes(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "versions_compared")
	r := newRecorded(t, "plain words")
	ctx := t.Context()
	r.evaluated()
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo/versions/compare?a=3&b=demo%404&split=gate")
	require.Contains(t, body, "2 of 5")
	require.Contains(t, links(t, body), "/runs/demo/versions/compare/task?a=demo%403&b=demo%404&split=gate&task=1", "the task leads to both, side by side")
	require.Contains(t, links(t, body), "/runs/demo/gate-4/1", "a reward leads to its group")
	require.Equal(t, 2, strings.Count(body, `data-label="B − A">&#43;1.000</td>`), "only what changed")
	require.NotContains(t, body, "B is worse")
	require.Contains(t, links(t, body), "/runs/demo/train-4")
	back := shown.get(server.URL, "/runs/demo/versions/compare?a=4&b=3")
	require.Contains(t, back, "B is worse", "without a split it is the one that both have")
	require.Contains(t, back, `>−1.000</td>`)
	ticked := shown.get(server.URL, "/runs/demo/versions/compare?v=4&v=3")
	require.Contains(t, ticked, `name="a" value="demo@3"`)
	require.Contains(t, ticked, "2 of 5")
	list := shown.get(server.URL, "/runs/demo/versions")
	require.Contains(t, list, `<input type="checkbox" name="v" value="2"`)

	r.secondRun("other", `{"seed":9}`)
	a := record.Action{ID: "setting-1", Run: "demo", Name: record.ActionSet, By: "ada", Input: record.ActionInput{Values: map[string]float64{"loss.clip_low": 0.1}}}
	_, err := r.store.BeginAction(ctx, a)
	require.NoError(t, err)
	require.NoError(t, r.store.EndAction(ctx, a.ID, record.ActionDone, record.ActionResult{Step: 2}))
	body = shown.get(server.URL, "/runs/demo/versions/compare?a=1&b=2")
	require.Contains(t, body, "loss.clip_low=0.1")
	require.Contains(t, body, `<td>train/entropy</td><td class="n">1.000</td><td class="n">0.500</td><td class="n">−0.500</td>`)
	body = shown.get(server.URL, "/runs/demo/versions/compare?a=1&b=other%401")
	require.Contains(t, body, "<code>seed</code>")
	require.Contains(t, links(t, body), "/compare?run=demo&run=other")
	for _, c := range [][2]string{
		{"", "two versions"}, {"?v=3", "1 version"}, {"?a=0&b=4&split=gate", "missing"}, {"?a=3&b=77&split=gate", "demo@77"},
		{"?a=3&b=nobody%404", "not found"}, {"?a=3&b=%3Cscript%3E", "&lt;script&gt;"}, {"?a=3&b=4&split=sideways", "no evaluation"},
	} {
		require.Contains(t, shown.get(server.URL, "/runs/demo/versions/compare"+c[0]), c[1], c[0])
	}
}

func TestOneKillIsOneRowOfTheFleet(t *testing.T) {
	t.Parallel()
	body, _ := get(t, stores()["killed"](t).serve(nil).URL+"/fleet")
	require.Contains(t, body, "<summary>8</summary>", "the attempts that the kill cut off")
	require.Equal(t, 3, strings.Count(body, `class="bar interrupted"`), "beside two attempts that were lost alone")
	require.Contains(t, body, `/runs/killed/train-3/5/3/2">made again</a> after`)
}

func TestWhatAPageOffersIsThere(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "offered")
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo")
	require.Contains(t, body, "from 8.000 at step 1 to 8.000", "80 tokens in ten seconds")
	require.Equal(t, 5, strings.Count(body, `<g class="refused">`), "marked on reward, evaluations, entropy, KL and gradient norm")
	body = shown.get(server.URL, "/runs/demo/tasks")
	require.Contains(t, body, `<details class="split" id="split-train" open>`)
	body = shown.get(server.URL, "/runs/demo/versions")
	require.NotContains(t, body, "Show all", "all were evaluated")
	for number := 3; number <= 6; number++ {
		r.savedVersion(number, false)
	}
	body = shown.get(server.URL, "/runs/demo/versions")
	require.Contains(t, texts(t, body), "3 versions")
	require.Contains(t, links(t, body), "?all=1")
	require.NotContains(t, body, `name="v" value="4"`)
	body = shown.get(server.URL, "/runs/demo/versions?all=1")
	require.Contains(t, body, `name="v" value="4"`)
}
