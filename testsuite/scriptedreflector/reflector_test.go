package scriptedreflector_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/testsuite/scriptedreflector"
)

const poolText = `{
	"prompts": {
		"planner": [
			{"text": "Plan.", "quality": 0.2},
			{"text": "Plan in steps.\n` + "```" + `sql\nSELECT 1\n` + "```" + `\nUse {{name}}.", "quality": 0.9},
			{"text": "Plan twice.", "quality": 0.4}
		],
		"writer": [{"text": "Write.", "quality": 0.1}, {"text": "Write well.", "quality": 0.7}]
	},
	"critiques": ["It fixes no format.", "It says nothing about units."]
}`

func pool(t *testing.T) scriptedreflector.Pool {
	t.Helper()
	p, err := scriptedreflector.ReadPool([]byte(poolText))
	require.NoError(t, err)
	return p
}

func start(t *testing.T, edit func(*scriptedreflector.Options)) (*scriptedreflector.Reflector, *httptest.Server) {
	t.Helper()
	o := scriptedreflector.Options{Pool: pool(t), Seed: 7}
	if edit != nil {
		edit(&o)
	}
	r, err := scriptedreflector.New(o)
	require.NoError(t, err)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return r, server
}

func client(t *testing.T, server *httptest.Server, kind reflector.Type) reflector.Reflector {
	t.Helper()
	r, err := reflector.New(reflector.Options{Type: kind, URL: server.URL + "/v1", Model: "synthetic", Key: "secret"})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// ask returns the question of a kind about a prompt with the given text; n makes it another
// one.
func ask(t *testing.T, kind search.Kind, text string, n int) reflector.Question {
	t.Helper()
	candidate := search.NewCandidate([]search.Prompt{{Name: "p", Text: text}})
	r := search.Request{Kind: kind, Candidate: candidate, Prompt: "p", Variant: n, Critique: fmt.Sprint("Point ", n)}
	var traces []search.Trace
	if kind != search.Edit {
		traces = []search.Trace{{Input: fmt.Sprint("task ", n)}}
	}
	out, err := search.Render(r, nil, traces, 1<<16)
	require.NoError(t, err)
	return reflector.Question{System: out.System, User: out.User}
}

func reply(r reflector.Reply) search.Reply { return search.Reply{Text: r.Text, CutOff: r.CutOff} }

func kinds() []reflector.Type { return []reflector.Type{reflector.OpenAI, reflector.Anthropic} }

func TestASearchReadsEveryReply(t *testing.T) {
	t.Parallel()
	scripted, server := start(t, func(o *scriptedreflector.Options) { o.Key = "secret" })
	const questions = 40
	seen := map[string]int{}
	for _, api := range kinds() {
		c := client(t, server, api)
		for n := range questions {
			for _, kind := range []search.Kind{search.Reflect, search.Edit} {
				got, err := c.Reflect(t.Context(), ask(t, kind, "Plan.", n))
				require.NoError(t, err)
				require.Positive(t, got.Usage.Input)
				require.Positive(t, got.Usage.Output)
				require.Equal(t, "synthetic", got.Model)
				// Placeholders are the search's own matter.
				text, why := search.ReadText(reply(got), search.Rules{Placeholders: []string{"name"}})
				if why == search.RefusedLost || why == search.RefusedUnknown {
					text, why = search.ReadText(reply(got), search.Rules{})
				}
				require.Empty(t, why)
				quality, ok := pool(t).Quality(text)
				require.True(t, ok, text)
				require.Contains(t, []float64{0.9, 0.4}, quality, "it is another text of the same prompt")
				seen[text]++
			}
			got, err := c.Reflect(t.Context(), ask(t, search.Critique, "Write.", n))
			require.NoError(t, err)
			text, why := search.ReadCritique(reply(got))
			require.Empty(t, why)
			seen[text]++
		}
	}
	require.Len(t, seen, 4, "everything is proposed")
	for text, n := range seen {
		require.Greater(t, n, questions/4, text)
	}
	require.Equal(t, scriptedreflector.Counts{
		ByKind:  map[search.Kind]int{search.Reflect: 2 * questions, search.Edit: 2 * questions, search.Critique: 2 * questions},
		ByFault: map[scriptedreflector.Fault]int{}, Questions: 3 * questions,
	}, scripted.Counts())
}

func TestAReplyDependsOnTheQuestionAlone(t *testing.T) {
	t.Parallel()
	_, first := start(t, nil)
	_, second := start(t, nil)
	_, other := start(t, func(o *scriptedreflector.Options) { o.Seed = 8 })
	byTry, bySeed := 0, 0
	const questions = 60
	for n := range questions {
		q := ask(t, search.Reflect, "Plan.", n)
		want, err := client(t, first, reflector.OpenAI).Reflect(t.Context(), q)
		require.NoError(t, err)
		got, err := client(t, second, reflector.Anthropic).Reflect(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, want.Text, got.Text, "by another API, from a server that was asked nothing else")
		q.Try = 1
		again, err := client(t, first, reflector.OpenAI).Reflect(t.Context(), q)
		require.NoError(t, err)
		viaOther, err := client(t, second, reflector.Anthropic).Reflect(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, again.Text, viaOther.Text)
		q.Try = 0
		seeded, err := client(t, other, reflector.OpenAI).Reflect(t.Context(), q)
		require.NoError(t, err)
		if want.Text == again.Text {
			byTry++
		}
		if want.Text == seeded.Text {
			bySeed++
		}
	}
	require.InDelta(t, questions/2, byTry, questions/4, "one of two texts")
	require.InDelta(t, questions/2, bySeed, questions/4)
}

func TestFaultsHaveTheirShare(t *testing.T) {
	t.Parallel()
	const questions, answer = 400, "forty-two thousand"
	shares := map[scriptedreflector.Fault]float64{}
	for _, f := range []scriptedreflector.Fault{
		scriptedreflector.CutOff, scriptedreflector.Empty, scriptedreflector.Markup, scriptedreflector.Unchanged,
		scriptedreflector.Copied, scriptedreflector.HTML, scriptedreflector.TooMany,
	} {
		shares[f] = 0.1
	}
	scripted, server := start(t, func(o *scriptedreflector.Options) { o.Faults, o.Answer = shares, answer })
	c := client(t, server, reflector.Anthropic)
	refusals, pages := map[search.Refusal]int{}, 0
	for n := range questions {
		q := ask(t, search.Reflect, "Write.", n)
		got, err := c.Reflect(t.Context(), q)
		if err != nil {
			require.ErrorContains(t, err, "web page")
			require.False(t, reflector.Final(err))
			pages++
			got, err = c.Reflect(t.Context(), q)
		}
		require.NoError(t, err)
		text, why := search.ReadText(reply(got), search.Rules{Current: "Write.", Answers: []string{answer}, Verbatim: 5})
		if why == "" && text == "Write." {
			why = search.RefusedUnchanged
		}
		refusals[why]++
	}
	counts := scripted.Counts()
	for refusal, f := range map[search.Refusal]scriptedreflector.Fault{
		search.RefusedCutOff: scriptedreflector.CutOff, search.RefusedEmpty: scriptedreflector.Empty, search.RefusedMarkup: scriptedreflector.Markup,
		search.RefusedUnchanged: scriptedreflector.Unchanged, search.RefusedCopies: scriptedreflector.Copied,
	} {
		require.Equal(t, refusals[refusal], counts.ByFault[f], f)
	}
	require.Equal(t, pages, counts.ByFault[scriptedreflector.HTML])
	for f := range shares {
		require.InDelta(t, questions/10, counts.ByFault[f], 24, f)
	}
	require.InDelta(t, questions/2, refusals[""], 40)
	require.Equal(t, questions, counts.Questions)
	require.Equal(t, questions+counts.ByFault[scriptedreflector.HTML]+counts.ByFault[scriptedreflector.TooMany], counts.ByKind[search.Reflect])

	for n := range 50 { // a critique is never unchanged and copies nothing
		got, err := c.Reflect(t.Context(), ask(t, search.Critique, "Write.", n))
		if err == nil {
			require.NotContains(t, got.Text, answer)
		}
	}
}

func TestWhatIsNoQuestionIsRefused(t *testing.T) {
	t.Parallel()
	scripted, server := start(t, func(o *scriptedreflector.Options) { o.Key = "another" })
	for _, api := range kinds() {
		_, err := client(t, server, api).Reflect(t.Context(), ask(t, search.Edit, "Plan.", 0))
		require.ErrorIs(t, err, reflector.ErrRefused)
		require.ErrorContains(t, err, "the key is wrong")
	}
	require.Equal(t, 2, scripted.Counts().Refused)

	_, server = start(t, nil)
	for _, api := range kinds() {
		c := client(t, server, api)
		for want, q := range map[string]reflector.Question{
			"the system message is none that a search asks with": {System: "Hello.", User: "Hello."},
			"the pool does not have the prompt's text":           ask(t, search.Edit, "Sing.", 0),
			"want a system message and one message of the user":  {User: "Hello."},
		} {
			if q.System == "" && api == reflector.Anthropic {
				want = "the system message is none"
			}
			_, err := c.Reflect(t.Context(), q)
			require.ErrorIs(t, err, reflector.ErrRefused)
			require.ErrorContains(t, err, want)
		}
	}
	for _, path := range []string{"/", "/v1/models"} {
		r, err := server.Client().Get(server.URL + path)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, http.StatusNotFound, r.StatusCode)
	}
}

