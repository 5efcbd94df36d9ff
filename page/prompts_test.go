package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/tasks"
)

// searching is a run that searches for better prompts, and what its record gets.
type searching struct {
	name      string
	optimizer spec.PromptOptimizer
	// text is the text of the i-th reply of the reflector, given the text that it replaces.
	// "" is a reply that is refused.
	text func(i int, old string) string
	// attempts says that attempts are recorded, too, and not only their addresses.
	attempts bool
	seed     string // the text that the search begins with
	// memory says that answers are kept in memory instead of the store, and replies nowhere.
	memory bool
	most   int // answers after which the run is left under way; 0 for the end
}

// small is a search that takes a moment.
func small(name, algorithm string) searching {
	s := searching{name: name, attempts: true, seed: "Sort the word.\nSay nothing else.\nReply with one word."}
	s.optimizer = spec.PromptOptimizer{Algorithm: algorithm, Budget: spec.OptimizerBudget{Minibatch: 60, Validation: 60, Reflections: 14}}
	if algorithm == spec.AlgorithmAPO {
		s.optimizer.APO = &spec.APO{Beam: 2, Branch: 2, Rounds: 2, GradientBatch: 3, ValidationBatch: 4}
	} else {
		s.optimizer.GEPA = &spec.GEPA{Merge: true, Merges: 2}
	}
	s.text = func(i int, old string) string {
		if i%4 == 3 {
			return ""
		}
		return strings.Replace(old, "Say nothing else.", fmt.Sprintf("Say nothing else, and think of hint %d.", i), 1) + fmt.Sprintf("\nThere are %d kinds.", i)
	}
	return s
}

// searched fills the store with a search and what followed it.
func (r *recorded) searched(c searching) {
	r.t.Helper()
	ctx := r.t.Context()
	sp := spec.Spec{
		Seed: seed, Agent: spec.Agent{Command: []string{"agent"}}, Grader: spec.Grader{Type: "exact"}, Optimizer: &c.optimizer,
		Prompts: &spec.Prompts{
			Texts: []spec.PromptText{{Name: "sorter", Text: c.seed}, {Name: "checker", Text: "Check it."}},
			Rules: []spec.PromptRule{{Prompt: "sorter", Match: spec.PromptMatch{Prefix: "Sort"}}, {Prompt: "checker", Match: spec.PromptMatch{Prefix: "Check"}}},
		},
	}.WithDefaults()
	text, err := json.Marshal(sp)
	require.NoError(r.t, err)
	splits := map[record.Kind]record.Split{}
	names := map[record.Kind][]tasks.Task{}
	for kind, n := range map[record.Kind]int{record.Train: 12, record.Validation: 8, record.Gate: 6, record.Test: 6} {
		var list []tasks.Task
		for i := range n {
			list = append(list, tasks.Task{ID: fmt.Sprintf("%s-%d %s", kind, i, printable(r.text)), Input: "a word", Answer: "red"})
		}
		data, err := tasks.Encode(list)
		require.NoError(r.t, err)
		digest, err := r.blobs.Put(ctx, data)
		require.NoError(r.t, err)
		splits[kind], names[kind] = record.Split{Digest: digest, Count: n}, list
	}
	_, _, err = r.store.CreateRun(ctx, record.Run{Name: c.name, WorkflowID: c.name, ExecutionID: "e", Spec: text, Splits: splits})
	require.NoError(r.t, err)
	h, err := optimize.Begin(sp, splits[record.Train].Count, splits[record.Validation].Count)
	require.NoError(r.t, err)
	reply := 0
	for answers := 0; c.most == 0 || answers < c.most; answers++ {
		open, done := h.Open()
		if done != nil {
			break
		}
		a := search.Answer{Request: open[0].ID}
		key := ""
		switch open[0].Kind {
		case search.Evaluate:
			a.Results = r.resultsOf(c, open[0], names)
		default:
			a, key = r.reflected(c, open[0], reply), fmt.Sprintf("%s-%d", c.name, reply)
			reply++
		}
		data, err := json.Marshal(a)
		require.NoError(r.t, err)
		one := record.SearchAnswer{Run: c.name, Number: answers, Request: a.Request, Answer: data, Reflection: key}
		if c.memory {
			r.answers = append(r.answers, one)
		} else {
			_, _, err = r.store.PutSearchAnswer(ctx, one)
			require.NoError(r.t, err)
		}
		require.NoError(r.t, h.Take(a))
	}
	if _, done := h.Open(); done != nil {
		r.gated(c, sp, *done)
	}
}

