package rewrite_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
)

func set(t require.TestingT, byName map[string]string, rules ...prompts.Rule) prompts.Set {
	all := map[string]prompts.Prompt{}
	for name, text := range byName {
		all[name] = prompts.Prompt{Text: text}
	}
	p, err := prompts.New(all)
	require.NoError(t, err)
	s, err := prompts.NewSet(p, rules)
	require.NoError(t, err)
	return s
}

func say(role dialog.Role, content string) dialog.Message {
	return dialog.Message{Role: role, Content: content}
}

func system(content string) dialog.Message { return say(dialog.System, content) }
func user(content string) dialog.Message   { return say(dialog.User, content) }

func rule(prompt string, m prompts.Match) prompts.Rule { return prompts.Rule{Prompt: prompt, Match: m} }

func texts(messages []dialog.Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, m.Content)
	}
	return out
}

func TestAPrefixIsReplacedAndTheRestOfTheMessageStays(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"writer": "Write one query."}, rule("writer", prompts.Match{Role: prompts.System, Prefix: "You write SQL."}))
	given := []dialog.Message{system("You write SQL.\nSchema: t(a)"), user("You write SQL. How many?")}
	before := slices.Clone(given)
	got := rewrite.Apply(s, rewrite.Request{Messages: given})
	require.Equal(t, []string{"Write one query.\nSchema: t(a)", "You write SQL. How many?"}, texts(got.Messages))
	require.Equal(t, []rewrite.Replacement{{Rule: 0, Prompt: "writer", Place: rewrite.Place{Message: 0}, Start: 0, End: 14}}, got.Replacements)
	require.Empty(t, got.Problems)
	require.Equal(t, before, given, "the request does not change")
}

func TestAMatchIsDecidedByTheRequest(t *testing.T) {
	t.Parallel()
	one := 1
	for name, c := range map[string]struct {
		match   prompts.Match
		request rewrite.Request
		want    bool
	}{
		"exact":              {prompts.Match{Role: prompts.System, Exact: "old"}, rewrite.Request{Messages: []dialog.Message{system("old")}}, true},
		"more than exact":    {prompts.Match{Role: prompts.System, Exact: "old"}, rewrite.Request{Messages: []dialog.Message{system("old!")}}, false},
		"developer":          {prompts.Match{Role: prompts.Developer, Exact: "old"}, rewrite.Request{Messages: []dialog.Message{system("old")}}, true},
		"user":               {prompts.Match{Role: prompts.User, Exact: "old"}, rewrite.Request{Messages: []dialog.Message{user("old")}}, true},
		"another role":       {prompts.Match{Role: prompts.User, Exact: "old"}, rewrite.Request{Messages: []dialog.Message{system("old")}}, false},
		"agent":              {prompts.Match{Role: prompts.System, Agent: "writer"}, rewrite.Request{Agent: "writer", Messages: []dialog.Message{system("old")}}, true},
		"another agent":      {prompts.Match{Role: prompts.System, Agent: "writer"}, rewrite.Request{Agent: "critic", Messages: []dialog.Message{system("old")}}, false},
		"model":              {prompts.Match{Role: prompts.System, Model: "m"}, rewrite.Request{Model: "m", Messages: []dialog.Message{system("old")}}, true},
		"another model":      {prompts.Match{Role: prompts.System, Model: "m"}, rewrite.Request{Model: "n", Messages: []dialog.Message{system("old")}}, false},
		"position":           {prompts.Match{Role: prompts.User, Position: &one}, rewrite.Request{Messages: []dialog.Message{system("x"), user("old")}}, true},
		"another position":   {prompts.Match{Role: prompts.User, Position: &one}, rewrite.Request{Messages: []dialog.Message{user("old")}}, false},
		"reply of the model": {prompts.Match{Role: prompts.System, Exact: "old"}, rewrite.Request{Messages: []dialog.Message{say(dialog.Assistant, "old"), say(dialog.ToolReply, "old")}}, false},
		"tool":               {prompts.Match{Role: prompts.Tool, Tool: "search"}, rewrite.Request{Tools: []dialog.Tool{{Name: "search", Description: "old"}}}, true},
		"another tool":       {prompts.Match{Role: prompts.Tool, Tool: "search"}, rewrite.Request{Tools: []dialog.Tool{{Name: "find", Description: "old"}}}, false},
	} {
		got := rewrite.Apply(set(t, map[string]string{"p": "new"}, rule("p", c.match)), c.request)
		require.Equal(t, c.want, len(got.Replacements) == 1, name)
		require.Equal(t, c.want, slices.Contains(texts(got.Messages), "new") || slices.ContainsFunc(got.Tools, func(t dialog.Tool) bool { return t.Description == "new" }), name)
	}
}

