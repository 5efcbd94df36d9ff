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
	"github.com/fulgurite/fulgurite/trace"
)

// many is how many rows the lists of these tests have: more than can be taken in at a glance.
const many = 25

// newMany makes a store with many runs, of which "demo" has many tasks, evaluated twice, and
// many versions.
func newMany(t *testing.T) (*recorded, *httptest.Server) {
	t.Helper()
	ctx := t.Context()
	r := newEmpty(t, "plain")
	_, _, err := r.store.CreateRun(ctx, record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "e", Spec: []byte(`{"seed":7,"training":{"steps":24},"evaluation":{"samples":1}}`), Splits: map[trace.Kind]record.Split{trace.Test: {Count: many}}})
	require.NoError(t, err)
	for task := range many {
		for version := range 2 {
			// Task 7 gets worse, task 11 better, all others stay.
			reward := float64(task % 2)
			if version == 1 && (task == 7 || task == 11) {
				reward = map[int]float64{7: 0, 11: 2}[task]
			}
			for _, kind := range []trace.Kind{trace.Test, trace.Train} {
				step := version
				if kind == trace.Train {
					step++
				}
				a, err := r.store.BeginAttempt(ctx, trace.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task}, fmt.Sprintf("task-%02d", task), trace.Terms{Policy: model.DefaultPolicy, Version: version, Codec: dialog.CompactName}, "c0ffee")
				require.NoError(t, err)
				end := trace.Attempt{Address: a, Outcome: trace.Completed, Reward: &reward}
				if task == 3 {
					end.Outcome, end.Failure, end.Error = trace.AgentFailed, "exit", "exit code 2\nKeyError: 'answer'"
				}
				require.NoError(t, r.store.SealAttempt(ctx, end))
			}
		}
	}
	for version := range many {
		_, _, err := r.store.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: version}, Parent: version - 1, Weights: fmt.Sprintf("sha256:%064d", 100+version)})
		require.NoError(t, err)
		if version < 2 || version == 20 {
			require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: trace.Gate, Version: version, Mean: []float64{0.5, 0.7, 0.6}[min(version, 2)]}}))
		}
		if version < 2 {
			require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: trace.Test, Version: version, Tasks: many, Rollouts: many}}))
		}
	}
	for i := range many - 1 {
		name := fmt.Sprintf("other-%02d", i)
		_, _, err := r.store.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: name, Spec: []byte(`{"seed":1}`)})
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

func TestLongListsAreSearchedFilteredAndSortedByTheAddress(t *testing.T) {
	t.Parallel()
	_, server := newMany(t)
	runs, tasks, groups, versions := `class="name" href="/runs/([^"/]+)"`, `dir="auto">(task-\d+)</a>`, `dir="auto">(task-\d+)</a>`, `aria-label="Compare version (\d+)"`
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
	} {
		body, reply := get(t, server.URL+c.path)
		require.Equal(t, 200, reply.StatusCode)
		if strings.Contains(c.path, "/tasks?") { // of the split that is asked for
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
		for _, path := range []string{"/", "/runs/demo/tasks", "/runs/demo/train-1", "/runs/demo/versions"} {
			body, reply := get(t, server.URL+path+hostileQuery)
			require.Equal(t, 200, reply.StatusCode, path)
			require.NotContains(t, body, "<script>")
		}
	}
}

func TestShortListsHaveNoFormToSearchThem(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	for _, path := range []string{"/", "/runs/demo/tasks", "/runs/demo/train-1", "/runs/demo/versions"} {
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
