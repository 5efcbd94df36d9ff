package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
)

func TestWhatIsNotThereIsSaidInPlainWords(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	shown := goldenOf(t, "not_there")
	for _, path := range []string{
		"/nowhere", "/runs/other", "/runs/other/actions/pause", "/runs/demo/train-9", "/runs/demo/train-1/77", "/runs/demo/train-1/0/0/9", "/runs/demo/sideways-1", "/runs/demo/versions/99", "/runs/%3Cb%3E",
	} {
		body, reply := get(t, server.URL+path)
		if strings.Contains(path, "actions") {
			require.Equal(t, http.StatusForbidden, reply.StatusCode, "this page only shows")
			continue
		}
		require.Equal(t, http.StatusNotFound, reply.StatusCode, path)
		require.Contains(t, body, "<h1>")
		shown.add(path, body)
		require.NotContains(t, body, "not found", path)
	}
}

func TestASlashTooManyLeadsToThePage(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	p, err := page.New(page.Options{Records: r.store, Blobs: r.blobs, Patience: time.Hour})
	require.NoError(t, err)
	defer p.Close()
	ask := func(path string) (int, string) {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
		request.RemoteAddr = "127.0.0.1:9"
		reply := httptest.NewRecorder()
		p.ServeHTTP(reply, request)
		return reply.Code, reply.Header().Get("Location")
	}
	for from, to := range map[string]string{"/runs/demo/": "/runs/demo", "/fleet/?a=b": "/fleet?a=b", "/runs/demo/train-1/0/": "/runs/demo/train-1/0"} {
		code, location := ask(from)
		require.Equal(t, http.StatusMovedPermanently, code, from)
		require.Equal(t, to, location)
	}
	for _, path := range []string{"/nowhere/", "/%5Cevil.example/", "/%5C%5Cevil.example/fleet/"} {
		code, location := ask(path)
		require.Equal(t, http.StatusNotFound, code, path)
		require.Empty(t, location)
	}
}

func TestHeadingsLeaveNoLevelOut(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	r.criticRun()
	at := r.serveActing()
	for _, path := range []string{criticAttempt, "/runs/demo/train-1/0/0/2", "/runs/demo/train-1/0", "/runs/demo/train-1", "/runs/demo/steps", criticAttempt + "/credit", "/runs/demo/actions/approve?version=2", "/nowhere"} {
		body, _ := get(t, at+path)
		before := 0
		for _, n := range elements(t, body) {
			if !regexp.MustCompile(`^h[1-6]$`).MatchString(n.Data) {
				continue
			}
			level, err := strconv.Atoi(n.Data[1:])
			require.NoError(t, err)
			require.LessOrEqual(t, level, before+1, "%s: an %s after an h%d", path, n.Data, before)
			before = level
		}
		require.NotZero(t, before, path)
	}
	body, _ := get(t, at+"/runs/demo/steps")
	require.Contains(t, body, `aria-current="page">Steps</a>`)
	body, _ = get(t, at+"/runs/demo/train-1")
	require.Contains(t, body, `aria-current="true">Steps</a>`)
	body, _ = get(t, at+"/fleet")
	require.Contains(t, body, `aria-current="page">Fleet</a>`)
}

