package page_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// evaluationSamples is how many attempts at each task an evaluation of measured makes at
// the temperature of the spec. The next sample is made at temperature 0.
const evaluationSamples = 2

// measured adds a run with evaluations of versions on the test split: whole ones, with
// every attempt. reward returns what an attempt earned. A run with only has no training.
func (r *recorded) measured(name string, only bool, versions []int, reward func(version, task, sample int) float64) {
	r.t.Helper()
	ctx, t := r.t.Context(), r.t
	sp := spec.Spec{Seed: seed, Training: spec.Training{Steps: 4, TasksPerStep: perStep, SamplesPerTask: samples}, Evaluation: spec.Evaluation{Samples: evaluationSamples}}
	if only {
		sp.Evaluation.Only = string(record.Test)
	}
	text, err := json.Marshal(sp.WithDefaults())
	require.NoError(t, err)
	data, err := tasks.Encode(r.tasks)
	require.NoError(t, err)
	digest, err := r.blobs.Put(ctx, data)
	require.NoError(t, err)
	_, _, err = r.store.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: "e", Spec: text, Splits: map[record.Kind]record.Split{record.Test: {Digest: digest, Count: len(r.tasks)}}})
	require.NoError(t, err)
	for _, version := range versions {
		var sum, squares, greedy float64
		for task := range r.tasks {
			for sample := range evaluationSamples + 1 {
				earned := reward(version, task, sample)
				temperature := 1.0
				if sample == evaluationSamples {
					temperature, greedy = 0, greedy+earned
				} else {
					sum, squares = sum+earned, squares+earned*earned
				}
				a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: name, Kind: record.Test, Step: version, Task: task, Sample: sample}, r.tasks[task].ID,
					record.Terms{Policy: model.DefaultPolicy, Version: version, Codec: dialog.CompactName, Temperature: temperature}, "c")
				require.NoError(t, err)
				if r.says != nil {
					call := r.call(a, 0, -1, nil)
					call.Version = version
					r.reply(&call, r.says(version, task, sample))
					require.NoError(t, r.store.AppendCall(ctx, &call))
				}
				require.NoError(t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &earned, Result: "said"}))
			}
		}
		n := float64(evaluationSamples * len(r.tasks))
		mean := sum / n
		greedy /= float64(len(r.tasks))
		require.NoError(t, r.store.PutEvaluation(ctx, record.Evaluation{Run: name, Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{
			Kind: record.Test, Version: version, Tasks: len(r.tasks), Rollouts: int(n), Mean: mean, StdError: math.Sqrt(max(0, squares-n*mean*mean) / (n - 1) / n), Greedy: &greedy,
		}}))
	}
	require.NoError(t, r.store.Promote(ctx, record.Promotion{Run: name, Policy: model.DefaultPolicy, DecisionID: "first", Previous: -1, Source: record.SourceGate}))
}

// better is a reward that training raises: version 0 solves one task, later versions all
// but one. What is sampled at temperature 0 is always right, and weights of a rubric add
// up to a little less than 1.
func better(version, task, sample int) float64 {
	switch {
	case sample == evaluationSamples || task == 0 && sample == 0:
		return 1
	case version > 0 && task < 4:
		return 0.9999999999999999
	}
	return 0
}

// recomputed returns the mean and its standard error of an evaluation, from all attempts of
// the run on record.
func (r *recorded) recomputed(run string, version int, greedy bool) (mean, stdError, passed float64) {
	r.t.Helper()
	trials, err := r.store.Trials(r.t.Context(), run, model.DefaultPolicy)
	require.NoError(r.t, err)
	var rewards []float64
	for _, t := range trials {
		attempt, err := r.store.Attempt(r.t.Context(), t.Address)
		require.NoError(r.t, err)
		if t.Kind == record.Test && t.Step == version && (attempt.Terms.Temperature == 0) == greedy {
			rewards = append(rewards, *attempt.Reward)
		}
	}
	n := float64(len(rewards))
	for _, reward := range rewards {
		mean += reward / n
		if reward > 0.999 {
			passed += 1 / n
		}
	}
	for _, reward := range rewards {
		stdError += (reward - mean) * (reward - mean) / (n - 1) / n
	}
	return mean, math.Sqrt(stdError), passed
}