func TestOnlyTheDescriptionOfAToolIsReplaced(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"search": "Finds pages."}, rule("search", prompts.Match{Role: prompts.Tool, Tool: "search", Prefix: "Search"}))
	given := []dialog.Tool{{Name: "search", Description: "Search (fast)", Parameters: []byte(`{"type":"object"}`)}, {Name: "other", Description: "Search"}}
	got := rewrite.Apply(s, rewrite.Request{Tools: given})
	require.Equal(t, []dialog.Tool{{Name: "search", Description: "Finds pages. (fast)", Parameters: []byte(`{"type":"object"}`)}, {Name: "other", Description: "Search"}}, got.Tools)
	require.Equal(t, "Search (fast)", given[0].Description)
}

func TestReferencesCountInSystemMessagesOnly(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"writer": "W {{x}}", "critic": "C"})
	got := rewrite.Apply(s, rewrite.Request{
		Messages: []dialog.Message{
			system("a {{prompt:writer}} b {{prompt:critic}}{{prompt:writer}} {{prompt:"),
			user("{{prompt:writer}}"), say(dialog.Assistant, "{{prompt:writer}}"), say(dialog.ToolReply, "{{prompt:writer}}"),
		},
		Tools: []dialog.Tool{{Name: "t", Description: "{{prompt:writer}}"}},
	})
	require.Equal(t, []string{"a W {{x}} b CW {{x}} {{prompt:", "{{prompt:writer}}", "{{prompt:writer}}", "{{prompt:writer}}"}, texts(got.Messages))
	require.Equal(t, "{{prompt:writer}}", got.Tools[0].Description)
	require.Len(t, got.Replacements, 3)
	require.Empty(t, got.Problems)
}

func TestAnUnknownReferenceIsAProblemByName(t *testing.T) {
	t.Parallel()
	got := rewrite.Apply(set(t, map[string]string{"a": "x"}), rewrite.Request{Messages: []dialog.Message{system("s"), system("{{prompt:b}}, {{prompt:a}}")}})
	require.Equal(t, []string{"s", "{{prompt:b}}, x"}, texts(got.Messages))
	require.Equal(t, []rewrite.Problem{{Kind: rewrite.Unknown, Rule: -1, Prompt: "b", Place: rewrite.Place{Message: 1}}}, got.Problems)
	require.EqualError(t, got.Problems[0], `the system message messages[1].content has {{prompt:b}}, and there is no such prompt`)
	without := rewrite.Request{Messages: []dialog.Message{
		system("{{prompt:b}}"), user("{{prompt:b}}"), say(dialog.Assistant, "{{prompt:b}}"), say(dialog.ToolReply, "{{prompt:b}}"),
	}}
	got = rewrite.Apply(prompts.Set{}, without)
	require.Equal(t, without.Messages, got.Messages)
	require.Equal(t, []rewrite.Problem{{Kind: rewrite.Unknown, Rule: -1, Prompt: "b", Place: rewrite.Place{Message: 0}}}, got.Problems)
}

func TestAReferenceWithinWhatARuleReplacedIsGone(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"a": "x", "b": "y"}, rule("b", prompts.Match{Role: prompts.System, Prefix: "old {{prompt:a}}"}))
	got := rewrite.Apply(s, rewrite.Request{Messages: []dialog.Message{system("old {{prompt:a}} {{prompt:a}}")}})
	require.Equal(t, []string{"y x"}, texts(got.Messages))
}

func TestTheFirstMatchOfARuleIsReplacedAndTheSecondIsAProblem(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"a": "new"}, rule("a", prompts.Match{Role: prompts.System, Prefix: "old"}))
	got := rewrite.Apply(s, rewrite.Request{Messages: []dialog.Message{system("old 1"), user("old"), system("old 2")}})
	require.Equal(t, []string{"new 1", "old", "old 2"}, texts(got.Messages))
	require.Len(t, got.Problems, 1)
	require.EqualError(t, got.Problems[0], `rule 0 (prompt "a") matches twice in one request, also at messages[2].content`)
}

