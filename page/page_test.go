package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
)

// crawl follows all links from the list of runs on, and returns the pages by their paths.
func crawl(t testing.TB, at string) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for queue := []string{"/"}; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		if _, seen := pages[path]; seen {
			continue
		}
		body, reply := get(t, at+path)
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
		pages[path] = body
		if kind := reply.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/html") {
			require.Contains(t, []string{"application/json", "text/plain; charset=utf-8"}, kind, path)
			require.Equal(t, "nosniff", reply.Header.Get("X-Content-Type-Options"), path)
			continue
		}
		for _, link := range links(t, body) {
			if strings.HasPrefix(link, "?") { // more of the same page
				here, _, _ := strings.Cut(path, "?")
				link = here + link
			}
			if strings.HasPrefix(link, "/") && !strings.HasPrefix(link, "/assets/") {
				queue = append(queue, link)
			}
		}
	}
	return pages
}

// links returns the targets of a page's links.
func links(t testing.TB, body string) []string {
	t.Helper()
	var out []string
	for _, n := range elements(t, body) {
		if n.Data != "a" {
			continue
		}
		for _, a := range n.Attr {
			if a.Key == "href" {
				out = append(out, a.Val)
			}
		}
	}
	return out
}

func elements(t testing.TB, body string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	require.NoError(t, err)
	var out []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			out = append(out, n)
		}
	}
	return out
}

// ordinaryPages are addresses of the run of newRecorded, one of each kind of page, and the names of
// their golden files.
var ordinaryPages = map[string]string{
	"/": "runs", "/fleet": "fleet", "/playground": "playground", "/runs/demo": "run", "/runs/demo/actions": "actions", "/runs/demo/steps": "steps", "/runs/demo/tasks": "tasks",
	"/runs/demo/versions": "versions", "/runs/demo/versions/1": "version", "/runs/demo/versions/compare?a=0&b=2&split=gate": "versions_compare",
	"/runs/demo/train-1": "step", "/runs/demo/train-1?failure=timeout": "step_failure", "/runs/demo/train-1/0": "group", "/runs/demo/gate-1": "evaluation", "/runs/demo/cut-off": "cut_off", "/runs/demo/conversations": "conversations_none", "/runs/demo/experiments": "experiments_none", "/runs/demo/segments": "segments_none",
	"/runs/demo/train-1/0/0/1": "attempt_lost", "/runs/demo/train-1/0/0/2": "attempt_replayed", "/runs/demo/train-1/0/1/1": "attempt_failed", "/runs/demo/train-3/4/0/1": "attempt_running",
	"/runs/demo/train-1/0/0/2/credit": "credit",
}

func TestEveryPageOfARunIsShown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	for path, name := range ordinaryPages {
		body, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
		golden.Compare(t, name, strings.Join(view(t, body), "\n"))
	}
	pages := crawl(t, server.URL)
	for path, want := range map[string][]string{
		"/":                        {"demo", ` / 4`, `class="spark"`},
		"/runs/demo/steps":         {"0.652 – 0.848"},
		"/runs/demo/train-1":       {"timeout"},
		"/runs/demo/train-1/0":     {"+0.500", "−0.500", "plain"},
		"/runs/demo/train-1/0/0/2": {`|trained|0||"`},
		"/runs/demo/train-1/0/1/1": {"timeout", `|trained|0|1.5|0.125"`},
	} {
		require.Contains(t, pages, path)
		for _, text := range want {
			require.Contains(t, html.UnescapeString(pages[path]), text, path)
		}
	}
	require.NotContains(t, pages["/runs/demo"], "very-secret")
	require.GreaterOrEqual(t, len(pages), 6+3+5+18)
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	for _, path := range []string{
		"/nowhere", "/runs/other", "/runs/other/versions", "/runs/other/live", "/runs/demo/train-9", "/runs/demo/sideways-1", "/runs/demo/train-1/77",
		"/runs/demo/train-1/0/0/9", "/runs/demo/train-1/0/00/1", "/runs/demo/train-01", "/assets/0000/page.css",
	} {
		body, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusNotFound, reply.StatusCode, path)
		require.NotContains(t, body, "panic", path)
	}
	for _, path := range []string{"/?from=-1", "/?from=x", "/runs/demo/steps?from=99", "/runs/demo/train-1?from=99", "/runs/demo/versions?from=99", "/runs/demo/train-1/0/0/2?call=99&token=99999"} {
		_, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
	}
}

