package prompts_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/prompts"
)

func set(t *testing.T, byName map[string]prompts.Prompt, rules ...prompts.Rule) prompts.Set {
	t.Helper()
	p, err := prompts.New(byName)
	require.NoError(t, err)
	s, err := prompts.NewSet(p, rules)
	require.NoError(t, err)
	return s
}

func TestFaultsNameThePromptAndWhatToDo(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	for key, byName := range map[string]map[string]prompts.Prompt{
		"name":                   {"Writer": {Text: "x"}},
		"empty":                  {"writer": {}},
		"too long":               {"writer": {Text: strings.Repeat("x", prompts.MaxBytes+1)}},
		"not UTF-8":              {"writer": {Text: "caf\xe9"}},
		"another prompt":         {"writer": {Text: "as {{prompt:critic}} says"}, "critic": {Text: "x"}},
		"placeholder missing":    {"writer": {Text: "no schema", Placeholders: []string{"schema"}}},
		"placeholder unknown":    {"writer": {Text: "{schema} {question}", Placeholders: []string{"schema"}}},
		"placeholder twice":      {"writer": {Text: "{schema}", Placeholders: []string{"schema", "schema"}}},
		"placeholder with space": {"writer": {Text: "x", Placeholders: []string{"a b"}}},
		"two prompts":            {"critic": {}, "writer": {}},
	} {
		_, err := prompts.New(byName)
		var faults *prompts.Error
		require.ErrorAs(t, err, &faults, key)
		said[key] = err.Error()
	}
	position := -1
	for key, rule := range map[string]prompts.Rule{
		"rule: no prompt":         {Prompt: "other", Match: prompts.Match{Role: prompts.System}},
		"rule: no role":           {Prompt: "writer"},
		"rule: no tool":           {Prompt: "writer", Match: prompts.Match{Role: prompts.Tool}},
		"rule: tool of a message": {Prompt: "writer", Match: prompts.Match{Role: prompts.User, Tool: "search"}},
		"rule: position":          {Prompt: "writer", Match: prompts.Match{Role: prompts.User, Position: &position}},
		"rule: position of tool":  {Prompt: "writer", Match: prompts.Match{Role: prompts.Tool, Tool: "search", Position: &position}},
		"rule: exact and prefix":  {Prompt: "writer", Match: prompts.Match{Role: prompts.User, Exact: "a", Prefix: "a"}},
	} {
		p, err := prompts.New(map[string]prompts.Prompt{"writer": {Text: "x"}})
		require.NoError(t, err)
		_, err = prompts.NewSet(p, []prompts.Rule{rule})
		require.Error(t, err, key)
		said[key] = err.Error()
	}
	golden.Table(t, "faults", said)
}

func TestTwoRulesWithOneMatchAreAFault(t *testing.T) {
	t.Parallel()
	p, err := prompts.New(map[string]prompts.Prompt{"a": {Text: "x"}, "b": {Text: "y"}})
	require.NoError(t, err)
	zero, other := 0, 0
	_, err = prompts.NewSet(p, []prompts.Rule{
		{Prompt: "a", Match: prompts.Match{Role: prompts.System, Position: &zero}},
		{Prompt: "b", Match: prompts.Match{Role: prompts.System, Position: &other}},
	})
	require.ErrorContains(t, err, `rule 1 (prompt "b"): match: it is the match of rule 0`)
}

func TestPlaceholdersAreThoseThatAFormatStringHas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                            nil,
		"{schema}":                    {"schema"},
		"{a} {b_1} {a}":               {"a", "b_1"},
		"{{schema}}":                  nil,
		"{{{schema}}}":                {"schema"},
		`{"type": "object"}`:          nil,
		"{ schema }":                  nil,
		"{0} {}":                      nil,
		"{unclosed":                   nil,
		"}{x}":                        {"x"},
		`{"a": {"b": "{schema}"} } x`: {"schema"},
	} {
		require.Equal(t, want, prompts.Placeholders(text), text)
	}
	for _, text := range []string{"{schema}", `as JSON: {{"a": 1}}, for {schema}`} {
		require.Empty(t, prompts.Prompt{Text: text, Placeholders: []string{"schema"}}.Faults("writer"), text)
	}
	require.Empty(t, prompts.Prompt{Text: "{anything} goes"}.Faults("writer"), "without placeholders, braces mean nothing")
}

