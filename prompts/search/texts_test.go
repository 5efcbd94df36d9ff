package search_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/prompts/search"
)

func shown(kind search.Kind, variant int) search.Request {
	return search.Request{
		ID: "p1.reflect", Kind: kind, Variant: variant, Prompt: "writer", Critique: "It names no format.",
		Candidate: search.NewCandidate([]search.Prompt{{Name: "writer", Text: "Write {form}.\nBe brief."}}),
	}
}

func trace() search.Trace {
	reward := 0.25
	return search.Trace{
		Input: "How many users?", Output: "4", Failure: "timeout", Grade: "wrong", Words: "expected 5", Reward: &reward,
		Calls: []search.Call{{
			Prompts: []string{"writer"}, Asked: []search.Message{{Role: "system", Text: search.Mark("writer") + "\nusers(id)"}, {Role: "user", Text: "Count!"}},
			Reply: search.Message{Text: "I count.", Calls: []search.ToolCall{{Name: "sql", Arguments: `{"query":"SELECT 4"}`}}},
		}, {
			Prompts: []string{"checker", "guard"}, Asked: []search.Message{
				{Role: "system", Text: "Be strict."}, {Role: "tool", Tool: "sql", Text: "no such table:\nusers", Error: true},
			},
			Reply: search.Message{Text: "No."},
		}, {Agent: "third"}, {}},
	}
}

func TestARequestShowsThePromptAndWhatTheAttemptsDid(t *testing.T) {
	t.Parallel()
	for _, kind := range []search.Kind{search.Reflect, search.Critique} {
		got, err := search.Render(shown(kind, 0), []string{"form"}, []search.Trace{trace(), {}}, 10_000)
		require.NoError(t, err)
		for _, want := range []string{
			"<prompt>\nWrite {form}.\nBe brief.\n</prompt>", "Attempt 1 of 2", "Attempt 2 of 2", "Reward: 0.25", "Reward: none",
			"Grade:\n| wrong", "Grader's words:\n| expected 5", "Failed:\n| timeout", "Input:\n| How many users?",
			"Call 1, which reads this prompt\nsystem:\n| [the prompt writer]\n| users(id)\nuser:\n| Count!\n",
			"reply:\n| I count.\nreply calls sql:\n" + `| {"query":"SELECT 4"}`,
			"Call 2, which reads other prompts: checker, guard\ntool sql, an error:\n| no such table:\n| users\nreply:\n| No.\n",
			"Call 3, of the agent third\nCall 4\n", "Output:\n| 4", "They are evidence.",
		} {
			require.Contains(t, got.User, want)
		}
		require.NotContains(t, got.User, "It names no format.")
		require.NotContains(t, got.User, "Be strict.", "the system message of a call that does not read the prompt")
		require.Regexp(t, `(?s)Attempt 2 of 2.*These were the attempts.*Write a better prompt|Now write the review`, got.User, "small models go on with what they read last")
	}
	got, err := search.Render(shown(search.Edit, 0), []string{"form"}, nil, 10_000)
	require.NoError(t, err)
	require.Contains(t, got.User, "<review>\nIt names no format.\n</review>")
}

func TestWhatAnAttemptGotIsShownOnce(t *testing.T) {
	t.Parallel()
	one := trace()
	one.Input = "Count!"
	got, err := search.Render(shown(search.Reflect, 0), []string{"form"}, []search.Trace{one}, 10_000)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(got.User, "Count!"))
}

func TestCallsThatDoNotReadThePromptAreShortenedFirst(t *testing.T) {
	t.Parallel()
	one := trace()
	one.Calls[1].Asked[1].Text = strings.Repeat("x", 6000)
	got, err := search.Render(shown(search.Reflect, 0), []string{"form"}, []search.Trace{one}, 6000)
	require.NoError(t, err)
	require.NotContains(t, got.User, "left out here")
	for _, want := range []string{"| users(id)", "| Count!", "| I count.", "xxx…", "Output:\n| 4"} {
		require.Contains(t, got.User, want)
	}
}

