package page_test

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// many is how many rows the lists of these tests have: more than can be taken in at a glance.
const many = 25

// newMany makes a store with many runs, of which "demo" has many tasks, evaluated twice, and
// many versions.
func newMany(t *testing.T) (*recorded, *httptest.Server) {
	t.Helper()
	ctx := t.Context()
	r := newEmpty(t, "plain")
	_, _, err := r.store.CreateRun(ctx, record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "e", Spec: []byte(`{"seed":7,"training":{"steps":24},"evaluation":{"samples":1}}`), Splits: map[record.Kind]record.Split{record.Test: {Count: many}}})
	require.NoError(t, err)
	for task := range many {
		for version := range 2 {
			// Task 7 gets worse, task 11 better, all others stay.
			reward := float64(task % 2)
			if version == 1 && (task == 7 || task == 11) {
				reward = map[int]float64{7: 0, 11: 2}[task]
			}
			for _, kind := range []record.Kind{record.Test, record.Train} {
				step := version
				if kind == record.Train {
					step++
				}
				a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task}, fmt.Sprintf("task-%02d", task), record.Terms{Policy: model.DefaultPolicy, Version: version, Codec: dialog.CompactName}, "c0ffee")
				require.NoError(t, err)
				end := record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}
				if task == 3 {
					end.Outcome, end.Failure, end.Error = record.AgentFailed, "exit", "exit code 2\nKeyError: 'answer'"
				}
				require.NoError(t, r.store.SealAttempt(ctx, end))
			}
		}
	}
	for version := range many {
		_, _, err := r.store.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: version}, Parent: version - 1, Weights: fmt.Sprintf("sha256:%064d", 100+version)})
		require.NoError(t, err)
		if version < 2 || version == 20 {
			require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: version, Mean: []float64{0.5, 0.7, 0.6}[min(version, 2)]}}))
		}
		if version < 2 {
			require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Test, Version: version, Tasks: many, Rollouts: many}}))
		}
	}
	r.manyRecords()
	for i := range many - 1 {
		name := fmt.Sprintf("other-%02d", i)
		spec := `{"seed":1}`
		if i == 1 { // keys
			spec = `{"seed":1,"agent":{"environment":{` + strings.TrimPrefix(variables(), ",") + `}}}`
		}
		_, _, err := r.store.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: name, Spec: []byte(spec)})
		require.NoError(t, err)
		if i%2 == 0 {
			require.NoError(t, r.store.PutStep(ctx, record.Step{Run: name, Policy: model.DefaultPolicy, Step: 1, Metrics: map[string]float64{"reward/mean": float64(i) / 100}, At: time.Now()}))
		}
		if i < 3 {
			require.NoError(t, r.store.FinishRun(ctx, name, record.Completed, nil))
		}
	}
	return r, r.serve(nil)
}

// manyRecords adds many steps, quarantines and actions to the run, of which some differ from the
// rest, and many evaluations to another run.
func (r *recorded) manyRecords() {
	t, ctx := r.t, r.t.Context()
	t.Helper()
	for i := range many {
		metrics := map[string]float64{"reward/mean": float64(i*7%many) / 100, "batch/trained_tokens": 8}
		switch i + 1 {
		case 3:
			metrics["batch/failed"] = 2
		case 4:
			metrics["batch/cut_off"] = 1
		case 5:
			metrics["batch/trained_tokens"] = 0
		case many:
			delete(metrics, "reward/mean")
		}
		for k := range many {
			metrics[fmt.Sprintf("measure/%02d", k)] = float64(k)
		}
		require.NoError(t, r.store.PutStep(ctx, record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: i + 1, Metrics: metrics, At: time.Unix(int64(i), 0)}))
		require.NoError(t, r.store.PutQuarantine(ctx, record.Quarantine{Run: "demo", Policy: model.DefaultPolicy, Step: 2 + i/many, Kind: record.Train, Task: 100 + i, Index: many - i, Reason: fmt.Sprintf("reason %02d", i%5)}))
		require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "other-00", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: []record.Kind{record.Gate, record.Test}[i%2], Version: i, Mean: float64(i*7%many) / 100}}))
		a := record.Action{ID: fmt.Sprintf("action-%02d", i), Run: "demo", Name: record.ActionPause, By: fmt.Sprintf("person-%02d", i), At: time.Unix(int64(i), 0)}
		_, err := r.store.BeginAction(ctx, a)
		require.NoError(t, err)
		if i < 4 {
			require.NoError(t, r.store.EndAction(ctx, a.ID, record.ActionRefused, record.ActionResult{Message: "it is paused already"}))
		}
	}
}