func TestOfTwoRulesForOneTextTheFirstReplacesIt(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"a": "A", "b": "B"},
		rule("a", prompts.Match{Role: prompts.System, Prefix: "old"}), rule("b", prompts.Match{Role: prompts.System, Prefix: "old text"}))
	got := rewrite.Apply(s, rewrite.Request{Messages: []dialog.Message{system("old text")}})
	require.Equal(t, []string{"A text"}, texts(got.Messages))
	require.Len(t, got.Problems, 1)
	require.EqualError(t, got.Problems[0], `rule 1 (prompt "b") matches messages[0].content, which rule 0 replaces`)
}

func TestACounterKnowsWhichRulesNeverMatched(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]string{"a": "A", "b": "B"},
		rule("a", prompts.Match{Role: prompts.System, Prefix: "old"}), rule("b", prompts.Match{Agent: "critic", Role: prompts.User, Exact: "check"}))
	c := rewrite.NewCounter(s)
	require.Len(t, c.Unmatched(), 2)
	for range 2 {
		c.Add(rewrite.Apply(s, rewrite.Request{Messages: []dialog.Message{system("old 1"), system("old 2"), user("check")}}))
	}
	require.Equal(t, []string{`rule 1 (prompt "b") never matched: agent critic, user message, exactly "check"`}, c.Unmatched())
	require.Len(t, c.Problems(), 1)
	require.Equal(t, 2, c.Count(c.Problems()[0]))
	c.Add(rewrite.Apply(s, rewrite.Request{Agent: "critic", Messages: []dialog.Message{user("check")}}))
	require.Empty(t, c.Unmatched())
	require.Equal(t, 3, c.Requests())
}

// drawn is a set and a request in which rules often match, and often more than once.
func drawn(t *rapid.T) (prompts.Set, rewrite.Request) {
	text := rapid.SampledFrom([]string{"", "old", "old text", "other", "{{prompt:a}}", "old {{prompt:b}}", "{{prompt:none}}", "older"})
	role := rapid.SampledFrom([]dialog.Role{dialog.System, dialog.User, dialog.Assistant, dialog.ToolReply})
	r := rewrite.Request{Agent: rapid.SampledFrom([]string{"", "x"}).Draw(t, "agent"), Model: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model")}
	for range rapid.IntRange(0, 6).Draw(t, "messages") {
		r.Messages = append(r.Messages, say(role.Draw(t, "role"), text.Draw(t, "text")))
	}
	var rules []prompts.Rule
	for range rapid.IntRange(0, 4).Draw(t, "rules") {
		m := prompts.Match{
			Role:  rapid.SampledFrom([]prompts.Role{prompts.System, prompts.Developer, prompts.User}).Draw(t, "of"),
			Agent: rapid.SampledFrom([]string{"", "x"}).Draw(t, "by"), Model: rapid.SampledFrom([]string{"", "m"}).Draw(t, "for"),
		}
		if rapid.Bool().Draw(t, "exact") {
			m.Exact = text.Draw(t, "match")
		} else {
			m.Prefix = text.Draw(t, "match")
		}
		if at := rapid.IntRange(-1, 3).Draw(t, "position"); at >= 0 {
			m.Position = &at
		}
		one := rule(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "prompt"), m)
		if len(prompts.RuleFaults(append(slices.Clone(rules), one), []string{"a", "b"})) == 0 {
			rules = append(rules, one)
		}
	}
	return set(t, map[string]string{"a": "old A", "b": "B"}, rules...), r
}

func TestWhatFollowsInADialogDoesNotChangeItsBeginning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawn(t)
		whole := rewrite.Apply(s, r)
		require.Len(t, whole.Messages, len(r.Messages))
		n := rapid.IntRange(0, len(r.Messages)).Draw(t, "n")
		begin := r
		begin.Messages = r.Messages[:n]
		require.Equal(t, texts(whole.Messages[:n]), texts(rewrite.Apply(s, begin).Messages))
	})
}

func TestNothingButWhatIsReportedIsReplaced(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawn(t)
		before := slices.Clone(r.Messages)
		got := rewrite.Apply(s, r)
		require.Equal(t, before, r.Messages)
		sent := slices.Clone(r.Messages)
		for _, one := range slices.Backward(got.Replacements) {
			text, err := s.Prompts().Text(one.Prompt)
			require.NoError(t, err)
			m := &sent[one.Message]
			m.Content = m.Content[:one.Start] + text + m.Content[one.End:]
		}
		require.Equal(t, sent, got.Messages)
		if len(got.Replacements) == 0 {
			require.Equal(t, r.Messages, got.Messages)
		}
	})
}
