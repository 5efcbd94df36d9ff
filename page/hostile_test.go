package page_test

import (
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestWhatAgentsWriteIsText(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	pages := crawl(t, newRecorded(t, hostile).serve(nil).URL)
	for path, body := range crawl(t, newUsed(t, hostile).serve(nil).URL) {
		pages["used: "+path] = body
	}
	for path, body := range pages {
		require.True(t, utf8.ValidString(body), path)
		for _, r := range body {
			require.True(t, r == '\n' || r == '\t' || r == '\u2009' || unicode.IsPrint(r), "%s has %U", path, r)
		}
		if !strings.HasPrefix(body, "<!doctype") {
			continue // a recorded call is served unchanged, as plain data
		}
		for _, n := range elements(t, body) {
			require.NotEqual(t, "img", n.Data, path)
			if n.Data == "script" {
				require.Nil(t, n.FirstChild, path)
			}
			for _, a := range n.Attr {
				require.False(t, strings.HasPrefix(a.Key, "on"), "%s: %s has %s", path, n.Data, a.Key)
				if a.Key == "href" || a.Key == "src" {
					require.Regexp(t, `^[/?#]`, a.Val, path)
				}
			}
		}
	}
}

func TestLinesOfAMegabyteAreCut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	r := newRecorded(t, "plain")
	r.text = strings.Repeat("<\xff\x1b", 1<<20/3)
	r.rollout(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1, Sample: 1}, 1)
	require.NoError(t, r.store.PutDecision(t.Context(), record.Decision{Run: "demo", Policy: model.DefaultPolicy, DecisionID: "long", Candidate: 2, Verdict: "refused", Reason: r.text}))
	require.NoError(t, r.store.PutQuarantine(t.Context(), record.Quarantine{Run: "demo", Policy: model.DefaultPolicy, Step: 1, Kind: record.Train, Task: 1, Reason: r.text}))
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Failed, record.Failure{Error: r.text, Detail: r.text}.Result()))
	server := r.serve(nil)
	for _, path := range []string{"/", "/runs/demo", "/runs/demo/try-1", "/runs/demo/try-1/0", "/runs/demo/try-1/0/1/1", "/runs/demo/train-1", "/runs/demo/train-1/1", "/runs/demo/versions", "/runs/demo/tasks",
		"/runs/demo/versions/2", "/runs/demo/train-1/0/0/2/credit", "/fleet", "/playground", "/compare?run=demo&run=demo"} {
		body, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
		require.Less(t, len(body), 400<<10, path)
	}
	body, _ := get(t, server.URL+"/runs/demo/try-1/0/1/1")
	require.Contains(t, body, "more bytes")
}