// variables returns many keys of an object.
func variables() string {
	var b strings.Builder
	for i := range many {
		fmt.Fprintf(&b, `,"VARIABLE_%02d":"x"`, i)
	}
	return b.String()
}

func TestLongListsAreSearchedFilteredAndSortedByTheAddress(t *testing.T) {
	t.Parallel()
	_, server := newMany(t)
	runs, tasks, groups, versions := `class="name" href="/runs/([^"/]+)"`, `dir="auto">(task-\d+)</a>`, `dir="auto">(task-\d+)</a>`, `aria-label="Compare version (\d+)"`
	steps, evaluations, actions, metrics := `<td class="n"><a href="/runs/demo/train-(\d+)"`, `<td class="n">(\d+)</td><td class="n">\d\.`, `<td>person-(\d+)</td>`, `<td>measure/(\d+)</td>`
	quarantines, quarantined, keys := `<a href="/runs/demo/train-\d+/(\d+)">train \d+</a>`, `<a href="/runs/demo/train-2/(\d+)">task \d+ of the split</a>`, `<code>agent.environment.VARIABLE_(\d+)</code>`
	for _, c := range []struct {
		path, of string
		want     string // the first rows
		rows     int    // of the page
	}{
		{"/", runs, "other-23 other-22", many},
		{"/?q=OTHER-0", runs, "other-09 other-08", 10},
		{"/?show=completed", runs, "other-02 other-01 other-00", 3},
		{"/?sort=oldest", runs, "demo other-00", many},
		{"/?sort=reward", runs, "other-22 other-20", many},
		{"/?q=other&sort=low", runs, "other-00 other-02", many - 1},
		{"/?q=nothing", runs, "", 0},
		{"/runs/demo/tasks?test_q=task-17", tasks, "task-17", 1},
		{"/runs/demo/tasks?test_sort=worse", tasks, "task-07 task-", many},
		{"/runs/demo/tasks?test_sort=better", tasks, "task-11 task-", many},
		{"/runs/demo/tasks?test_show=failed", tasks, "task-03", 1},
		{"/runs/demo/tasks?test_sort=name&test_from=20", tasks, "task-20 task-21", 5},
		{"/runs/demo/test-1?sort=name", groups, "task-00 task-01", many},
		{"/runs/demo/test-1?q=task-1&sort=high", groups, "task-11 task-13", 10},
		{"/runs/demo/train-1?q=task-24", groups, "task-24", 1},
		{"/runs/demo/versions?show=evaluated&sort=gate", versions, "1 20 0", 3},
		{"/runs/demo/versions?q=118", versions, "18", 1},
		{"/runs/demo/versions?sort=oldest", versions, "0 1 2", many},
		{"/runs/demo/versions?all=1&from=20", versions, "4 3 2 1 0", 5},
		{"/runs/demo/versions?from=20", versions, "1 0", 2}, // that were evaluated
		{"/runs/demo/steps", steps, "25 24", many},
		{"/runs/demo/steps?q=step+2", steps, "25 24 23", 7},
		{"/runs/demo/steps?show=failed", steps, "3", 1},
		{"/runs/demo/steps?show=cut", steps, "4", 1},
		{"/runs/demo/steps?show=untaught", steps, "5", 1},
		{"/runs/demo/steps?sort=oldest&from=20", steps, "21 22", 5},
		{"/runs/demo/steps?sort=reward", steps, "8 15 22", many}, // rewards 24, 23, 22 of a hundred
		{"/runs/other-00/steps", evaluations, "24 23", many},
		{"/runs/other-00/steps?evaluation_show=test&evaluation_sort=high", evaluations, "7 21", 12},
		{"/runs/other-00/steps?evaluation_q=version+1&evaluation_sort=oldest", evaluations, "1 10 11", 11},
		{"/runs/demo/actions", actions, "24 23", many},
		{"/runs/demo/actions?show=refused&sort=oldest", actions, "00 01", 4},
		{"/runs/demo/actions?q=PERSON-1", actions, "19 18", 10},
		{"/runs/demo/tasks?quarantine_sort=task", quarantines, "124 123", many},
		{"/runs/demo/tasks?quarantine_q=reason+03&quarantine_sort=oldest", quarantines, "103 108", 5},
		{"/runs/demo/train-2", quarantined, "100 101", 20},
		{"/runs/demo/train-2?quarantined_from=20", quarantined, "120 121", 5},
		{"/runs/demo/train-2?quarantined_q=reason+04", quarantined, "104 109", 5},
		{"/runs/demo/train-1?metric_q=measure/1", metrics, "10 11", 10},
		{"/compare?run=other-00&run=other-01", keys, "00 01", many},
		{"/compare?run=other-00&run=other-01&key_q=variable_1", keys, "10 11", 10},
		{"/runs/demo/versions/compare?a=2&b=3&metric_q=measure/2&metric_sort=rose", metrics, "20 21", 5},
	} {
		body, reply := get(t, server.URL+c.path)
		require.Equal(t, 200, reply.StatusCode)
		if strings.Contains(c.path, "/tasks?test_") { // of the split that is asked for
			_, body, _ = strings.Cut(body, `id="split-test"`)
		}
		var got []string
		for _, m := range regexp.MustCompile(c.of).FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		require.Len(t, got, c.rows, c.path)
		require.Contains(t, body, `role="search"`, "%s has the form", c.path)
		require.True(t, strings.HasPrefix(strings.Join(got, " "), c.want), "%s: %v", c.path, got)
	}
	body, _ := get(t, server.URL+"/runs/demo/train-1?attempts&attempt_q=failed&failure=")
	require.Contains(t, texts(t, body), "Attempts: all")
	require.Contains(t, texts(t, body), "task-03, sample 0, attempt 1 KeyError: 'answer' agent failed")
	require.Contains(t, texts(t, body), "1 of 25")
	body, _ = get(t, server.URL+"/runs/demo/train-1?attempts&attempt_sort=high")
	require.Regexp(t, `Tokens task-01, sample 0, attempt 1 `, texts(t, body))
	require.Contains(t, body, `<input type="hidden" name="attempts" value="">`, "a form keeps what the page shows elsewhere")
	for _, hostileQuery := range []string{"?q=%3Cscript%3E&sort=nothing&show=nothing&from=-3", "?q=%ff%00", "?from=999999999999"} {
		for _, path := range []string{"/", "/runs/demo/tasks", "/runs/demo/train-1", "/runs/demo/versions", "/runs/demo/steps", "/runs/demo/actions", "/runs/demo/cut-off"} {
			body, reply := get(t, server.URL+path+hostileQuery)
			require.Equal(t, 200, reply.StatusCode, path)
			require.NotContains(t, body, "<script>")
		}
	}
}