func TestASinglePromptNeedsNoSeedInThePool(t *testing.T) {
	t.Parallel()
	_, server := start(t, func(o *scriptedreflector.Options) {
		o.Pool.Prompts = map[string][]scriptedreflector.Proposal{"writer": o.Pool.Prompts["writer"]}
		o.Faults = map[scriptedreflector.Fault]float64{scriptedreflector.Unchanged: 1}
	})
	got, err := client(t, server, reflector.OpenAI).Reflect(t.Context(), ask(t, search.Reflect, "Sing.\nLoud.", 0))
	require.NoError(t, err)
	text, why := search.ReadText(reply(got), search.Rules{})
	require.Empty(t, why)
	require.Equal(t, "Sing.\nLoud.", text)
}

func TestALineOfThePoolIsAddedOrTakenOut(t *testing.T) {
	t.Parallel()
	_, server := start(t, func(o *scriptedreflector.Options) {
		lines := []scriptedreflector.Proposal{{Text: "Use units."}, {Text: "Be short."}, {Text: "Guess."}}
		o.Pool = scriptedreflector.Pool{Lines: lines, Critiques: o.Pool.Critiques}
	})
	const current = "Write.\nBe short.\nSing."
	seen := map[string]int{}
	for _, api := range kinds() {
		c := client(t, server, api)
		for n := range 40 {
			got, err := c.Reflect(t.Context(), ask(t, search.Edit, current, n))
			require.NoError(t, err)
			text, why := search.ReadText(reply(got), search.Rules{})
			require.Empty(t, why)
			seen[text]++
		}
	}
	require.Len(t, seen, 3)
	for _, text := range []string{current + "\nUse units.", "Write.\nSing.", current + "\nGuess."} {
		require.Greater(t, seen[text], 10, text)
	}

	// A text is never empty, and a prompt that is no line of the pool may be any.
	_, server = start(t, func(o *scriptedreflector.Options) {
		o.Pool = scriptedreflector.Pool{Lines: []scriptedreflector.Proposal{{Text: "Guess."}, {Text: "Look."}}, Critiques: o.Pool.Critiques}
	})
	got, err := client(t, server, reflector.OpenAI).Reflect(t.Context(), ask(t, search.Reflect, "Guess.", 0))
	require.NoError(t, err)
	text, why := search.ReadText(reply(got), search.Rules{})
	require.Empty(t, why)
	require.Equal(t, "Guess.\nLook.", text)
}

func TestWrongOptionsOfTheScriptAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                               "read pool",
		`{}`:                               "prompts is empty",
		`{"prompts":{}}`:                   "prompts is empty",
		`{"prompts":{"p":[{"text":"a"}]}}`: "prompt p needs at least two texts",
		`{"prompts":{"p":[{"text":"a"},{"text":"b "}]}}`:               "text 1 of prompt p is empty, or has space around it",
		`{"prompts":{"p":[{"text":"a"},{"text":"a"}]}}`:                "text 1 of prompt p is also one of p",
		`{"prompts":{"p":[{"text":"a"},{"text":"b"}]},"critiques":[]}`: "critiques is empty",
		`{"lines":[{"text":"a"}],"prompts":{"p":[{"text":"a"}]}}`:      "it has prompts and lines",
		`{"lines":[{"text":"a"},{"text":"b\nc"}]}`:                     "line 1 is empty, or has space around it or a line break",
		`{"lines":[{"text":"a"},{"text":"a"}]}`:                        "line 1 is there twice",
		`{"lines":[{"text":"a"}]}`:                                     "lines needs at least two",
		`{"lines":[{"text":"a"},{"text":"b"}]}`:                        "critiques is empty",
	} {
		_, err := scriptedreflector.ReadPool([]byte(text))
		require.ErrorContains(t, err, want)
	}
	for _, faults := range []map[scriptedreflector.Fault]float64{
		{"fire": 0.1}, {scriptedreflector.Empty: 1.1}, {scriptedreflector.Empty: -1}, {scriptedreflector.Empty: 0.6, scriptedreflector.CutOff: 0.6},
		{scriptedreflector.HTML: 0.6, scriptedreflector.TooMany: 0.6}, {scriptedreflector.Copied: 0.1},
	} {
		_, err := scriptedreflector.New(scriptedreflector.Options{Pool: pool(t), Faults: faults})
		require.Error(t, err)
		require.True(t, strings.Contains(err.Error(), "fault"), err)
	}
}