// resultsOf scores a candidate by its texts, and records its attempts.
func (r *recorded) resultsOf(c searching, request optimize.Request, names map[record.Kind][]tasks.Task) []search.Result {
	r.t.Helper()
	kind, split := record.Minibatch, record.Train
	if request.Split == search.SplitValidation {
		kind, split = record.Validation, record.Validation
	}
	var out []search.Result
	for place, task := range request.Tasks {
		hash := fnv.New32a()
		fmt.Fprint(hash, request.Candidate.ID, request.Split, task)
		reward := float64(hash.Sum32()/16%2+uint32(len(request.Candidate.Parents)>>1)) / 2 * min(1, 0.5+float64(strings.Count(request.Candidate.Prompts[0].Text+request.Candidate.Prompts[1].Text, "kinds"))/4)
		one := search.Result{Task: task, Score: &reward}
		for sample := range request.Samples {
			id := record.RolloutID{Run: c.name, Kind: kind, Step: request.Number, Task: place, Sample: sample}
			a := record.Address{RolloutID: id, Attempt: 1}
			if c.attempts {
				var err error
				a, err = r.store.BeginAttempt(r.t.Context(), id, names[split][task].ID, record.Terms{Policy: "main", Codec: "compact", Temperature: 1}, "c0ffee")
				require.NoError(r.t, err)
				require.NoError(r.t, r.store.SealAttempt(r.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward, Result: r.text}))
			}
			one.Attempts = append(one.Attempts, search.Attempt{Trace: a.String(), Reward: &reward})
		}
		out = append(out, one)
	}
	return out
}

// reflected records a reply of the reflector and returns the answer that is read from it.
func (r *recorded) reflected(c searching, request optimize.Request, i int) search.Answer {
	r.t.Helper()
	a := search.Answer{Request: request.ID, Text: r.text}
	text := "It does not say what kinds there are. " + r.text
	if request.Kind == search.Critique {
		a.Text = strings.ToValidUTF8(text, "?")
	} else {
		old, _ := request.Candidate.Text(request.Prompt)
		if a.Text = c.text(i, old); a.Text == "" {
			a.Refusal, text = search.RefusedNoFence, "I would rather not. "+r.text
		} else {
			text = "Here it is:\n```\n" + a.Text + "\n```"
		}
	}
	if c.memory {
		return a
	}
	_, _, err := r.store.PutReflection(r.t.Context(), record.Reflection{
		Key: fmt.Sprintf("%s-%d", c.name, i), Run: c.name, Request: request.ID,
		Reply: record.ReflectionReply{Model: "writer-1 " + printable(r.text), Text: strings.ToValidUTF8(text, "?"), InputTokens: 120, OutputTokens: 1},
	})
	require.NoError(r.t, err)
	return a
}

// gated records the versions of the prompts, and that the winner was promoted.
func (r *recorded) gated(c searching, sp spec.Spec, done search.Done) {
	r.t.Helper()
	ctx := r.t.Context()
	for number, candidate := range []search.Candidate{optimize.Seed(sp), done.Winner} {
		set, err := sp.Prompts.WithTexts(candidate.Text)
		require.NoError(r.t, err)
		digest, err := r.blobs.Put(ctx, set.Encode())
		require.NoError(r.t, err)
		require.NoError(r.t, r.store.PutPromptVersion(ctx, record.PromptVersion{Run: c.name, Number: number, Parent: number - 1, Prompts: digest, Candidate: candidate.ID}))
		for _, kind := range []record.Kind{record.Gate, record.Test} {
			sum := 0.0
			for task := range 6 {
				reward := float64((task + number) % 3 / 2)
				if number == 1 {
					reward = float64(min(1, task%3))
				}
				sum += reward
				a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: c.name, Kind: kind, Step: number, Task: task}, fmt.Sprintf("%s-%d %s", kind, task, printable(r.text)), record.Terms{Policy: "main", Codec: "compact", Temperature: 1, Prompts: digest}, "c0ffee")
				require.NoError(r.t, err)
				require.NoError(r.t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward, Result: r.text}))
			}
			require.NoError(r.t, r.store.PutEvaluation(ctx, record.Evaluation{Run: c.name, Policy: record.PromptsPolicy, EvaluationResult: record.EvaluationResult{
				Kind: kind, Version: number, Tasks: 6, Rollouts: 6, Mean: sum / 6, StdError: 0.1,
			}}))
		}
	}
	require.NoError(r.t, r.store.Promote(ctx, record.Promotion{Run: c.name, Policy: record.PromptsPolicy, DecisionID: "gate-0", Version: 0, Previous: -1, Source: record.SourceGate, Reason: "it is the first"}))
	require.NoError(r.t, r.store.Promote(ctx, record.Promotion{Run: c.name, Policy: record.PromptsPolicy, DecisionID: "gate-1", Version: 1, Previous: 0, Source: record.SourceGate, Reason: "version 1 promoted: 0.667 against 0.333, " + r.text}))
	require.NoError(r.t, r.store.FinishRun(ctx, c.name, record.Completed, nil))
}