func TestAnEvaluationShowsTheFiguresOfItsAttempts(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "evaluation_figures")
	r := newEmpty(t, "plain")
	r.measured("measured", false, []int{0, 4}, better)
	server := r.serve(nil)
	for _, version := range []int{0, 4} {
		body := shown.get(server.URL, fmt.Sprintf("/runs/measured/test-%d", version))
		text := texts(t, body)
		mean, stdError, _ := r.recomputed("measured", version, false)
		greedy, _, _ := r.recomputed("measured", version, true)
		require.NotEqual(t, mean, greedy)
		require.Contains(t, text, format.Fixed(mean)+" ± "+format.Fixed(stdError))
		require.Contains(t, text, format.Fixed(greedy))
		require.Contains(t, text, "15 of 15")
		require.NotContains(t, text, "pread", "an evaluation trains on no differences")
	}
	body := shown.get(server.URL, "/runs/measured/test-4")
	text := texts(t, body)
	require.Contains(t, text, " 1 0.800", "rounding takes no success away")
	require.Contains(t, text, "task-4 plain 0 / 2 0.000 1.000 3")
	require.Contains(t, links(t, body), "/runs/measured/versions/compare?a=0&b=4&split=test")
	body = shown.get(server.URL, "/runs/measured/test-4/4")
	require.Contains(t, texts(t, body), "Samples 3", "the sample at temperature 0 is not among them")
	require.Contains(t, links(t, body), "/runs/measured/test-4/4/2/1")
	shown.get(server.URL, "/runs/measured/test-4/4/2/1")
}

func TestAnEvaluationUnderWaySaysHowFarItIs(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "evaluation_under_way")
	r := newEmpty(t, "plain")
	r.measured("measured", false, []int{0}, better)
	earned := 1.0
	for sample := range 3 {
		a, err := r.store.BeginAttempt(t.Context(), record.RolloutID{Run: "measured", Kind: record.Test, Step: 2, Sample: sample}, r.tasks[0].ID, record.Terms{Policy: model.DefaultPolicy, Codec: dialog.CompactName}, "c")
		require.NoError(t, err)
		if sample != 1 {
			require.NoError(t, r.store.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &earned}))
		}
	}
	body := shown.get(r.serve(nil).URL, "/runs/measured/test-2")
	require.Contains(t, texts(t, body), "1.000 ± 0.000")
	require.Contains(t, texts(t, body), "2 of 15")
}

func TestARunThatOnlyEvaluatesShowsItsTasksAndNoCurves(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "evaluation_only")
	r := newEmpty(t, "plain")
	r.measured("measured", true, []int{0}, better)
	body := shown.get(r.serveActing(), "/runs/measured")
	text := texts(t, body)
	mean, stdError, _ := r.recomputed("measured", 0, false)
	require.Contains(t, text, format.Fixed(mean)+" ± "+format.Fixed(stdError))
	require.Contains(t, text, "pass@k")
	require.Contains(t, links(t, body), "/runs/measured/test-0/4")
	require.Contains(t, links(t, body), "/runs/measured/test-0")
	for _, unwanted := range []string{"Curves", "Promote", "Roll back", "Every prompt", "Test, version"} {
		require.NotContains(t, text, unwanted)
	}
	body = shown.get(r.serveActing(), "/runs/measured/versions")
	require.NotContains(t, texts(t, body), "Roll back")
}

func TestWhatTrainingChangedForATaskIsTwoClicksAway(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "training_changed")
	r := newEmpty(t, "plain")
	r.measured("measured", false, []int{0, 2, 4}, better)
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/measured")
	const changed = "/runs/measured/versions/compare?a=0&b=4&split=test"
	require.Contains(t, links(t, body), changed, "one click")
	require.Contains(t, links(t, body), "/runs/measured/tasks")
	body = shown.get(server.URL, "/runs/measured/tasks")
	require.Contains(t, links(t, body), changed)
	text := texts(t, body)
	_, _, before := r.recomputed("measured", 0, false)
	_, _, after := r.recomputed("measured", 4, false)
	require.Contains(t, text, format.Fixed(after))
	require.Contains(t, text, format.Fixed(before))
	require.Contains(t, text, "task-1 plain 2 / 2 0.000 1.000 +1.000 0")
	require.Contains(t, body, "<title>version 0: 0 of 2, version 4: 2 of 2</title>")
	require.Contains(t, links(t, body), "/runs/measured/test-0/1", "the task before")
	require.Contains(t, links(t, body), "/runs/measured/test-4/1", "and after")
	body = shown.get(server.URL, changed)
	require.Contains(t, texts(t, body), "4 of 5")
}

