package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/bench/interval"
	"github.com/fulgurite/fulgurite/prompts/search"
)

func start(t *testing.T, seeds ...uint64) *bench {
	t.Helper()
	var worlds []*world
	for _, seed := range seeds {
		worlds = append(worlds, newWorld(seed))
	}
	b, err := newBench(t.Context(), worlds)
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

func small(failures float64) settings {
	s := settings{beam: 2, branch: 3, rounds: 3, gradientBatch: 4, validationBatch: 16, failures: failures}
	s.budget = s.whole()
	return s
}

func TestOurSearchesRepeatAndHoldTheBudget(t *testing.T) {
	t.Parallel()
	for _, failures := range []float64{0, 0.1} {
		first, err := start(t, 1, 2, 3).run(t.Context(), small(failures), "")
		require.NoError(t, err)
		second, err := start(t, 1, 2, 3).run(t.Context(), small(failures), "")
		require.NoError(t, err)
		require.Equal(t, first.histories, second.histories)
		for _, row := range []string{oursAPO, oursGEPA} {
			for i, history := range first.histories[row] {
				require.Equal(t, standing{0, first.worlds[i].prompt}, history[0])
				used := history[len(history)-1].Rollouts
				require.Greater(t, used, first.settings.budget/2)
				// Only retries of what is in flight may exceed it.
				require.LessOrEqual(t, used, first.settings.budget+int(failures*100))
			}
			before, after := interval.Of(first.scores(row, 0)).Value, interval.Of(first.scores(row, 1)).Value
			require.Greater(t, after, before, row)
		}
		require.Contains(t, first.markdown(), oursGEPA)
		require.NotContains(t, first.markdown(), theirAPO)
	}
}

func TestAFailedRolloutIsTriedAgainAndNeverCountsAsNothing(t *testing.T) {
	t.Parallel()
	d := &driver{rollouts: newRollouts(newWorld(1), 1), traces: map[string]search.Trace{}}
	result, again := d.evaluate(opening, search.SplitTrain, 0)
	require.Equal(t, search.Result{Task: 0}, result)
	require.Equal(t, retries, again)
	require.Equal(t, 1+retries, d.rollouts.total)
}

func TestAnotherProductMeetsTheSameModelAndReflector(t *testing.T) {
	t.Parallel()
	b := start(t, 3)
	w := b.worlds[0]
	from, err := b.reflector(w)
	require.NoError(t, err)
	t.Cleanup(from.Close)
	served := newOther(newRollouts(w, 0), from)
	b.mux.Handle("/theirs/", http.StripPrefix("/theirs", served))

	post := func(path string, body, reply any) int {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		r, err := http.Post(b.url+"/theirs"+path, "application/json", bytes.NewReader(text))
		require.NoError(t, err)
		if r.StatusCode == http.StatusOK {
			require.NoError(t, json.NewDecoder(r.Body).Decode(reply))
		}
		require.NoError(t, r.Body.Close())
		return r.StatusCode
	}
	var did attempt
	require.Equal(t, 200, post("/attempts", map[string]any{"prompt": w.prompt, "split": "validation", "item": 7}, &did))
	require.Equal(t, w.attempt(w.prompt, "validation", 7, 0, 0), did)
	require.Equal(t, 1, served.rollouts.total)
	for _, item := range []int{-1, validationItems} {
		require.Equal(t, 400, post("/attempts", map[string]any{"prompt": w.prompt, "split": "validation", "item": item}, nil))
	}

	ask := func(text string) (string, int) {
		var reply openai.ChatCompletionResponse
		status := post("/v1/chat/completions", openai.ChatCompletionRequest{Messages: []openai.ChatCompletionMessage{
			{Role: "system", Content: "You help."}, {Role: "user", Content: text},
		}}, &reply)
		if status != 200 {
			return "", status
		}
		return reply.Choices[0].Message.Content, status
	}
	critique, _ := ask("Judge this:\n\n" + w.prompt + "\n\nAttempts: none.")
	require.Contains(t, critiques(), critique)
	seen := map[string]bool{}
	for range 60 {
		text, status := ask("# Prompt\n\n  " + w.prompt + "\n\n# Review\n" + critique + "\n")
		require.Equal(t, 200, status)
		seen[text] = true
	}
	possible := len(w.pool().Lines)
	require.Greater(t, len(seen), possible*2/3)
	lines := len(strings.Split(w.prompt, "\n"))
	for text := range seen {
		require.Contains(t, []int{lines - 1, lines + 1}, len(strings.Split(text, "\n")), text)
		require.True(t, strings.HasPrefix(text, opening+"\n"), text)
	}
	_, status := ask("Nothing.")
	require.Equal(t, 400, status)
	_, status = ask(w.prompt + "\n\n" + w.prompt)
	require.Equal(t, 400, status)
}

func TestABestPromptCountsFromTheRolloutThatMadeIt(t *testing.T) {
	t.Parallel()
	history := []standing{{0, "a"}, {48, "a"}, {400, "b"}, {800, "c"}}
	for limit, want := range map[int]string{0: "a", 399: "a", 400: "b", 799: "b", 9000: "c"} {
		require.Equal(t, want, bestAfter(history, limit))
	}
}

func TestTheBudgetIsWhatAPOMakesAtMost(t *testing.T) {
	t.Parallel()
	s := settings{beam: 4, branch: 4, rounds: 3, gradientBatch: 4, validationBatch: 16}
	require.Equal(t, 48+(16*4+17*16+48)+2*(16*4+20*16+48), s.whole())
}

func TestWhatTheOtherProductCountsHasToBeWhatTheModelDid(t *testing.T) {
	t.Parallel()
	served := []*other{{rollouts: &rollouts{total: 48}}}
	history, err := readTheirs([]byte(`[{"rollouts": 0, "prompt": "a"}, {"rollouts": 48, "prompt": "b"}]`), served)
	require.NoError(t, err)
	require.Equal(t, [][]standing{{{0, "a"}, {48, "b"}}}, history)
	for text, want := range map[string]string{
		`[{"rollouts": 47, "prompt": "b"}]`: "counts 47 rollouts, and the model made 48",
		`[]`:                                "has no prompt",
		``:                                  "read search 0",
	} {
		_, err := readTheirs([]byte(text), served)
		require.ErrorContains(t, err, want)
	}
}