func TestEveryPageOfASearchIsShown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	for _, algorithm := range []string{spec.AlgorithmGEPA, spec.AlgorithmAPO} {
		r := newEmpty(t, "plain")
		r.searched(small(algorithm, algorithm))
		server := r.serve(nil)
		shown := goldenOf(t, "search_"+algorithm)
		at := "/runs/" + algorithm
		body := shown.get(server.URL, "/")
		require.Contains(t, links(t, body), at+"/prompts")
		body = shown.get(server.URL, at)
		require.Contains(t, links(t, body), at+"/prompts")
		require.Contains(t, body, "0.667", "the test of the promoted version")
		require.Contains(t, body, `<dd><a href="`+at+`/versions/1">version 1</a></dd>`)
		body = shown.get(server.URL, at+"/prompts")
		require.Contains(t, body, `class="depth1"`)
		for _, path := range []string{"/prompts/0", "/prompts/1", "/prompts/1?with=2", "/versions", "/versions/0", "/versions/1", "/versions/compare?a=0&b=1&split=gate"} {
			body = shown.get(server.URL, at+path)
		}
		require.Contains(t, body, "<ins>")
		pages := crawl(t, server.URL)
		for _, kind := range []record.Kind{record.Minibatch, record.Validation} {
			found := false
			for path := range pages {
				found = found || strings.HasPrefix(path, fmt.Sprintf("%s/%s-", at, kind)) && strings.HasSuffix(path, "/0/0/1")
			}
			require.True(t, found, "no link leads to an attempt of kind %s", kind)
		}
		for _, path := range []string{"/prompts/99", "/prompts/x", "/prompts/01", "/versions/9"} {
			_, reply := get(t, server.URL+at+path)
			require.Equal(t, http.StatusNotFound, reply.StatusCode, path)
		}
	}
}

func TestACandidateShowsWhoWroteItAndWhatItDid(t *testing.T) {
	t.Parallel()
	r := newEmpty(t, "plain")
	r.searched(small("apo", spec.AlgorithmAPO))
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/apo/prompts/1")
	require.Contains(t, body, "writer-1")
	require.Contains(t, body, "120 tokens in, 1 token out")
	require.Contains(t, body, "It does not say what kinds there are.", "the critique")
	require.Contains(t, body, "<ins>")
	shown := false
	for _, link := range links(t, body) {
		shown = shown || strings.HasPrefix(link, "/runs/apo/minibatch-")
	}
	require.True(t, shown, "what the reflector was shown")
	id := r.idOf("apo", 1)
	same, _ := get(t, server.URL+"/runs/apo/prompts/"+id)
	require.Contains(t, same, id)
	_, reply := get(t, newRecorded(t, "plain").serve(nil).URL+"/runs/demo/prompts")
	require.Equal(t, http.StatusNotFound, reply.StatusCode)
}

// idOf returns the id of a candidate from the links of the versions.
func (r *recorded) idOf(run string, version int) string {
	r.t.Helper()
	all, err := r.store.PromptVersions(r.t.Context(), run)
	require.NoError(r.t, err)
	return all[version].Candidate
}

func TestASearchUnderWaySaysWhatItDoes(t *testing.T) {
	t.Parallel()
	r := newEmpty(t, "plain")
	c := small("goes", spec.AlgorithmGEPA)
	c.most = 6
	r.searched(c)
	none := small("begins", spec.AlgorithmGEPA)
	none.most = -1
	r.searched(none)
	server := r.serve(asked{state: page.State{Phase: "search", Subject: "2 proposals, 1 candidates measured", Pending: -1}})
	shown := goldenOf(t, "search_under_way")
	for _, path := range []string{"/runs/goes", "/runs/goes/prompts", "/runs/goes/versions", "/runs/begins", "/runs/begins/prompts"} {
		shown.get(server.URL, path)
	}
}