func TestRunsAreComparedOnTheSameTasks(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "runs_compared_by_tasks")
	r := newEmpty(t, "plain")
	for range 10 { // enough for certainty
		r.tasks = append(r.tasks, tasks.Task{ID: strconv.Itoa(len(r.tasks)), Input: "1+1", Answer: "2"})
	}
	always := func(reward float64) func(int, int, int) float64 { return func(int, int, int) float64 { return reward } }
	r.measured("poor", false, []int{0, 1}, always(0))
	r.measured("good", false, []int{0, 3}, always(1))
	r.measured("poor-too", false, []int{2}, always(0))
	r.tasks = r.tasks[:5]
	r.measured("other", false, []int{1}, always(1))
	server := r.serve(nil)
	body := shown.get(server.URL, "/compare?run=poor&run=good&run=poor-too")
	require.Contains(t, texts(t, body), "15 of 15")
	require.Contains(t, texts(t, body), "0 of 15")
	require.Contains(t, texts(t, body), "+1.000")
	require.NotContains(t, texts(t, body), "different tasks")
	var found string
	for _, l := range links(t, body) {
		if strings.HasPrefix(l, "/runs/poor/versions/compare?a=poor%401&b=good%403") {
			found = l
		}
	}
	require.NotEmpty(t, found)
	body = shown.get(server.URL, found)
	require.Contains(t, texts(t, body), "15 of 15")
	body = shown.get(server.URL, "/compare?run=poor&run=other")
	require.Contains(t, texts(t, body), "15 tasks")
	r.secondRun("empty", `{"seed":9}`)
	shown.get(server.URL, "/compare?run=poor&run=empty")
}

func TestRepliesThatWereCutOffAreFound(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "cut_off_replies")
	r := newRecorded(t, "plain")
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1})
	for seq, finish := range []string{record.FinishLength, "stop", record.FinishLength} {
		call := r.call(a, seq, -1, nil)
		call.Finish = finish
		require.NoError(t, r.store.AppendCall(t.Context(), &call))
	}
	whole := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1, Sample: 1})
	call := r.call(whole, 0, -1, nil)
	require.NoError(t, r.store.AppendCall(t.Context(), &call))
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo/try-1")
	require.Contains(t, links(t, body), "?cut_off=1#picked")
	body = shown.get(server.URL, "/runs/demo/try-1?cut_off=1")
	require.Contains(t, links(t, body), "/runs/demo/try-1/0/0/1")
	require.NotContains(t, links(t, body), "/runs/demo/try-1/0/1/1")
	body = shown.get(server.URL, "/runs/demo/try-1/0")
	require.Contains(t, texts(t, body), "2 cut off")
	body = shown.get(server.URL, "/runs/demo/try-1/0/0/1")
	require.Contains(t, texts(t, body), "2 cut off")
	body = shown.get(server.URL, "/runs/demo/train-1")
	require.NotContains(t, texts(t, body), "cut off")
}

func TestEveryReplyOfARunThatWasCutOffIsInOneList(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "cut_off_list")
	r := newQuestions(t)
	for sample, finish := range []string{"stop", record.FinishLength} {
		a := r.begin(record.RolloutID{Run: "demo", Kind: record.Gate, Step: 3, Sample: sample})
		call := r.call(a, 0, -1, nil)
		call.Finish = finish
		require.NoError(t, r.store.AppendCall(t.Context(), &call))
	}
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo")
	require.Contains(t, texts(t, body), "2 cut off")
	require.Contains(t, links(t, body), "/runs/demo/cut-off")
	body = shown.get(server.URL, "/runs/demo/cut-off")
	require.Contains(t, texts(t, body), "1 of 1")
	require.Contains(t, links(t, body), "/runs/demo/train-3/4/1/1")
	require.NotContains(t, links(t, body), "/runs/demo/gate-3/0/0/1")
	body = shown.get(server.URL, "/runs/demo/cut-off?show=evaluations")
	require.Contains(t, texts(t, body), "1 of 2")
	require.NotContains(t, links(t, body), "/runs/demo/train-3/4/1/1")
	shown.get(server.URL, "/runs/untrained/cut-off")
}

func TestATaskBesideItselfSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "task_beside")
	r := newQuestions(t)
	r.measured("shorter", false, []int{0}, func(int, int, int) float64 { return 0 })
	server := r.serve(nil)
	const at = "/runs/trained/versions/compare/task"
	body := shown.get(server.URL, at+"?a=0&b=4&split=test&task=1")
	require.Contains(t, texts(t, body), "trained@0 0.000")
	require.Regexp(t, `trained@0 Sample 0 .* trained@4 Sample 0 .* trained@0 Sample 1 .* trained@4 Sample 1 `, texts(t, body))
	for _, c := range [][2]string{
		{"?a=0&b=7&split=test&task=1", "trained@7"},
		{"?a=0&b=4&split=test&task=99", "task 99"},
		{"?a=0&b=4&split=sideways&task=1", "no evaluation"},
		{"?b=4&split=test&task=0", "two versions"},
		{"?a=0&b=%3Cscript%3E&split=test&task=0", "run <script>"},
		{"?a=0&b=untrained%400&split=test&task=4", "untrained@0 0.000"},
	} {
		body := shown.get(server.URL, at+c[0])
		require.Contains(t, texts(t, body), c[1], c[0])
		require.NotContains(t, body, "<script>")
	}
	_, reply := get(t, server.URL+at+"?a=0&b=4&split=test&task=x")
	require.Equal(t, 404, reply.StatusCode)
}