func TestShortListsHaveNoFormToSearchThem(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	for _, path := range []string{"/", "/runs/demo/tasks", "/runs/demo/train-1", "/runs/demo/versions", "/runs/demo/steps", "/runs/demo/actions", "/runs/demo/cut-off"} {
		body, _ := get(t, server.URL+path)
		require.NotContains(t, body, `role="search"`, path)
	}
}

func TestBrowserFindsWhatTrainingChangedForATask(t *testing.T) {
	b := openBrowser(t)
	_, server := newMany(t)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), following())
	// One click, and a word: the task before and after, each a link to its attempts.
	b.run(chromedp.Click(`//nav[@aria-label="Pages of the run"]/a[.="Tasks"]`), chromedp.WaitVisible(`//h1[.="Tasks"]`))
	value(b, chromedp.Evaluate[bool](`document.getElementById("split-test").open = true`))
	b.run(chromedp.SendKeys(chromedp.CSS(`[name=test_q]`), "task-07"+kb.Enter), chromedp.WaitVisible(`//details[@id="split-test"]//a[@href="/runs/demo/test-0/7"]`), chromedp.WaitVisible(`//details[@id="split-test"]//a[@href="/runs/demo/test-1/7"]`))
	require.Equal(t, "task-07", value(b, chromedp.Evaluate[string](`document.querySelector("[name=test_q]").value`)))
	// Why did it fail: the cause stands on the page of the step that the run's page links.
	b.run(chromedp.Navigate(server.URL+"/runs/demo/train-1"), chromedp.WaitVisible(`//p[@class="cause"][contains(., "KeyError")]`))
	b.quiet("searching")
}