func TestEachVariantAsksInItsOwnWords(t *testing.T) {
	t.Parallel()
	for kind, variants := range map[search.Kind]int{search.Reflect: 1, search.Critique: 3, search.Edit: 2} {
		seen := map[string]bool{}
		for variant := range variants {
			got, err := search.Render(shown(kind, variant), []string{"form"}, nil, 10_000)
			require.NoError(t, err)
			require.False(t, seen[got.System])
			seen[got.System] = true
			if kind != search.Critique {
				require.Contains(t, got.System, "```")
				require.Contains(t, got.System, "these placeholders: {form}. Keep each")
			}
			got, err = search.Render(shown(kind, variant), nil, nil, 10_000)
			require.NoError(t, err)
			require.NotContains(t, got.System, "placeholder", "braces mean nothing in a prompt that declares none")
		}
	}
}

func TestARequestIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		traces := make([]search.Trace, rapid.IntRange(1, 6).Draw(t, "attempts"))
		for i := range traces {
			traces[i] = trace()
			traces[i].Input = strings.Repeat("wörter ", rapid.IntRange(0, 2000).Draw(t, "input"))
			traces[i].Words = strings.Repeat("falsch\n", rapid.IntRange(0, 2000).Draw(t, "words"))
			traces[i].Calls[1].Asked[1].Text = strings.Repeat("zeile\n", rapid.IntRange(0, 5000).Draw(t, "result"))
		}
		bytes := rapid.IntRange(3500, 40_000).Draw(t, "bytes")
		got, err := search.Render(shown(search.Reflect, 0), []string{"form"}, traces, bytes)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got.System)+len(got.User), bytes)
		require.True(t, utf8.ValidString(got.User))
		require.Equal(t, len(traces), strings.Count(got.User, "Reward: 0.25"))
		require.Equal(t, len(traces), strings.Count(got.User, "| wrong"))
	})
}

func TestShortAttemptsLeaveTheirBytesToLongOnes(t *testing.T) {
	t.Parallel()
	long := trace()
	long.Calls[0].Asked[1].Text = strings.Repeat("x", 6000)
	got, err := search.Render(shown(search.Reflect, 0), []string{"form"}, []search.Trace{long, trace(), trace()}, 9500)
	require.NoError(t, err)
	require.NotContains(t, got.User, "left out")
	got, err = search.Render(shown(search.Reflect, 0), []string{"form"}, []search.Trace{long, long, long}, 9500)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(got.User, "bytes are left out here"))
	require.Equal(t, 3, strings.Count(got.User, "Output:\n| 4"), "the end is shown")
	long.Input = strings.Repeat("y", 6000)
	got, err = search.Render(shown(search.Reflect, 0), []string{"form"}, []search.Trace{long, long, long}, 9500)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(got.User, "I count."), "the input pushes the messages out")
}

func TestWhatCannotBeRenderedIsAnError(t *testing.T) {
	t.Parallel()
	_, err := search.Render(shown(search.Reflect, 0), []string{"form"}, []search.Trace{trace()}, 1000)
	require.ErrorIs(t, err, search.ErrTooLarge)
	r := shown(search.Reflect, 0)
	r.Prompt = "other"
	_, err = search.Render(r, []string{"form"}, nil, 10_000)
	require.ErrorContains(t, err, `no prompt "other"`)
	_, err = search.Render(shown(search.Evaluate, 0), []string{"form"}, nil, 10_000)
	require.ErrorContains(t, err, "asks no reflector")
}

func TestANewTextIsReadFromItsFence(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]string{
		"```\nnew\n```": "new",
		"Here:\n```text\nnew\nlines\n```\nGood luck":      "new\nlines",
		"```\nan example:\n```sql\nSELECT\n```\nend\n```": "an example:\n```sql\nSELECT\n```\nend",
		"<think>```\nold\n```</think>\n```\nnew\n```":     "new",
		"  ```\r\n  new \r\n```  ":                        "new",
		"```Be brief.\nBe right.\n```":                    "Be brief.\nBe right.",
		"```text\nBe brief.\nBe right.```":                "Be brief.\nBe right.",
		"So:\n```Be brief.```":                            "Be brief.",
		"``` text\nBe brief.\n```":                        "Be brief.",
		"```\nBe brief.\n```\nIt stands between ```":      "Be brief.",
		"```\nReply like ```1```, and\nbe brief.\n```":    "Reply like ```1```, and\nbe brief.",
	} {
		got, why := search.ReadText(search.Reply{Text: reply}, search.Rules{})
		require.Empty(t, why, reply)
		require.Equal(t, want, got)
	}
}

func TestAReplyThatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	rules := search.Rules{
		Placeholders: []string{"form", "question"}, Current: "Use {form} for {question}: the capital",
		Answers: []string{"Ouagadougou", "the capital", "42"}, Verbatim: 5, MaxBytes: 80,
	}
	wrap := func(text string) string { return "```\n" + text + "\n```" }
	good := "Use {form} with {question} and 42, {{x}} and the capital."
	for reply, want := range map[string]search.Refusal{
		"":                                    search.RefusedEmpty,
		" \n":                                 search.RefusedEmpty,
		"<think>all in vain</think>":          search.RefusedEmpty,
		wrap(" "):                             search.RefusedEmpty,
		"<think>```\nhm\n```":                 search.RefusedCutOff,
		"```\nthe beginning":                  search.RefusedCutOff,
		"```\nan example:\n```sql\nSEL":       search.RefusedCutOff,
		"```\nReply like ```1```\nand be":     search.RefusedCutOff,
		"Sorry, I can't do that.":             search.RefusedNoFence,
		"<!DOCTYPE html><html>":               search.RefusedMarkup,
		"<HTML><body>502</body></html>":       search.RefusedMarkup,
		wrap("bad \xff"):                      search.RefusedUnreadable,
		wrap("bad \x00"):                      search.RefusedUnreadable,
		wrap(good + " Ouagadougou"):           search.RefusedCopies,
		wrap(good + " {new}"):                 search.RefusedUnknown,
		wrap(good + " {{prompt:b}}"):          search.RefusedUnknown,
		wrap("Use {form}, {{question}}"):      search.RefusedLost,
		wrap(good + strings.Repeat(" a", 20)): search.RefusedTooLong,
		wrap(good):                            "",
	} {
		_, why := search.ReadText(search.Reply{Text: reply}, rules)
		require.Equal(t, want, why, "%q", reply)
	}
	_, why := search.ReadText(search.Reply{Text: wrap(good), CutOff: true}, rules)
	require.Equal(t, search.RefusedCutOff, why)
	_, why = search.ReadText(search.Reply{CutOff: true}, rules)
	require.Equal(t, search.RefusedCutOff, why)
}

func TestBracesMeanNothingInAPromptWithoutPlaceholders(t *testing.T) {
	t.Parallel()
	text, why := search.ReadText(search.Reply{Text: "```\nReply as {answer} or {{x}}.\n```"}, search.Rules{})
	require.Empty(t, why)
	require.Equal(t, "Reply as {answer} or {{x}}.", text)
	_, why = search.ReadText(search.Reply{Text: "```\nAs {{prompt:other}} says.\n```"}, search.Rules{})
	require.Equal(t, search.RefusedUnknown, why, "no prompt can be put into a prompt")
}

func TestACritiqueIsReadWhole(t *testing.T) {
	t.Parallel()
	got, why := search.ReadCritique(search.Reply{Text: "<think>hm</think>\n- one\n- two\n"})
	require.Empty(t, why)
	require.Equal(t, "- one\n- two", got)
	for want, reply := range map[search.Refusal]search.Reply{
		search.RefusedEmpty:  {Text: "\n"},
		search.RefusedCutOff: {Text: "- one\n- tw", CutOff: true},
		search.RefusedMarkup: {Text: "<html>429</html>"},
	} {
		_, why := search.ReadCritique(reply)
		require.Equal(t, want, why)
	}
}

func FuzzReadText(f *testing.F) {
	f.Add("```\nnew\n```", false)
	f.Add("<think>```", true)
	f.Fuzz(func(t *testing.T, reply string, cut bool) {
		text, why := search.ReadText(search.Reply{Text: reply, CutOff: cut}, search.Rules{})
		if why != "" {
			require.Empty(t, text)
			return
		}
		require.NotEmpty(t, strings.TrimSpace(text))
		require.False(t, cut)
		require.Contains(t, strings.ReplaceAll(reply, "\r\n", "\n"), text)
	})
}
