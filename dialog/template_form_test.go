package dialog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
)

// walk samples a reply at random from the tokens that a constraint allows. After a while
// it prefers tokens that bring the reply to its end.
func walk(t *rapid.T, c dialog.Codec, held model.Constraint) (ids []int32, done bool) {
	for range 200 {
		set := model.NewTokenSet(c.VocabSize())
		require.True(t, held.Allowed(set))
		var allowed []int32
		for id := range int32(c.VocabSize()) {
			if set.Has(id) {
				allowed = append(allowed, id)
			}
		}
		require.NotEmpty(t, allowed, "after %q", c.Text(ids))
		id := rapid.SampledFrom(allowed).Draw(t, "token")
		if len(ids) > 30 {
			id = hasty(c, c.Text(ids), allowed, id)
		}
		ids = append(ids, id)
		if held.Accept(id) {
			return ids, true
		}
	}
	return ids, false
}

// hasty returns an allowed token that ends strings, thoughts or parameters, or other if
// there is no such token.
func hasty(c dialog.Codec, text string, allowed []int32, other int32) int32 {
	wanted := []string{end(c), "</think>", "</tool_call>", `"`, "}"}
	if _, value, found := strings.Cut(text, "<parameter="); found {
		switch _, value, _ = strings.Cut(value, ">\n"); {
		case strings.HasSuffix(value, "\n<"):
			wanted = append([]string{"/"}, wanted...)
		case strings.HasSuffix(value, "\n"):
			wanted = append([]string{"<"}, wanted...)
		default:
			wanted = append([]string{"\n"}, wanted...)
		}
	}
	for _, want := range wanted {
		for _, id := range allowed {
			if c.Text([]int32{id}) == want {
				return id
			}
		}
	}
	return other
}

func TestForcedCallsAreCalls(t *testing.T) {
	t.Parallel()
	tools := []dialog.Tool{calculator, search}
	var offered []model.FormTool
	for _, tool := range tools {
		offered = append(offered, model.FormTool{Name: tool.Name, Parameters: tool.Parameters})
	}
	for _, name := range []string{"hermes", "llama", "xml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := codec(t, name)
			finished := 0
			rapid.Check(t, func(t *rapid.T) {
				held, err := c.Constrain(model.Form{Tools: offered, Call: true})
				require.NoError(t, err)
				ids, done := walk(t, c, held)
				if !done {
					return
				}
				finished++
				require.Equal(t, c.Stop()[0], ids[len(ids)-1])
				reply, problem := c.Parse(ids, tools, numbered)
				require.Empty(t, problem, c.Text(ids))
				require.Len(t, reply.ToolCalls, 1)
				var arguments map[string]any
				require.NoError(t, json.Unmarshal([]byte(reply.ToolCalls[0].Function.Arguments), &arguments))
				if reply.ToolCalls[0].Function.Name == "search" {
					require.IsType(t, "", arguments["query"])
				} else {
					require.IsType(t, "", arguments["expression"])
				}
			})
			require.Positive(t, finished)
		})
	}
}

func TestForcedJSONIsTheContent(t *testing.T) {
	t.Parallel()
	form := model.Form{Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string","maxLength":9}},"required":["n","s"],"additionalProperties":false}`)}
	for _, name := range families() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := codec(t, name)
			finished := 0
			rapid.Check(t, func(t *rapid.T) {
				held, err := c.Constrain(form)
				require.NoError(t, err)
				ids, done := walk(t, c, held)
				if !done {
					return
				}
				finished++
				reply, problem := c.Parse(ids, nil, numbered)
				require.Empty(t, problem, c.Text(ids))
				var content struct {
					N *int    `json:"n"`
					S *string `json:"s"`
				}
				d := json.NewDecoder(strings.NewReader(reply.Content))
				d.DisallowUnknownFields()
				d.UseNumber()
				if err := d.Decode(&content); err != nil {
					require.ErrorContains(t, err, "cannot unmarshal number", "only an integer beyond Go's is excused: %s", reply.Content)
				}
			})
			require.Positive(t, finished)
		})
	}
}