func TestANameOfALaneEndsBeforeTheBars(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1})
	call := r.call(a, 0, -1, nil)
	call.Agent, call.Started, call.Duration = strings.Repeat("WIDE", 10), time.Unix(100, 0), time.Second
	require.NoError(t, r.store.AppendCall(t.Context(), &call))
	require.NoError(t, r.store.PutSpans(t.Context(), a, []record.Span{
		{Trace: "t", ID: "1", Kind: record.ModelSpan, Name: "chat", Agent: "writer", Started: call.Started, Ended: call.Started.Add(time.Second)},
		{Trace: "t", ID: "2", Kind: record.AgentSpan, Name: "write", Agent: "writer", Started: call.Started, Ended: call.Started.Add(time.Second)},
	}))
	body, _ := get(t, r.serve(nil).URL+"/runs/demo/try-1/0/0/1")
	require.Contains(t, body, "<title>model spans: writer</title>")
	require.Contains(t, body, "<title>agent spans: writer</title>")
	names, bars := 0, 0
	attribute := func(n *html.Node, key string) float64 {
		for _, a := range n.Attr {
			if a.Key == key {
				v, err := strconv.ParseFloat(a.Val, 64)
				require.NoError(t, err)
				return v
			}
		}
		t.Fatalf("<%s> has no %s", n.Data, key)
		return 0
	}
	for _, n := range elements(t, body) {
		class := ""
		for _, a := range n.Attr {
			if a.Key == "class" {
				class = a.Val
			}
		}
		switch {
		case n.Data == "svg" && class == "name": // which clips what it holds
			names++
			require.LessOrEqual(t, attribute(n, "x")+attribute(n, "width"), 185.0)
		case n.Data == "rect" && strings.HasPrefix(class, "bar "):
			bars++
			require.GreaterOrEqual(t, attribute(n, "x"), 190.0)
		}
	}
	require.Equal(t, 3, names)
	require.Equal(t, 3, bars)
}