func TestAllSpansAreOnTheTimeAxisAndBounded(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1})
	call := r.call(a, 0, -1, nil)
	call.Started, call.Duration = time.Unix(100, 0), 400*time.Microsecond
	require.NoError(t, r.store.AppendCall(t.Context(), &call))
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo/try-1/0/0/1")
	require.Contains(t, body, `<svg class="lanes" viewBox="0 0 900 44" role="group"`, "links in an image are lost to readers")
	require.Contains(t, body, ">80 µs</text>")
	require.Contains(t, body, "under 1 ms")
	for _, kind := range []record.SpanKind{record.AgentSpan, record.OtherSpan, record.ToolSpan, record.ModelSpan} {
		var spans []record.Span
		for i := range 150 {
			spans = append(spans, record.Span{Trace: string(kind), ID: fmt.Sprint(i), Kind: kind, Name: "look <it> up", Started: call.Started, Ended: call.Started.Add(time.Second)})
		}
		require.NoError(t, r.store.PutSpans(t.Context(), a, spans))
	}
	require.NoError(t, r.store.PutSpans(t.Context(), a, []record.Span{{Trace: "wild", ID: "1", Kind: record.AgentSpan, Name: "wild", Started: time.Unix(0, 0), Ended: time.Now()}}))
	body, reply := get(t, server.URL+"/runs/demo/try-1/0/0/1")
	require.Equal(t, http.StatusOK, reply.StatusCode)
	require.Contains(t, body, `role="img" aria-label="look &lt;it&gt; up, 1.0 s"`)
	require.NotContains(t, body, "wild", "a span of other times would hide all others")
	require.LessOrEqual(t, strings.Count(body, `<rect class="bar`), 400)
	require.Contains(t, texts(t, body), "not drawn")
}

func TestAGroupFoldsWhatItsSamplesShare(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	for sample := range 3 {
		a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1, Sample: sample})
		call := r.call(a, 0, -1, nil)
		call.Request = r.spoken(1)
		call.Response = fmt.Appendf(nil, `{"choices":[{"message":{"role":"assistant","content":"reply <b>%d</b>"}}]}`, sample)
		require.NoError(t, r.store.AppendCall(t.Context(), &call))
		require.NoError(t, r.store.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: new(float64), Result: "done"}))
	}
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo/try-1/0")
	text := texts(t, body)
	require.Contains(t, text, "user Where to? assistant 1234567 user turn 0")
	require.Equal(t, 1, strings.Count(text, "Where to?"))
	require.Regexp(t, `Sample 1 0\.000 .*sampled reply <b>1</b> result done`, text)

	r.text = strings.Repeat("<a \xff long line> ", 4<<10)
	for sample := range 64 {
		r.rollout(record.RolloutID{Run: "demo", Kind: record.Try, Step: 2, Sample: sample}, 1)
	}
	began := time.Now()
	body, reply := get(t, server.URL+"/runs/demo/try-2/0")
	t.Logf("64 samples: %d bytes, %d elements, %s", len(body), len(elements(t, body)), time.Since(began))
	require.Equal(t, http.StatusOK, reply.StatusCode)
	require.Less(t, len(body), 300<<10)
	require.Less(t, len(elements(t, body)), 4000)
}

func TestBrowserMovesAmongTokensByEveryArrow(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1})
	call := r.call(a, 0, -1, nil)
	call.Completion, call.Logprobs = make([]int32, 400), make([]float32, 400)
	for i := range call.Completion {
		call.Completion[i] = 5
	}
	require.NoError(t, r.store.AppendCall(t.Context(), &call))
	b.run(chromedp.Navigate(r.serve(nil).URL+"/runs/demo/try-1/0/0/1"), chromedp.EmulateViewport(600, 800), chromedp.Focus(chromedp.CSS(".tokens")))
	chosen := func(keys string) int64 {
		b.run(chromedp.KeyEvent(keys))
		return value(b, chromedp.Evaluate[int64](`[...document.querySelectorAll(".t")].findIndex((t) => t.classList.contains("chosen"))`))
	}
	require.Equal(t, int64(399), chosen(kb.End))
	require.Zero(t, chosen(kb.Home))
	below := chosen(kb.ArrowDown)
	require.Greater(t, below, int64(4), "the line below")
	require.Equal(t, 2*below, chosen(kb.ArrowDown))
	require.Equal(t, below, chosen(kb.ArrowUp))
	require.Zero(t, chosen(kb.ArrowUp))
	require.Zero(t, chosen(kb.ArrowUp), "there is none above")
	b.quiet("tokens")
}