func TestTheDigestIsOfTheContentAlone(t *testing.T) {
	t.Parallel()
	one := set(t, map[string]prompts.Prompt{"a": {Text: "x {p} {q}", Placeholders: []string{"p", "q"}}, "b": {Text: "y"}}, prompts.Rule{Prompt: "a", Match: prompts.Match{Role: prompts.System}})
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", one.Digest())
	same := set(t, map[string]prompts.Prompt{"b": {Text: "y"}, "a": {Text: "x {p} {q}", Placeholders: []string{"q", "p"}}}, prompts.Rule{Prompt: "a", Match: prompts.Match{Role: prompts.System}})
	require.Equal(t, one.Digest(), same.Digest())
	again, err := prompts.Decode(one.Encode())
	require.NoError(t, err)
	require.Equal(t, one.Digest(), again.Digest())
	require.Equal(t, string(one.Encode()), string(again.Encode()))
	for name, other := range map[string]prompts.Set{
		"text":  set(t, map[string]prompts.Prompt{"a": {Text: "x {p} {q}!", Placeholders: []string{"p", "q"}}, "b": {Text: "y"}}, one.Rules()...),
		"rules": set(t, map[string]prompts.Prompt{"a": {Text: "x {p} {q}", Placeholders: []string{"p", "q"}}, "b": {Text: "y"}}),
		"none":  {},
	} {
		require.NotEqual(t, one.Digest(), other.Digest(), name)
	}
}

func TestWhatIsReturnedCantChangeTheSet(t *testing.T) {
	t.Parallel()
	at := 0
	given := []prompts.Rule{{Prompt: "a", Match: prompts.Match{Role: prompts.System, Position: &at}}}
	s := set(t, map[string]prompts.Prompt{"a": {Text: "x"}}, given...)
	before := s.Digest()
	given[0].Prompt, at = "b", 7
	*s.Rules()[0].Match.Position = 8
	s.Rules()[0].Prompt = "c"
	require.Equal(t, before, s.Digest())
}

func TestAStoredSetThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `{`, `[]`, `{"prompts":{},"rules":[]} x`, `{"texts":{}}`, `{"prompts":{"A":{"text":"x"}},"rules":[]}`,
		`{"format":"fulgurite.prompts/1","prompts":{},"rules":[{"prompt":"a","match":{"role":"system"}}]}`,
		`{"format":"fulgurite.prompts/2","prompts":{},"rules":[]}`, `{"format":"fulgurite.prompts/1","prompts":{},"rules":[],"more":1}`,
	} {
		_, err := prompts.Decode([]byte(data))
		require.ErrorContains(t, err, "decode prompts", data)
	}
	empty, err := prompts.Decode(prompts.Set{}.Encode())
	require.NoError(t, err)
	require.True(t, empty.Empty())
}

func TestAPromptThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	s := set(t, map[string]prompts.Prompt{"a": {Text: "x"}, "b": {Text: "y"}})
	text, err := s.Prompts().Text("b")
	require.NoError(t, err)
	require.Equal(t, "y", text)
	_, err = s.Prompts().Text("c")
	require.ErrorIs(t, err, prompts.ErrNotFound)
	require.EqualError(t, err, `read prompt "c": no such prompt: there are a, b`)
	_, err = prompts.Prompts{}.Text("c")
	require.EqualError(t, err, `read prompt "c": no such prompt: there are none`)
}

func TestPromptsAreTheSameAfterJSON(t *testing.T) {
	t.Parallel()
	p, err := prompts.New(map[string]prompts.Prompt{"a": {Text: "<x> & \"y\" {p}", Placeholders: []string{"p"}}})
	require.NoError(t, err)
	data, err := json.Marshal(p)
	require.NoError(t, err)
	var again prompts.Prompts
	require.NoError(t, json.Unmarshal(data, &again))
	require.Equal(t, p, again)
	require.Equal(t, p.Digest(), again.Digest())
	require.ErrorContains(t, json.Unmarshal([]byte(`{"a":{"text":""}}`), &again), `prompt "a": text: empty`)
}