func TestStopTextsEndReplies(t *testing.T) {
	t.Parallel()
	c := codec(t, "hermes")
	held, err := c.Constrain(model.Form{Stop: []string{"said that", ""}})
	require.NoError(t, err)
	require.False(t, held.Allowed(model.NewTokenSet(c.VocabSize())), "any token may come")
	ids := c.Encode("she said that we")
	taken := 0
	for !held.Accept(ids[taken]) {
		taken++
	}
	require.True(t, strings.HasSuffix(c.Text(ids[:taken+1]), "said that"))

	held, err = c.Constrain(model.Form{Stop: []string{`"a"`}, Schema: json.RawMessage(`{"enum":["a","b"]}`)})
	require.NoError(t, err)
	set := model.NewTokenSet(c.VocabSize())
	require.True(t, held.Allowed(set))
	require.False(t, held.Accept(c.Encode(`"`)[0]))
	require.False(t, held.Accept(c.Encode("a")[0]))
	require.True(t, held.Accept(c.Encode(`"`)[0]))

	held, err = c.Constrain(model.Form{})
	require.NoError(t, err)
	require.False(t, held.Allowed(set))
	require.False(t, held.Accept(0))
}

func TestStopTextsEndABareTextAnywhere(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"hermes", "xml"} {
		c := codec(t, family)
		held, err := c.Constrain(model.Form{Stop: []string{";"}, Bare: true})
		require.NoError(t, err)
		for _, id := range c.Encode("<think>a") {
			require.False(t, held.Accept(id))
		}
		require.True(t, held.Accept(c.Encode(";")[0]), family)
	}
}

func TestStopTextsEndContentAlone(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][2]string{ // a text after which the reply goes on, and one that then ends it
		"hermes": {"<think>\nx;y</think>\n\n", "a;"},
		"xml":    {"x;y</think>", "\n;"},
	} {
		c := codec(t, name)
		held, err := c.Constrain(model.Form{Stop: []string{";"}, Tools: []model.FormTool{{Name: "search"}}})
		require.NoError(t, err)
		for _, id := range c.Encode(texts[0]) {
			require.False(t, held.Accept(id), name)
		}
		done := false
		for _, id := range c.Encode(texts[1]) {
			done = held.Accept(id)
		}
		require.True(t, done, name)
	}
	for name, text := range map[string]string{
		"hermes":   `So <tool_call>{"name":"search","arguments":{"query":"a;b"}}</tool_call>`,
		"llama":    `{"name":"search","parameters":{"query":"a;b"}}`,
		"pythonic": `[search(query="a;b")]`,
	} {
		c := codec(t, name)
		held, err := c.Constrain(model.Form{Stop: []string{";"}, Tools: []model.FormTool{{Name: "search"}}})
		require.NoError(t, err)
		for _, id := range c.Encode(text) {
			require.False(t, held.Accept(id), name)
		}
		held, err = c.Constrain(model.Form{Stop: []string{"a;"}})
		require.NoError(t, err)
		ended := false
		for _, id := range c.Encode(text) {
			ended = ended || held.Accept(id)
		}
		require.True(t, ended, "without tools it is content: %s", name)
	}
}

func TestRepliesMayBeJSONOrACall(t *testing.T) {
	t.Parallel()
	c := codec(t, "llama")
	form := model.Form{Schema: json.RawMessage(`{"const":"yes"}`), Tools: []model.FormTool{{Name: "search", Parameters: search.Parameters}}}
	for _, text := range []string{`"yes"`, `{"name": "search", "parameters": {"query":"x"}}`} {
		held, err := c.Constrain(form)
		require.NoError(t, err)
		for i, id := range append(c.Encode(text), c.Stop()[0]) {
			set := model.NewTokenSet(c.VocabSize())
			require.True(t, held.Allowed(set))
			require.True(t, set.Has(id), "%s: token %d", text, i)
			held.Accept(id)
		}
	}
}

func TestFormsThatCannotBeHeldAreRefused(t *testing.T) {
	t.Parallel()
	tool := []model.FormTool{{Name: "f"}}
	for want, c := range map[string]struct {
		family string
		form   model.Form
	}{
		"pythonic format":           {"pythonic", model.Form{Call: true, Tools: tool}},
		"no known format":           {"plain", model.Form{Call: true, Tools: tool}},
		"no tool to call":           {"hermes", model.Form{Call: true}},
		"not":                       {"hermes", model.Form{Schema: json.RawMessage(`{"not":{"minLength":1}}`)}},
		`tool "f"`:                  {"hermes", model.Form{Call: true, Tools: []model.FormTool{{Name: "f", Parameters: json.RawMessage(`{"not":{"minLength":1}}`)}}}},
		"can't be written in a tag": {"xml", model.Form{Call: true, Tools: []model.FormTool{{Name: "f", Parameters: json.RawMessage(`{"properties":{"a>b":{"type":"string"}}}`)}}}},
	} {
		_, err := codec(t, c.family).Constrain(c.form)
		require.ErrorIs(t, err, dialog.ErrForm, want)
		require.ErrorContains(t, err, want)
	}
}
