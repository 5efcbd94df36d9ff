package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
)

// specOfPair promotes a checker and a writer alone.
const specOfPair = `{"policies":{"checker":{},"writer":{"match":[{"agent":"w"}]}},"promotion":{"alone":true},
"training":{"steps":3,"tasks_per_step":2,"samples_per_task":4},"evaluation":{"every":1,"samples":1}}`

// newPair makes a store with the run "pair", which promotes a checker and a writer alone. In
// step 1 both are better and promoted. In step 2 the checker is worse and the writer is not
// known yet; somebody had moved the writer back before, so what is promoted was evaluated, too.
func newPair(t testing.TB) *recorded {
	t.Helper()
	r := newEmpty(t, "plain")
	r.createRun()
	ctx := t.Context()
	demo, err := r.store.Run(ctx, "demo")
	require.NoError(t, err)
	r.name = "pair"
	_, _, err = r.store.CreateRun(ctx, record.Run{Name: "pair", WorkflowID: "pair", ExecutionID: "e", Spec: json.RawMessage(specOfPair), Splits: demo.Splits})
	require.NoError(t, err)
	for number := range 3 {
		for i, policy := range []string{model.DefaultPolicy, "checker", "writer"} {
			_, _, err := r.store.PutVersion(ctx, model.Version{
				VersionID: model.VersionID{Run: "pair", Policy: policy, Number: number}, Parent: number - 1, Weights: fmt.Sprintf("sha256:%064d", 10*number+i),
			})
			require.NoError(t, err)
		}
	}
	for step := 1; step <= 2; step++ {
		require.NoError(t, r.store.PutStep(ctx, record.Step{Run: "pair", Policy: model.DefaultPolicy, Step: step, At: r.at(step), Metrics: map[string]float64{
			"reward/min": 0, "reward/max": 1, "reward/mean": 0.5, "policy/writer/train/entropy": 1, "policy/checker/train/entropy": 2,
		}}))
		reward := 0.5
		a := r.begin(record.RolloutID{Run: "pair", Kind: record.Train, Step: step, Task: 2 * step})
		require.NoError(t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	}
	r.evaluation(model.DefaultPolicy, 0, 0, map[string]int{}, 0)
	r.promoted("checker", 0, -1, record.SourceGate)
	r.promoted("writer", 0, -1, record.SourceGate)
	r.evaluation("checker", 1, 0, map[string]int{"checker": 1, "writer": 0}, 2)
	r.promoted("checker", 1, 0, record.SourceGate)
	r.evaluation("writer", 1, 5, map[string]int{"checker": 1, "writer": 1}, 4)
	r.promoted("writer", 1, 0, record.SourceGate)
	r.promoted("writer", 0, 1, record.SourceRollback)
	r.evaluation("checker", 2, 0, map[string]int{"checker": 2, "writer": 0}, 1)
	r.evaluation("", 2, 10, map[string]int{"checker": 1, "writer": 0}, 3)
	require.NoError(t, r.store.PutDecision(ctx, record.Decision{
		Run: "pair", Policy: "checker", DecisionID: "gate-2", Candidate: 2, Promoted: 1, Verdict: "refused", Reason: "version 2 refused: gate reward 0.200 against 0.600 of version 1",
	}))
	return r
}

// evaluation records an evaluation on the gate split from the ordinal of a task on, whose first
// attempts succeed. Without a policy only its attempts are on record.
func (r *recorded) evaluation(policy string, version, first int, versions map[string]int, solved int) {
	r.t.Helper()
	ctx := r.t.Context()
	terms := record.Terms{Policy: model.DefaultPolicy, Version: version, Codec: dialog.CompactName, Temperature: 1, Policies: []record.PolicyRule{{Policy: "writer"}, {Policy: "checker"}}}
	for i, rule := range terms.Policies {
		if v, ok := versions[rule.Policy]; ok {
			terms.Policies[i].Version = &v
		}
	}
	for i := range r.tasks {
		a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: r.name, Kind: record.Gate, Step: version, Task: first + i}, r.tasks[i].ID, terms, "c0ffee")
		require.NoError(r.t, err)
		reward := 0.0
		if i < solved {
			reward = 1
		}
		require.NoError(r.t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward, Result: fmt.Sprintf("said in place %d", first+i)}))
	}
	if policy == "" {
		return
	}
	require.NoError(r.t, r.store.PutEvaluation(ctx, record.Evaluation{Run: r.name, Policy: policy, EvaluationResult: record.EvaluationResult{
		Kind: record.Gate, Version: version, Tasks: len(r.tasks), Rollouts: len(r.tasks), Mean: float64(solved) / float64(len(r.tasks)), StdError: 0.1,
	}}))
}