func TestASearchThatCanNotBeReadSaysWhy(t *testing.T) {
	t.Parallel()
	r := newEmpty(t, "plain")
	c := small("broken", spec.AlgorithmGEPA)
	c.most = 3
	r.searched(c)
	_, _, err := r.store.PutSearchAnswer(t.Context(), record.SearchAnswer{Run: "broken", Request: "nobody", Answer: json.RawMessage(`{"request":"nobody <b>"}`)})
	require.NoError(t, err)
	server := r.serve(nil)
	for _, path := range []string{"/runs/broken", "/runs/broken/prompts", "/runs/broken/prompts/1"} {
		body, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
		require.Contains(t, body, "The search can't be read", path)
		require.NotContains(t, body, "<b>", path)
	}
}

// inMemory is a store whose searches' answers are in memory.
type inMemory struct {
	*store.Store
	answers []record.SearchAnswer
}

func (s inMemory) SearchAnswers(_ context.Context, _ string, from int) ([]record.SearchAnswer, error) {
	return s.answers[min(from, len(s.answers)):], nil
}

// wide is a search of many candidates.
func wide(name string, reflections int) searching {
	two := 2.0
	s := searching{name: name, memory: true, seed: strings.Repeat("Sort the word.\n", 30)}
	s.optimizer = spec.PromptOptimizer{
		Algorithm: spec.AlgorithmGEPA, Perfect: &two, Patience: 1 << 20,
		Budget: spec.OptimizerBudget{Minibatch: 100000, Validation: 100000, Reflections: reflections},
	}
	s.text = func(i int, old string) string {
		return fmt.Sprintf("%s There are %d kinds.", old[:min(len(old), 400)], i)
	}
	return s
}

func TestAThousandCandidatesFitOnPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it makes a large record and shows nothing of goroutines")
	}
	r := newEmpty(t, "plain")
	r.searched(wide("wide", 1000))
	p, err := page.New(page.Options{Records: inMemory{r.store, r.answers}, Blobs: r.blobs, Codecs: dialog.Named, Patience: time.Hour})
	require.NoError(t, err)
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	for _, path := range []string{
		"/", "/runs/wide", "/runs/wide/prompts", "/runs/wide/prompts?all=1", "/runs/wide/prompts?all=1&from=900", "/runs/wide/prompts?sort=score", "/runs/wide/prompts?show=rejected&from=100",
		"/runs/wide/prompts/0", "/runs/wide/prompts/990", "/runs/wide/versions/1",
	} {
		body, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
		require.Less(t, len(body), maxBytes, path)
		require.Less(t, len(elements(t, body)), maxElements, path)
	}
	body, _ := get(t, server.URL+"/runs/wide/prompts?all=1&sort=newest")
	require.Contains(t, body, `href="/runs/wide/prompts/1000"`)
}

func TestTextsOfPromptsAreText(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	r := newEmpty(t, strings.ToValidUTF8(hostile, "?"))
	c := small("hostile", spec.AlgorithmGEPA)
	c.seed = "<b onclick=alert(1)>bold</b> \u202eback {{.}}\n" + strings.Repeat("\u05d0<", 2000) + "\nSay nothing else."
	c.text = func(i int, old string) string {
		return fmt.Sprintf("%s\n<script>%d</script> %s", strings.Replace(old, "bold", fmt.Sprintf("bolder%d", i), 1)[:min(len(old), 9000)], i, strings.Repeat("\"'&<>", 1000))
	}
	r.searched(c)
	for path, body := range crawl(t, r.serve(nil).URL) {
		require.True(t, utf8.ValidString(body), path)
		require.Less(t, len(body), 1<<20, path)
		for _, char := range body {
			require.True(t, char == '\n' || char == '\t' || char == '\u2009' || unicode.IsPrint(char), "%s has %U", path, char)
		}
		if !strings.HasPrefix(body, "<!doctype") {
			continue
		}
		for _, n := range elements(t, body) {
			if n.Data == "script" {
				require.Nil(t, n.FirstChild, path)
			}
			for _, a := range n.Attr {
				require.False(t, strings.HasPrefix(a.Key, "on"), "%s: %s has %s", path, n.Data, a.Key)
			}
		}
	}
}

func TestSixteenKilobytesOnOneLineAreCompared(t *testing.T) {
	t.Parallel()
	r := newEmpty(t, "plain")
	c := small("long", spec.AlgorithmGEPA)
	c.seed = strings.Repeat("word, ", 2700)
	c.text = func(i int, old string) string { return fmt.Sprintf("%s end %d", old[:min(len(old), 16000)], i) }
	c.most = 12
	r.searched(c)
	body, reply := get(t, r.serve(nil).URL+"/runs/long/prompts/1")
	require.Equal(t, http.StatusOK, reply.StatusCode)
	require.Contains(t, body, "<ins>")
	require.Greater(t, len(body), 32000, "both texts are there in whole")
	require.Less(t, len(body), maxBytes)
}
