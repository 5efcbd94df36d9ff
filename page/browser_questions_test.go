package page_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
)

// newQuestions makes a store with runs about which a reader has questions: in "demo" agents
// fail and a reply is cut off, "trained" gets better at some tasks and worse at none, and
// "untrained" has the same tasks.
func newQuestions(t *testing.T) *recorded {
	t.Helper()
	r := newRecorded(t, "plain")
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: 2 * perStep, Sample: 1})
	call := r.call(a, 0, -1, nil)
	call.Finish = record.FinishLength
	require.NoError(t, r.store.AppendCall(t.Context(), &call))
	require.NoError(t, r.store.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.AgentFailed, Failure: "exit", Error: "exit code 1\nKeyError: 'answer'", Reward: new(float64)}))
	r.says = func(version, task, sample int) string {
		return fmt.Sprintf("version %d answers task %d with %d", version, task, sample)
	}
	for range 10 { // enough for certainty
		r.tasks = append(r.tasks, tasks.Task{ID: fmt.Sprintf("task-%d", len(r.tasks)), Input: "1+1", Answer: "2"})
	}
	r.measured("trained", false, []int{0, 4}, func(version, task, _ int) float64 { return float64(min(version, task, 1)) })
	r.measured("untrained", false, []int{0}, func(int, int, int) float64 { return 0 })
	return r
}

// reply makes the reply to a call a text.
func (r *recorded) reply(call *record.Exchange, text string) {
	r.t.Helper()
	reply, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": text}}}})
	require.NoError(r.t, err)
	call.Response = reply
}

// click follows a link or presses a button, and waits for the heading of the page that follows.
func (b *browser) click(of, heading string) {
	b.t.Helper()
	b.run(chromedp.Click(of), chromedp.WaitVisible(fmt.Sprintf(`//h1[contains(., %q)]`, heading)))
}

func TestBrowserFindsRepliesThatWereCutOffInTwoClicks(t *testing.T) {
	b := openBrowser(t)
	server := newQuestions(t).serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), following())
	b.click(`//a[.="1 cut off"]`, "Replies that were cut off")
	require.Equal(t, "1 of 1 reply", value(b, chromedp.Text(`//td[@data-label="Cut off"]`)))
	b.click(`//td/a[contains(., "sample 1, attempt 1")]`, "Sample 1, attempt 1")
	b.run(chromedp.WaitVisible(`//article[@id="call-0"]//span[.="cut off at a limit of tokens"]`))
	b.quiet("replies that were cut off")
}

func TestBrowserShowsATaskBeforeAndAfterTrainingInTwoClicks(t *testing.T) {
	b := openBrowser(t)
	server := newQuestions(t).serve(nil)
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1300}, {"dark", 400}} {
		b.look(look.scheme, look.width, 900)
		b.run(chromedp.Navigate(server.URL+"/runs/trained"), following())
		b.click(`//a[.="what changed"]`, "Comparison of two versions")
		b.click(`//section[h2[.="Tasks on which B is better"]]//a[starts-with(., "task-1 ")]`, "Task task-1")
		// Both conversations, from wrong to right.
		b.run(chromedp.WaitVisible(`//article[.//h2[.="trained@0 Sample 0"]][.//span[@class="reward"][.="0.000"]]//pre[contains(., "version 0 answers task 1 with 0")]`))
		b.run(chromedp.WaitVisible(`//article[.//h2[.="trained@4 Sample 0"]][.//span[@class="reward"][.="1.000"]]//pre[contains(., "version 4 answers task 1 with 0")]`))
		beside := value(b, chromedp.Evaluate[bool](`(() => { const [a, b] = [...document.querySelectorAll(".sample")].map((e) => e.getBoundingClientRect()); return a.top === b.top && a.right <= b.left; })()`))
		require.Equal(t, look.width > 640, beside, "side by side where there is room")
		require.LessOrEqual(t, value(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)), look.width)
		b.keep("/beside", look.scheme, look.width)
	}
	b.run(chromedp.Navigate(server.URL+"/runs/trained"), following())
	b.click(`//nav[@aria-label="Pages of the run"]/a[.="Tasks"]`, "Tasks")
	b.click(`//tr[td/a[starts-with(., "task-1 ")]]//a[@aria-label="Before and after, side by side"]`, "Task task-1")
	b.quiet("before and after")
}

func TestBrowserSaysWhichRunIsBetterInTwoClicks(t *testing.T) {
	b := openBrowser(t)
	server := newQuestions(t).serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/trained"), following())
	first := value(b, chromedp.Evaluate[string](`document.querySelector("form[action='/compare'] select").value`))
	require.Equal(t, "untrained", first, "the run with the same tasks comes first")
	b.click(`//button[.="Which is better?"]`, "Comparison of runs")
	b.run(chromedp.WaitVisible(`//section[h2[.="Which is better, and is it certain?"]]//li[contains(., "trained@4 is better")][contains(., "95 % interval")]`))
	b.click(`//a[.="Task by task"]`, "Comparison of two versions")
	b.quiet("which run is better")
}

func TestBrowserSaysWhyAgentsFailedInTwoClicks(t *testing.T) {
	b := openBrowser(t)
	r := newQuestions(t)
	batch, err := r.store.Batch(t.Context(), "demo", model.DefaultPolicy, 2)
	require.NoError(t, err)
	r.finish(3, batch.Digest)
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), following())
	b.click(`//td/a[@href="/runs/demo/train-3"]`, "Step 3")
	b.run(chromedp.WaitVisible(`//section[h2[.="Failures by type"]]//p[@class="cause"][.="KeyError: 'answer'"]`))
	b.run(chromedp.Click(`//section[h2[.="Failures by type"]]//a[.="ended with an error"]`), chromedp.WaitVisible(`//section[@id="picked"]//td/a[contains(., "sample 1, attempt 1")]`))
	b.quiet("why agents failed")
}

func TestBrowserSaysThatARunIsStopping(t *testing.T) {
	b := openBrowser(t)
	r := newQuestions(t)
	server := r.serve(asked{state: page.State{Phase: "rollouts", Pending: -1, Stop: &record.Stop{By: "ada", Reason: "enough", After: 3, Of: 12}}})
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), chromedp.WaitVisible(`//p[@class="warn"][contains(., "stopping, asked by ada: enough; it ends after step 3 of 12")]`))
	b.run(chromedp.Navigate(server.URL+"/"), chromedp.WaitVisible(`//tr[@class="notes"]//p[contains(., "stopping, asked by ada")]`))
	stopped, err := json.Marshal(map[string]any{"stopped": record.Stop{By: "ada", Reason: "enough", After: 3, Of: 12}})
	require.NoError(t, err)
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Stopped, stopped))
	b.run(chromedp.Navigate(r.serve(nil).URL+"/runs/demo"), chromedp.WaitVisible(`//span[contains(@class, "stopped")]`), chromedp.WaitVisible(`//p[contains(., "stopped at 3 of 12")]`))
	b.quiet("stopping")
}