// promoted records a move of the promoted version of a policy.
func (r *recorded) promoted(policy string, version, previous int, source record.Source) {
	r.t.Helper()
	id := fmt.Sprintf("%s-%d", source, version)
	require.NoError(r.t, r.store.Promote(r.t.Context(), record.Promotion{Run: r.name, Policy: policy, DecisionID: id, Version: version, Previous: previous, Source: source, Reason: "because"}))
}

// seen returns what a page shows, as a text.
func seen(t *testing.T, address string) (text, body string) {
	t.Helper()
	body, reply := get(t, address)
	require.Equal(t, http.StatusOK, reply.StatusCode, address)
	return strings.Join(view(t, body), "\n"), body
}

func TestAPageHearsThatOneOfSeveralPoliciesWasPromoted(t *testing.T) {
	t.Parallel()
	r := newPair(t)
	server := r.serve(nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	next := follow(ctx, t, server.URL+"/runs/pair/live")
	require.Equal(t, "begin", next())
	r.promoted("writer", 2, 0, record.SourcePromote)
	require.Equal(t, "change", next())
	leave()
	require.Equal(t, "end", next())
}

func TestAnEvaluationPageIsOfOnePolicy(t *testing.T) {
	t.Parallel()
	server := newPair(t).serve(nil)
	groups := func(path string) (tasks []string) {
		_, body := seen(t, server.URL+path)
		for _, link := range links(t, body) {
			if place, ok := strings.CutPrefix(link, "/runs/pair/gate-"); ok && strings.Contains(place, "/") {
				tasks = append(tasks, place)
			}
		}
		slices.Sort(tasks)
		return tasks
	}
	require.Equal(t, []string{"1/0", "1/1", "1/2", "1/3", "1/4"}, groups("/runs/pair/gate-1"), "the first policy by name")
	require.Equal(t, []string{"1/5", "1/6", "1/7", "1/8", "1/9"}, groups("/runs/pair/gate-1?policy=writer"))
	require.Equal(t, []string{"2/10", "2/11", "2/12", "2/13", "2/14"}, groups("/runs/pair/gate-2?policy=checker&baseline=1"))
	require.Equal(t, []string{"0/0", "0/1", "0/2", "0/3", "0/4"}, groups("/runs/pair/gate-0"), "all began together")

	text, body := seen(t, server.URL+"/runs/pair/gate-1?policy=writer")
	require.Contains(t, text, "Version 1 of writer on gate")
	require.Contains(t, text, "Sampled from checker@1, writer@1.")
	require.Regexp(t, `Mean reward\s+0\.800`, text)
	require.Regexp(t, `Attempts\s+5 of 5\s`, text)
	all := links(t, body)
	require.Contains(t, all, "/runs/pair/gate-1?policy=checker", "the other evaluation of the step")
	require.Contains(t, all, "?policy=writer&attempts#picked")
	require.Contains(t, all, "?policy=writer&outcome=completed#picked")
	require.Contains(t, all, "/runs/pair/versions/compare?a=pair%400&b=pair%3Awriter%401&split=gate")
	_, body = seen(t, server.URL+"/runs/pair/gate-1?policy=writer&outcome=completed")
	require.Contains(t, links(t, body), "/runs/pair/gate-1/5/0/1", "an attempt")
	require.NotContains(t, links(t, body), "/runs/pair/gate-1/0/0/1")

	text, _ = seen(t, server.URL+"/runs/pair/gate-2?policy=checker&baseline=1")
	require.Contains(t, text, "What version 2 of checker was compared with on gate")
	require.Contains(t, text, "Sampled from checker@1, writer@0.")
	require.Regexp(t, `Mean reward\s+0\.600`, text)
	require.Regexp(t, `Attempts\s+5 of 5\s`, text)
	require.NotContains(t, text, "so far", "it has ended")
	_, body = seen(t, server.URL+"/runs/pair/gate-1/5")
	require.Contains(t, body, "Version 1 of writer on gate")
	require.Contains(t, links(t, body), "/runs/pair/gate-1?policy=writer")
	require.Contains(t, links(t, body), "/runs/pair/gate-1/6", "the next group")
	require.NotContains(t, links(t, body), "/runs/pair/gate-1/4", "it is of the other policy")
	_, body = seen(t, server.URL+"/runs/pair/gate-1/5/0/1")
	require.Contains(t, body, "Version 1 of writer on gate")
	for _, query := range []string{"policy=writer", "policy=judge", "policy=writer&baseline=1"} {
		_, reply := get(t, server.URL+"/runs/pair/gate-2?"+query)
		require.Equal(t, http.StatusNotFound, reply.StatusCode, query)
	}
}

func TestVersionsAndDecisionsHaveTheirPolicy(t *testing.T) {
	t.Parallel()
	server := newPair(t).serve(nil)
	for _, path := range []string{"/runs/pair", "/runs/pair/versions"} {
		text, _ := seen(t, server.URL+path)
		for _, line := range []string{
			"version 2 of checker not promoted", "version 1 of checker promoted in place of version 0", "version 1 of writer promoted in place of version 0",
			"version 0 of writer promoted in place of version 1, rollback", "version 0 of checker promoted, the first",
		} {
			require.Contains(t, text, line, path)
		}
	}
	text, body := seen(t, server.URL+"/runs/pair/versions")
	require.Contains(t, body, `<input type="checkbox" name="v" value="pair:writer@1" aria-label="Compare version 1 of writer">`)
	require.Regexp(t, `(?s)\b1 .*checker.*promoted.*0\.400.*\b1 .*writer.*was promoted.*0\.800`, text)
	require.NotContains(t, body, "pinned")
	require.Equal(t, 2, strings.Count(body, `<circle class="dot line0" cx="4.0"`), "all intervals have one scale: two begin at the left end")

	text, body = seen(t, server.URL+"/runs/pair/versions/1")
	require.Contains(t, text, "checker promoted")
	require.Contains(t, text, "writer was promoted")
	require.Contains(t, links(t, body), "/runs/pair/gate-1?policy=writer")
	require.Contains(t, text, "version 1 of writer promoted in place of version 0")
	text, _ = seen(t, server.URL+"/runs/pair/versions/2")
	require.Contains(t, text, "checker not promoted")
	require.NotContains(t, text, "of writer")

	text, body = seen(t, server.URL+"/runs/pair/steps")
	require.Regexp(t, `gate of checker\]\(/runs/pair/gate-2\?policy=checker\) \| 2 `, text)
	require.Contains(t, links(t, body), "/runs/pair/gate-1?policy=writer")
}

func TestAPinIsOfItsPolicy(t *testing.T) {
	t.Parallel()
	r := newPair(t)
	r.promoted("writer", 0, 0, record.SourcePin)
	text, body := seen(t, r.serve(nil).URL+"/runs/pair/versions")
	require.Equal(t, 1, strings.Count(body, `<span class="tag">pinned</span>`))
	require.Contains(t, text, "version 0 of writer stays promoted, pin")
}

func TestCurvesOfEvaluationsAreOfOnePolicyEach(t *testing.T) {
	t.Parallel()
	server := newPair(t).serve(nil)
	_, body := seen(t, server.URL+"/runs/pair")
	data := html.UnescapeString(body)
	require.Regexp(t, `"name":"gate of checker","points":\[\[0,0,[^\]]*\],\[1,0\.4,[^\]]*\],\[2,0\.2,`, data)
	require.Regexp(t, `"name":"gate of writer","points":\[\[0,0,[^\]]*\],\[1,0\.8,[^\]]*\]\]`, data)
	_, body = seen(t, server.URL+"/compare?run=pair&run=demo")
	require.NotContains(t, html.UnescapeString(body), `[1,0.4,`, "a run has one line there, of no single policy")
}

func TestVersionsOfOnePolicyAreComparedByTheirOwnAttempts(t *testing.T) {
	t.Parallel()
	server := newPair(t).serve(nil)
	const query = "a=pair%3Achecker%401&b=pair%3Awriter%401&split=gate"
	text, body := seen(t, server.URL+"/runs/pair/versions/compare?"+query)
	require.Contains(t, text, "said in place 2")
	require.Contains(t, text, "said in place 7", "the third task of the writer's evaluation")
	require.Contains(t, links(t, body), "/runs/pair/gate-1/7")
	require.Contains(t, links(t, body), "/runs/pair/versions/compare/task?"+query+"&task=2")
	_, body = seen(t, server.URL+"/runs/pair/versions/compare/task?"+query+"&task=2")
	require.Contains(t, links(t, body), "/runs/pair/gate-1/2")
	require.Contains(t, links(t, body), "/runs/pair/gate-1/7")

	text, body = seen(t, server.URL+"/runs/pair/tasks")
	require.Contains(t, text, "version 2 of checker")
	require.Contains(t, links(t, body), "/runs/pair/versions/compare?a=pair%400&b=pair%3Achecker%402&split=gate")
	require.NotContains(t, links(t, body), "/runs/pair/gate-2/10", "it is of what the version was compared with")
}

func TestTheEvaluationOfAPolicyUnderWayIsLinked(t *testing.T) {
	t.Parallel()
	r := newPair(t)
	for subject, want := range map[string]string{
		"pair/gate-1/writer": "/runs/pair/gate-1?policy=writer", "pair/gate-2/checker/baseline": "/runs/pair/gate-2?baseline=1&policy=checker", "pair/gate-0": "/runs/pair/gate-0",
	} {
		server := r.serve(asked{state: page.State{Phase: "evaluation", Subject: subject, Done: 1, Total: 5, Pending: -1}})
		_, body := seen(t, server.URL+"/runs/pair")
		require.Contains(t, links(t, body), want, subject)
		_, reply := get(t, server.URL+want)
		require.Equal(t, http.StatusOK, reply.StatusCode, want)
	}
}

func TestManyDecisionsOfTwoPoliciesAreReadAsTheyCome(t *testing.T) {
	t.Parallel()
	r := newPair(t)
	server := r.serve(nil)
	seen(t, server.URL+"/runs/pair")
	for number := 10; number < 80; number++ { // more than are looked for at once
		for _, policy := range []string{"checker", "writer"} {
			require.NoError(t, r.store.PutDecision(t.Context(), record.Decision{
				Run: "pair", Policy: policy, DecisionID: fmt.Sprintf("gate-%d", number), Candidate: number, Verdict: "refused", Reason: "not better", At: time.Now(),
			}))
		}
	}
	_, body := seen(t, server.URL+"/runs/pair")
	for _, policy := range []string{"checker", "writer"} {
		for number := 10; number < 80; number++ {
			require.Contains(t, body, fmt.Sprintf("version %d of %s refused: not better", number, policy), "a mark")
		}
	}
}

func TestBrowserFollowsThePromotionOfOnePolicy(t *testing.T) {
	b := openBrowser(t)
	r := newPair(t)
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/pair"), chromedp.WaitVisible(`//p[@id="follow"][contains(., "following")]`))
	r.promoted("writer", 2, 0, record.SourcePromote)
	b.run(chromedp.WaitVisible(`//dd[contains(., "writer@2")]`), chromedp.WaitVisible(`//li[contains(., "version 2 of writer promoted in place of version 0")]`))
	b.quiet("following one policy")
}