func TestThePageOfAStepShowsTheFiguresOfItsAttempts(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	all, err := r.store.Trials(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	counts := map[string]int{}
	for i, one := range all {
		calls, err := r.store.Exchanges(t.Context(), one.Address)
		require.NoError(t, err)
		counts["calls"] += len(calls)
		for _, call := range calls {
			counts["tokens"] += len(call.Completion)
			if call.ReplayedFrom > 0 {
				counts["replayed"]++
			}
		}
		replaced := i+1 < len(all) && all[i+1].RolloutID == one.RolloutID
		switch {
		case one.Outcome != record.OutcomeRunning:
			counts[string(one.Outcome)]++
		case replaced:
			counts["lost"]++
		default:
			counts["running"]++
		}
	}
	require.Positive(t, counts["lost"])
	require.Positive(t, counts["running"])
	body, _ := get(t, server.URL+"/runs/demo")
	require.Contains(t, texts(t, body), fmt.Sprintf("%d attempts: %d completed, %d agent failed, 0 infra fault, %d lost, %d running · %d calls, %d replayed · %s tokens",
		len(all), counts["completed"], counts["agent_failed"], counts["lost"], counts["running"], counts["calls"], counts["replayed"], format.Count(counts["tokens"])))
	usage, err := r.store.Usage(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Equal(t, record.Usage{Calls: counts["calls"], Tokens: counts["tokens"], AgentFailed: counts["agent_failed"]}, usage, "what status shows")

	body, _ = get(t, server.URL+"/runs/demo/train-1")
	var rewards []float64
	for i, one := range all {
		if one.Kind == record.Train && one.Step == 1 && one.Reward != nil && (i+1 == len(all) || all[i+1].RolloutID != one.RolloutID) {
			rewards = append(rewards, *one.Reward)
		}
	}
	mean, squares := 0.0, 0.0
	for _, reward := range rewards {
		mean, squares = mean+reward/float64(len(rewards)), squares+reward*reward/float64(len(rewards))
	}
	require.Contains(t, texts(t, body), fmt.Sprintf("Reward %s ± %s std", format.Fixed(mean), format.Fixed(math.Sqrt(squares-mean*mean))))

	// Each metric of the batch has a definition.
	defined, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	batch, err := r.store.Batch(t.Context(), "demo", model.DefaultPolicy, 1)
	require.NoError(t, err)
	text := string(defined)
	for name := range batch.Metrics {
		first, last, _ := strings.Cut(name, "/")
		require.True(t, strings.Contains(text, "`"+name+"`") || strings.Contains(text, "`"+first+"/mean`") && strings.Contains(text, "`/"+last+"`"), "docs/metrics.md does not define %s", name)
	}
	for _, state := range []record.AttemptState{record.AttemptCompleted, record.AttemptAgentFailed, record.AttemptInfraFault, record.AttemptLost, record.AttemptRunning, record.AttemptBegun, record.AttemptUnfinished} {
		require.Contains(t, text, "| `"+string(state)+"` |")
	}
}

func TestTheMarkOfAKillDoesNotWaitForTheEndOfItsStep(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo")
	require.NotContains(t, html.UnescapeString(body), "made again\"")
	r.begin(record.RolloutID{Run: r.name, Kind: record.Train, Step: 3, Task: 2 * perStep}) // in the place of the one under way
	body, _ = get(t, server.URL+"/runs/demo")
	require.Contains(t, html.UnescapeString(body), "1 attempt interrupted and made again\"")
	require.Contains(t, html.UnescapeString(body), "1 attempt interrupted and made again, ", "that of a finished step says the time, too")
}

func TestTheRewardOfAStepIsThatOfAllItsRollouts(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "first_step")
	r := newEmpty(t, "plain")
	r.createRun()
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo")
	require.NotContains(t, body, `class="figure`)
	require.NoError(t, r.store.PutStep(t.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: 1, Metrics: map[string]float64{
		"reward/mean": 0.5, record.AllRollouts: 0.125, "batch/calls": 8, "batch/cut_off": 2,
	}}))
	server = r.serve(nil) // the other one may still show the account of before
	body = shown.get(server.URL, "/runs/demo")
	require.Contains(t, html.UnescapeString(body), `"name":"reward","points":[[1,0.125]]`)
	require.Contains(t, html.UnescapeString(body), `"name":"replies cut off","points":[[1,0.25]]`)
	require.Contains(t, texts(t, body), "Finished 1 0.125")
	body = shown.get(server.URL, "/")
	require.Contains(t, texts(t, body), "1 / 4 0.125")
}

func TestARunSaysHowFarItsEvaluationIs(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "evaluation_progress")
	r := newEmpty(t, "plain")
	r.measured("measured", true, []int{0}, better)
	server := r.serve(asked{state: page.State{Phase: "evaluation", Subject: "measured/test-0", Done: 3, Total: 15, Pace: "result in 40s", Pending: -1}})
	body := shown.get(server.URL, "/runs/measured")
	require.Contains(t, texts(t, body), "3 of 15")
	require.Contains(t, links(t, body), "/runs/measured/test-0")
	body = shown.get(server.URL, "/")
	require.Contains(t, texts(t, body), "0.100", "its reward is that of the evaluation")
}

func TestIntervalsAreDrawnAgainstZero(t *testing.T) {
	t.Parallel()
	require.Empty(t, figure.Intervals{Title: "none"}.SVG())
	bad := figure.Interval{Name: "not finite", Value: math.NaN(), Low: -1, High: 1}
	require.Empty(t, figure.Intervals{Rows: []figure.Interval{bad}}.SVG())
	svg := string(figure.Intervals{Title: "Difference", Rows: []figure.Interval{{Name: "<b>1</b>", Value: 0.2, Low: 0.1, High: 0.3}, bad}}.SVG())
	require.Contains(t, svg, "Difference: &lt;b&gt;1&lt;/b&gt; +0.200, from +0.100 to +0.300")
	require.NotContains(t, svg, "<b>")
	require.NotContains(t, svg, "NaN")
	place := func(pattern string) float64 {
		found := regexp.MustCompile(pattern).FindStringSubmatch(svg)
		require.NotNil(t, found, pattern)
		x, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		return x
	}
	zero, low, high, value := place(`class="zero" x1="([\d.]+)"`), place(`line0" d="M([\d.]+) `), place(`line0" d="M[\d.]+ [\d.]+H([\d.]+)M`), place(`circle class="dot line0" cx="([\d.]+)"`)
	require.Less(t, zero, low, "0 is on the axis, though no interval has it")
	require.InDelta(t, value-low, high-value, 0.11)
	require.InDelta(t, value-low, low-zero, 0.11, "the axis is linear")
}