func TestOnlyThisMachineIsAnswered(t *testing.T) {
	t.Parallel()
	p, err := page.New(page.Options{Records: newRecorded(t, "plain").store})
	require.NoError(t, err)
	defer p.Close()
	ask := func(method, host, from string) int {
		request := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		request.Host, request.RemoteAddr = host, from
		reply := httptest.NewRecorder()
		p.ServeHTTP(reply, request)
		return reply.Code
	}
	const here = "127.0.0.1:5000"
	for _, host := range []string{"localhost", "localhost:8235", "LOCALHOST:1", "127.0.0.1:8235", "127.1.2.3", "[::1]:8235", "[::1]"} {
		require.Equal(t, http.StatusOK, ask(http.MethodGet, host, here), host)
	}
	require.Equal(t, http.StatusOK, ask(http.MethodHead, "localhost", "[::1]:9"))
	for _, host := range []string{"", "evil.example", "localhost.evil.example", "evil.example:8235", "127.0.0.1.evil.example", "10.0.0.1:8235", "0.0.0.0:8235", "[::]:8235", "[::ffff:10.0.0.1]:1"} {
		require.Equal(t, http.StatusForbidden, ask(http.MethodGet, host, here), host)
	}
	for _, from := range []string{"10.0.0.1:5000", "[2001:db8::1]:5000", "", "@"} {
		require.Equal(t, http.StatusForbidden, ask(http.MethodGet, "localhost", from), from)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		require.Equal(t, http.StatusMethodNotAllowed, ask(method, "localhost", here), method)
	}
}

func TestTheContentSecurityPolicyIsKept(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	body, reply := get(t, server.URL+"/runs/demo/train-1/0/0/2")
	require.Contains(t, reply.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self';")
	require.Equal(t, "nosniff", reply.Header.Get("X-Content-Type-Options"))
	loaded := 0
	for _, n := range elements(t, body) {
		require.NotEqual(t, "style", n.Data)
		for _, a := range n.Attr {
			require.NotEqual(t, "style", a.Key, n.Data)
			require.False(t, strings.HasPrefix(a.Key, "on"), "%s has %s", n.Data, a.Key)
			if a.Key == "src" || n.Data == "link" && a.Key == "href" {
				loaded++
				require.Regexp(t, `^/assets/[0-9a-f]{16}/`, a.Val)
				_, reply := get(t, server.URL+a.Val)
				require.Equal(t, http.StatusOK, reply.StatusCode)
				require.Contains(t, reply.Header.Get("Cache-Control"), "immutable")
			}
		}
		if n.Data == "script" {
			require.Nil(t, n.FirstChild, "a script in the page")
		}
	}
	require.Equal(t, 5, loaded)
}

func TestManyCausesThatHoldARunUpAreNotAsManyBoxes(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	waits := make([]string, 9)
	for i := range waits {
		waits[i] = fmt.Sprintf("cause %d", i)
	}
	server := r.serve(asked{state: page.State{Pending: -1, Waits: waits}})
	shown := goldenOf(t, "many_causes")
	for _, path := range []string{"/", "/runs/demo"} {
		body := shown.get(server.URL, path)
		require.Equal(t, 6, strings.Count(body, `<p class="warn"`), path)
	}
}

// asked is a Temporal that says what a test wants.
type asked struct {
	state page.State
	err   error
}

func (a asked) Runs(_ context.Context, runs []record.Run) ([]record.Run, error) { return runs, a.err }

func (a asked) State(context.Context, string) (page.State, error) { return a.state, a.err }

func (a asked) WorkflowURL(id string) string { return "http://127.0.0.1:8233/workflows/" + id }

func TestWhatKeepsARunFromGoingOnIsShown(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(asked{state: page.State{
		Phase: "rollouts", Subject: "step 3", Done: 3, Total: 8, Pending: 2, Paused: true,
		Waits: []string{"no worker polls queue gpu-queue", "RunAgent of demo/train-3 is blocked, attempt 7: no <b>such</b> program"},
	}})
	shown := goldenOf(t, "held_up")
	for _, path := range []string{"/", "/runs/demo"} {
		body := shown.get(server.URL, path)
		for _, want := range []string{"3 of 8", "gpu-queue", "demo/train-3", "no &lt;b&gt;such&lt;/b&gt; program", "version 2", "paused"} {
			require.Contains(t, body, want, path)
		}
	}
	body, _ := get(t, server.URL+"/runs/demo")
	require.Contains(t, links(t, body), "http://127.0.0.1:8233/workflows/demo")

	server = r.serve(asked{err: errors.New("no Temporal there")})
	body = shown.get(server.URL, "/runs/demo")
	require.Contains(t, body, "no Temporal there")
}

func TestAStopThatWasAskedForIsShown(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	stop := record.Stop{By: "ada@host", Reason: "too <slow>", After: 2, Of: 4}
	server := r.serve(asked{state: page.State{Phase: "rollouts", Subject: "step 2", Done: 3, Total: 8, Pending: -1, Stop: &stop}})
	shown := goldenOf(t, "stop")
	for _, path := range []string{"/", "/runs/demo"} {
		body := shown.get(server.URL, path)
		require.Contains(t, body, "ada@host: too &lt;slow&gt;", path)
		require.Contains(t, body, "2 of 4", path)
	}
	result, err := json.Marshal(map[string]any{"stopped": stop})
	require.NoError(t, err)
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Stopped, result))
	server = r.serve(nil)
	for _, path := range []string{"/", "/runs/demo"} {
		body := shown.get(server.URL, path)
		require.Contains(t, body, `<span class="status stopped">stopped</span>`, path)
		require.Contains(t, body, "ada@host: too &lt;slow&gt;", path)
	}
}

