package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

func TestABetterPromptSolvesWhatAWorseOneDoes(t *testing.T) {
	s, err := newSearchServers(0)
	require.NoError(t, err)
	server := httptest.NewServer(s)
	defer server.Close()
	solved := map[string]int{}
	for _, p := range s.pool.Prompts["sorter"] {
		for i := range 40 {
			body := fmt.Sprintf(`{"model":"run","seed":%d,"messages":[{"role":"system","content":%q},{"role":"user","content":"tools word%d"}]}`, i, p.Text+"\n\nReply.", i)
			if strings.Contains(post(t, server.URL+"/v1/chat/completions", body), "tools") {
				solved[p.Text]++
			}
		}
	}
	texts := s.pool.Prompts["sorter"]
	for i := range texts[1:] {
		require.LessOrEqual(t, solved[texts[i].Text], solved[texts[i+1].Text])
	}
	require.Less(t, solved[firstPrompt], 20)
	require.Greater(t, solved[texts[len(texts)-1].Text], 20)
	_, samples := s.asked()
	require.Len(t, samples, 40*len(texts))
	require.Equal(t, "run", samples[7].Run)
	require.EqualValues(t, 7, samples[7].Seed)
}

func TestEachReplyHasANameOfItsOwn(t *testing.T) {
	s, err := newSearchServers(0)
	require.NoError(t, err)
	server := httptest.NewServer(s)
	defer server.Close()
	asked, err := search.Render(search.Request{
		Kind: search.Reflect, Candidate: search.NewCandidate([]search.Prompt{{Name: "sorter", Text: firstPrompt}}), Prompt: "sorter",
	}, nil, nil, 1<<20)
	require.NoError(t, err)
	for _, run := range []string{"calm", "calm", "chaos"} {
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, run, asked.System, asked.User)
		post(t, server.URL+"/reflector/v1/chat/completions", body)
	}
	questions, _ := s.asked()
	require.Len(t, questions, 3)
	require.Equal(t, questions[0].Text, questions[2].Text, "who asks does not matter")
	require.Equal(t, questions[0].Digest, questions[1].Digest)
	require.NotEqual(t, questions[0].Digest, questions[2].Digest)
	require.NotEqual(t, questions[0].Model, questions[1].Model)
	require.False(t, s.busy())
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = r.Body.Close() }()
	reply, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", reply)
	return string(reply)
}

func TestTheSorterAsksTwice(t *testing.T) {
	asked := 0
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, answers)
	}))
	defer gateway.Close()
	t.Setenv("OPENAI_BASE_URL", gateway.URL+"/v1")
	var out bytes.Buffer
	require.NoError(t, sortWord(t.Context(), []string{"1ms"}, strings.NewReader(`{"input":"tools saw"}`), &out))
	require.Equal(t, "33\n", out.String())
	require.Equal(t, 2, asked)
	require.ErrorContains(t, sortWord(t.Context(), []string{"1ms"}, strings.NewReader("12"), io.Discard), "read task")
	require.Error(t, sortWord(t.Context(), nil, nil, io.Discard))
	require.Error(t, sortWord(t.Context(), []string{"long"}, nil, io.Discard))
}

func TestSearchesSpareWhatTheyDoNotUse(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-scenarios", "prompts"}, t.Output())
	require.NoError(t, err)
	require.Equal(t, []string{"gepa", "apo"}, []string{o.scenarios[0].search, o.scenarios[1].search})
	victims, err := o.victims()
	require.NoError(t, err)
	require.Equal(t, []processes.Role{processes.Gateway, processes.CPU1, processes.CPU2, processes.Temporal, processes.Postgres}, victims)
	o, err = parse([]string{"-scenarios", "plain,prompts"}, t.Output())
	require.NoError(t, err)
	victims, err = o.victims()
	require.NoError(t, err)
	require.Contains(t, victims, processes.GPU)
	o, err = parse([]string{"-scenarios", "plain,prompts,phases"}, t.Output())
	require.NoError(t, err)

	o.dir, o.think, o.search = t.TempDir(), time.Second, "http://127.0.0.1:1"
	for _, c := range o.scenarios[1:] {
		s, err := searchSpec(c, "run", o)
		require.NoError(t, err)
		require.NoError(t, s.Validate())
		require.Len(t, c.runs("run"), max(1, len(s.Phases)))
	}
}
