package page_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

func TestRunsAreComparedKeyByKey(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	r.secondRun("other", `{"seed":9,"training":{"steps":4},"agent":{"command":["<img>"],"environment":{"API_KEY":"other-secret"}}}`)
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/")
	require.Contains(t, body, `type="checkbox" name="run" value="other"`)
	body, reply := get(t, server.URL+"/compare?run=demo&run=other")
	require.Equal(t, http.StatusOK, reply.StatusCode)
	require.Contains(t, body, "<code>seed</code>")
	require.Contains(t, body, "&lt;img&gt;")
	require.NotContains(t, body, "other-secret")
	require.NotContains(t, body, "very-secret")
	require.NotContains(t, body, "<code>training.steps</code>", "it is alike")
	require.Regexp(t, `[1-9]\d* keys are equal`, body)
	require.Contains(t, body, "Reward: demo from 0.500 at step 1 to 0.500 at step 2; other from 0.250 at step 1 to 0.750 at step 3")
	require.Contains(t, html.UnescapeString(body), `"name":"other","points":[[1,0.25],`)
	for query, want := range map[string]string{
		"":                         "Tick two runs or more",
		"?run=demo":                "Tick two runs or more",
		"?run=demo&run=%3Cb%3E":    "There is no run &lt;b&gt;",
		"?run=demo&run=other&to=1": `"to":1`,
	} {
		body, reply := get(t, server.URL+"/compare"+query)
		require.Equal(t, http.StatusOK, reply.StatusCode, query)
		require.Contains(t, html.UnescapeString(body)+body, want, query)
	}
}

// evaluated puts whole evaluations of versions 3 and 4 on record, which can be compared. Version
// 4 is better on every other task, and worse on none.
func (r *recorded) evaluated() {
	r.t.Helper()
	ctx, t := r.t.Context(), r.t
	for version := 3; version <= 4; version++ {
		for task := range r.tasks {
			a, err := r.store.BeginAttempt(ctx, trace.RolloutID{Run: "demo", Kind: trace.Gate, Step: version, Task: task}, r.tasks[task].ID, trace.Terms{Policy: model.DefaultPolicy, Version: version}, "c")
			require.NoError(t, err)
			reward := float64((task + version) % 2)
			if version == 4 {
				reward = 1
			}
			require.NoError(t, r.store.SealAttempt(ctx, trace.Attempt{Address: a, Outcome: trace.Completed, Reward: &reward, Result: fmt.Sprintf("said by version %d on %d", version, task)}))
		}
		require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{
			Kind: trace.Gate, Version: version, Tasks: len(r.tasks), Rollouts: len(r.tasks), Mean: 0.5,
		}}))
	}
}

func TestVersionsAreComparedAsTheToolDoes(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain words")
	ctx := t.Context()
	r.evaluated()
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo/versions/compare?a=3&b=demo%404&split=gate")
	require.Contains(t, body, "B is better on 2 of 5 tasks, worse on 0, equal on 3")
	require.Contains(t, body, `<a href="/runs/demo/versions/compare/task?a=demo%403&amp;b=demo%404&amp;split=gate&amp;task=1">task-1 plain words</a>`, "the task leads to both, side by side")
	require.Contains(t, body, `<a href="/runs/demo/gate-4/1">1.000</a>`, "a reward leads to its group")
	require.Contains(t, body, "On 3 tasks both earned the same; they are not listed.")
	require.Equal(t, 2, strings.Count(body, `data-label="B − A">&#43;1.000</td>`), "only what changed")
	require.NotContains(t, body, "Tasks on which B is worse")
	require.Contains(t, body, "said by version 4 on 1")
	require.Contains(t, body, "said by version 3 on 1")
	require.Contains(t, body, `B is one step further than the other. <a href="/runs/demo/train-4">step 4</a>`)
	require.Contains(t, body, "Nobody changed a setting meanwhile.")
	back, _ := get(t, server.URL+"/runs/demo/versions/compare?a=4&b=3")
	require.Contains(t, back, "Tasks on which B is worse", "without a split it is the one that both have")
	require.Contains(t, back, `<td class="n down" data-label="B − A">−1.000</td>`)
	ticked, _ := get(t, server.URL+"/runs/demo/versions/compare?v=4&v=3")
	require.Contains(t, ticked, `name="a" value="demo@3"`)
	require.Contains(t, ticked, "B is better on 2 of 5 tasks")
	list, _ := get(t, server.URL+"/runs/demo/versions")
	require.Contains(t, list, `<input type="checkbox" name="v" value="2"`)

	r.secondRun("other", `{"seed":9}`)
	a := record.Action{ID: "setting-1", Run: "demo", Name: record.ActionSet, By: "ada", Input: record.ActionInput{Values: map[string]float64{"loss.clip_low": 0.1}}}
	_, err := r.store.BeginAction(ctx, a)
	require.NoError(t, err)
	require.NoError(t, r.store.EndAction(ctx, a.ID, record.ActionDone, record.ActionResult{Step: 2}))
	body, _ = get(t, server.URL+"/runs/demo/versions/compare?a=1&b=2")
	require.Contains(t, body, "from step 2 on loss.clip_low=0.1, set by ada")
	require.Contains(t, body, `<td>train/entropy</td><td class="n">1.000</td><td class="n">0.500</td><td class="n">−0.500</td>`)
	body, _ = get(t, server.URL+"/runs/demo/versions/compare?a=1&b=other%401")
	require.Contains(t, body, "The versions are from two runs whose specs differ in")
	require.Contains(t, body, "<code>seed</code>")
	require.Contains(t, links(t, body), "/compare?run=demo&run=other")
	for query, want := range map[string]string{
		"":                        "Name two versions",
		"?v=3":                    "1 version is ticked",
		"?a=0&b=4&split=gate":     "rewards are missing",
		"?a=3&b=77&split=gate":    "no evaluation demo@77",
		"?a=3&b=nobody%404":       "not found",
		"?a=3&b=%3Cscript%3E":     "&lt;script&gt;",
		"?a=3&b=4&split=sideways": "no evaluation",
	} {
		body, reply := get(t, server.URL+"/runs/demo/versions/compare"+query)
		require.Equal(t, http.StatusOK, reply.StatusCode, query)
		require.Contains(t, body, want, query)
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
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo")
	require.Contains(t, body, "Speed: tokens a second from 8.000 at step 1 to 8.000 at step 2", "80 tokens in ten seconds")
	require.Contains(t, body, "Zero in every step: Mismatch, Lag.")
	require.Contains(t, body, "version 2 not promoted")
	require.Equal(t, 5, strings.Count(body, `<g class="refused">`), "marked on reward, evaluations, entropy, KL and gradient norm")
	body, _ = get(t, server.URL+"/runs/demo/tasks")
	require.Contains(t, body, `aria-label="version 0: 0 of 1, version 2: 0 of 1"`)
	require.Contains(t, body, `<details class="split" id="split-train" open>`)
	body, _ = get(t, server.URL+"/runs/demo/versions")
	require.NotContains(t, body, "Show all", "all were evaluated")
	for number := 3; number <= 6; number++ {
		r.savedVersion(number, false)
	}
	body, _ = get(t, server.URL+"/runs/demo/versions")
	require.Contains(t, body, "3 versions were not evaluated.")
	require.Contains(t, links(t, body), "?all=1")
	require.NotContains(t, body, `name="v" value="4"`)
	body, _ = get(t, server.URL+"/runs/demo/versions?all=1")
	require.Contains(t, body, `name="v" value="4"`)
}