func TestFaultsOfARunStandOut(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	batch, err := r.store.Batch(t.Context(), "demo", model.DefaultPolicy, 1)
	require.NoError(t, err)
	r.finish(3, batch.Digest) // the batch of step 1, a second time
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Failed, record.Failure{Error: "the disk is full"}.Result()))
	body := goldenOf(t, "faults").get(r.serve(nil).URL, "/runs/demo")
	require.Regexp(t, regexp.MustCompile(`\d+ faults`), body)
	require.Contains(t, body, "the disk is full")
}

func TestAnAttemptIsShownOnPagesThatABrowserBears(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	r := newRecorded(t, "plain")
	ctx := t.Context()
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1})
	const calls, tokens = 25, 1100
	for seq := range calls {
		call := r.call(a, seq, -1, nil)
		call.ParseError, call.Completion, call.Logprobs = "", slices.Repeat([]int32{5}, tokens), make([]float32, tokens)
		require.NoError(t, r.store.AppendCall(ctx, &call))
	}
	server := r.serve(nil)
	path := "/runs/demo/try-1/0/0/1"
	shown, pages := 0, 0
	for query := ""; ; pages++ {
		body, reply := get(t, server.URL+path+query)
		require.Equal(t, http.StatusOK, reply.StatusCode)
		require.Less(t, len(elements(t, body)), 4000)
		shown += strings.Count(body, "data-t=")
		query = ""
		for _, link := range links(t, body) {
			if strings.HasPrefix(link, "?call=") {
				query = link // the last one leads on
			}
		}
		if !strings.Contains(body, "Later calls") {
			break
		}
	}
	require.Equal(t, calls*tokens, shown)
	require.GreaterOrEqual(t, pages, 10)
}

func TestWhyACurriculumChoseATaskIsShown(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	rate, title := 0.4167, "<b>\x1b[1m"
	for step, c := range map[int]record.Choice{
		1: {Settings: json.RawMessage(`{"type":"band"}`), Places: perStep, Draws: []record.Draw{{Task: 3, Why: record.ReasonBand, Rate: &rate}, {Task: 1, Why: record.ReasonExplored}}},
		2: {Settings: json.RawMessage(`{"type":"stages"}`), Places: perStep, Draws: []record.Draw{{Task: 3, Why: record.ReasonStage}, {Task: 1, Why: record.ReasonStage}}, Title: title, Moved: "step 2 is reached"},
	} {
		c.Run, c.Policy, c.Step = "demo", model.DefaultPolicy, step
		_, err := r.store.PutChoice(t.Context(), c)
		require.NoError(t, err)
	}
	server := r.serve(nil)
	shown := goldenOf(t, "curriculum")
	for _, c := range [][2]string{
		{"train-1", "1 explored"}, {"train-1/0", "0.417"}, {"train-1/1", "explored"}, {"train-2", `2 of stage &lt;b&gt;\x1b[1m`}, {"train-2/2", `&lt;b&gt;\x1b[1m`},
	} {
		require.Contains(t, shown.get(server.URL, "/runs/demo/"+c[0]), c[1], c[0])
	}
	body, _ := get(t, server.URL+"/runs/demo/gate-1")
	require.NotContains(t, body, "Chosen by")
}

func TestSettingsThatAPersonChangedAreMarked(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo")
	require.NotContains(t, body, `<g class="set">`)
	for i, outcome := range []record.ActionOutcome{record.ActionRefused, record.ActionDone} {
		a := record.Action{ID: fmt.Sprintf("setting-%d", i), Run: "demo", Name: record.ActionSet, By: "<b>ada</b>"}
		a.Input.Values = map[string]float64{"training.optimizer.weight_decay": 0.02, "loss.clip_low": 0.1}
		_, err := r.store.BeginAction(t.Context(), a)
		require.NoError(t, err)
		require.NoError(t, r.store.EndAction(t.Context(), a.ID, outcome, record.ActionResult{Step: 2}))
	}
	body, _ = get(t, server.URL+"/runs/demo")
	marks := regexp.MustCompile(`<g class="set"><title>([^<]*)</title>`).FindAllStringSubmatch(body, -1)
	require.NotEmpty(t, marks)
	require.Len(t, marks, strings.Count(body, `<g class="set">`))
	for _, mark := range marks {
		require.Contains(t, mark[1], "step 2 ", "what was done, and not what was refused")
		for _, want := range []string{"loss.clip_low=0.1", "training.optimizer.weight_decay=0.02", "&lt;b&gt;ada&lt;/b&gt;"} {
			require.Contains(t, mark[1], want)
		}
	}
	goldenOf(t, "set").add("/runs/demo", body)
}
