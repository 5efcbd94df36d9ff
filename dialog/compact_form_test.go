package dialog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// parameters are schemas of tools. There is one of each kind that the codec writes in a
// different way.
var parameters = []string{
	`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`,
	`{"type":"object","properties":{"unit":{"type":"string","enum":["m²","km"]}},"required":["unit"],"additionalProperties":false}`,
	`{"type":"object","properties":{"code":{"type":"string","pattern":"^[a-f]{1,3}$"}},"required":["code"]}`,
	`{"type":"object","properties":{"short":{"type":"string","maxLength":3}},"required":["short"]}`,
	`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":20}},"required":["query"]}`,
	`{"type":"object","properties":{"at":{"anyOf":[{"type":"null"},{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}]}}}`,
	`{"properties":{"list":{"type":"array","items":{"type":"boolean"},"maxItems":3}},"required":["list"]}`,
	`{"type":"object"}`,
	`{}`,
	``,
}

func drawForm(t *rapid.T) (model.Form, []dialog.Tool) {
	form := model.Form{Codec: dialog.CompactName}
	var tools []dialog.Tool
	for i := range rapid.IntRange(0, 3).Draw(t, "tools") {
		one := model.FormTool{Name: fmt.Sprintf("tool %d?", i), Parameters: json.RawMessage(rapid.SampledFrom(parameters).Draw(t, "parameters"))}
		form.Tools = append(form.Tools, one)
		tools = append(tools, dialog.Tool{Name: one.Name, Parameters: one.Parameters})
	}
	form.Call = len(tools) > 0 && rapid.Bool().Draw(t, "call")
	if !form.Call {
		form.Schema = json.RawMessage(rapid.SampledFrom(append([]string{`{"type":"integer"}`, `{"enum":["a",[1]]}`}, parameters[:9]...)).Draw(t, "schema"))
	}
	return form, tools
}

// wander draws a reply of allowed tokens. After a while it prefers tokens that end the
// reply.
func wander(t *rapid.T, c model.Constraint) []int32 {
	var reply []int32
	for done := false; !done; {
		set := model.NewTokenSet(dialog.Compact().VocabSize())
		require.True(t, c.Allowed(set))
		var all []int32
		for id := range int32(dialog.Compact().VocabSize()) {
			if set.Has(id) {
				all = append(all, id)
			}
		}
		require.NotEmpty(t, all, "stuck after %s", dialog.Compact().Text(reply))
		require.Less(t, len(reply), 5000)
		token := rapid.SampledFrom(all).Draw(t, "token")
		for _, ending := range join(`"`, "]", "}", tokenizer.End) {
			inString := set.Has(encode("~")[0])
			if set.Has(ending) && (len(reply) > 100 || rapid.IntRange(0, 9).Draw(t, "hurry") == 0) && (!inString || ending == encode(`"`)[0] || ending == tokenizer.End) {
				token = ending
			}
		}
		reply = append(reply, token)
		done = c.Accept(token)
	}
	return reply
}

func validate(t require.TestingT, schema, value string) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("test:schema", document))
	s, err := c.Compile("test:schema")
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	require.NoError(t, err, value)
	require.NoError(t, s.Validate(v), "%s\nis not valid by %s", value, schema)
}

func TestWhateverAFormAllowsIsWhatItAsksFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		form, tools := drawForm(t)
		c, err := dialog.Constrain(form)
		require.NoError(t, err)
		reply := wander(t, c)
		message, problem := dialog.Compact().Parse(reply, tools, numbered)
		require.Empty(t, problem, dialog.Compact().Text(reply))
		require.Equal(t, tokenizer.End, reply[len(reply)-1])
		require.Equal(t, form.Call, form.Call && len(message.ToolCalls) > 0)
		if len(message.ToolCalls) == 0 {
			require.Equal(t, encode(message.Content), reply[:len(reply)-1], "the spelling is the codec's own")
			validate(t, string(form.Schema), message.Content)
			return
		}
		require.Empty(t, message.Content)
		for _, call := range message.ToolCalls {
			i := strings.IndexAny(call.Function.Name, "0123")
			schema := string(tools[call.Function.Name[i]-'0'].Parameters)
			if schema == "" {
				require.Equal(t, "{}", call.Function.Arguments)
				continue
			}
			validate(t, `{"allOf":[{"type":"object"},`+schema+`]}`, call.Function.Arguments)
		}
	})
}

func allowed(t *testing.T, c model.Constraint) string {
	t.Helper()
	set := model.NewTokenSet(dialog.Compact().VocabSize())
	require.True(t, c.Allowed(set))
	var all []int32
	for id := range int32(dialog.Compact().VocabSize()) {
		if set.Has(id) {
			all = append(all, id)
		}
	}
	return dialog.Compact().Text(all)
}

func constrain(t *testing.T, form model.Form) model.Constraint {
	t.Helper()
	form.Codec = dialog.CompactName
	c, err := dialog.Constrain(form)
	require.NoError(t, err)
	return c
}

func formTool(name, parameters string) model.FormTool {
	return model.FormTool{Name: name, Parameters: json.RawMessage(parameters)}
}

func TestASoleToolIsCalledWithoutItsNameByBareText(t *testing.T) {
	t.Parallel()
	c := constrain(t, model.Form{Call: true, Tools: []model.FormTool{formTool("calculator", parameters[0])}})
	require.Equal(t, "<call>", allowed(t, c))
	require.False(t, c.Accept(tokenizer.ToolCall))
	require.Contains(t, allowed(t, c), "<call><end>", "an empty text, another call, an end")
	require.NotContains(t, allowed(t, c), "<arg>")
	for _, id := range encode(`é"`) {
		require.False(t, c.Accept(id))
	}
	require.True(t, c.Accept(tokenizer.End))
	require.Empty(t, allowed(t, c))
}

func TestSeveralToolsAreCalledByName(t *testing.T) {
	t.Parallel()
	c := constrain(t, model.Form{Call: true, Tools: []model.FormTool{formTool("sin", parameters[0]), formTool("sum", parameters[4])}})
	c.Accept(tokenizer.ToolCall)
	c.Accept(encode("s")[0])
	require.Equal(t, "iu", allowed(t, c))
	for _, id := range encode("um") {
		c.Accept(id)
	}
	require.Equal(t, "<arg>", allowed(t, c))
	c.Accept(tokenizer.Argument)
	require.Equal(t, "{", allowed(t, c))
}

func TestTextByASchemaEndsWhereItIsWhole(t *testing.T) {
	t.Parallel()
	c := constrain(t, model.Form{Schema: json.RawMessage(`{"type":"integer","minimum":7,"maximum":19}`)})
	require.Equal(t, "1789", allowed(t, c))
	c.Accept(encode("1")[0])
	require.Equal(t, "0123456789", allowed(t, c))
	c.Accept(encode("3")[0])
	require.Equal(t, "<end>", allowed(t, c))
	require.True(t, c.Accept(tokenizer.End))
}

func TestTextOrCallsWhereBothMayBe(t *testing.T) {
	t.Parallel()
	odd := formTool("odd", `{"type":"object","not":{}}`)
	c := constrain(t, model.Form{Schema: json.RawMessage(`{}`), Tools: []model.FormTool{odd}})
	require.Equal(t, "<call>{", allowed(t, c), "an object, or a call, whose arguments nobody promised")
	c.Accept(tokenizer.ToolCall)
	require.Equal(t, "{", allowed(t, c))
}

func TestATokenOutsideOfTheFormLeavesNone(t *testing.T) {
	t.Parallel()
	for _, id := range []int32{tokenizer.User, -1, 288, encode("x")[0], 32 + '7'} { // the last is 7 in its other spelling
		c := constrain(t, model.Form{Schema: json.RawMessage(`{"type":"integer"}`)})
		require.False(t, c.Accept(id))
		require.Empty(t, allowed(t, c))
	}
}

func TestFormsThatCompactCannotHoldAreRefused(t *testing.T) {
	t.Parallel()
	for want, form := range map[string]model.Form{
		`a tool call without tools`: {Call: true},
		`schema: unsupported schema: #/properties/a/not: keyword "not" can't be held`: {Schema: json.RawMessage(`{"properties":{"a":{"not":{"minLength":1}}}}`)},
		`parameters of tool 1, "b": unsupported schema: #/properties/l/uniqueItems: keyword "uniqueItems" can't be held`: {Call: true, Tools: []model.FormTool{
			formTool("a", `{}`), formTool("b", `{"properties":{"l":{"uniqueItems":true}}}`)}},
		`no string can be the only value of property "a"`: {Call: true, Tools: []model.FormTool{
			formTool("a", `{"properties":{"a":{"type":"string"}},"required":["a","b"]}`)}},
	} {
		form.Codec = dialog.CompactName
		_, err := dialog.Constrain(form)
		require.ErrorIs(t, err, dialog.ErrForm)
		require.ErrorContains(t, err, want)
	}
	_, err := dialog.Constrain(model.Form{Codec: "verbose"})
	require.ErrorIs(t, err, dialog.ErrCodec)
}

func TestAStopTextEndsAReplyAtTheTokenThatCompletesIt(t *testing.T) {
	t.Parallel()
	c := constrain(t, model.Form{Stop: []string{"\n\n", "aab"}})
	require.False(t, c.Allowed(nil), "any token may come")
	for _, id := range encode("b\na") {
		require.False(t, c.Accept(id))
	}
	for _, id := range encode("aa") {
		require.False(t, c.Accept(id))
	}
	require.True(t, c.Accept(encode("b")[0]))
}

func TestAStopTextInACallEndsNothing(t *testing.T) {
	t.Parallel()
	c := constrain(t, model.Form{Stop: []string{"+"}})
	for _, id := range join("1", tokenizer.ToolCall, "1+1", tokenizer.End) {
		require.False(t, c.Accept(id))
	}
}

func TestAStopTextEndsAReplyThatASchemaHolds(t *testing.T) {
	t.Parallel()
	c := constrain(t, model.Form{Schema: json.RawMessage(`{"type":"integer"}`), Stop: []string{"00"}})
	for _, id := range encode("10") {
		require.False(t, c.Accept(id))
	}
	require.Equal(t, "<end>0123456789", allowed(t, c))
	require.True(t, c.Accept(encode("0")[0]))
}

// BenchmarkCompactForm measures making a constraint and following a reply with it.
func BenchmarkCompactForm(b *testing.B) {
	form := model.Form{Codec: dialog.CompactName, Call: true, Tools: []model.FormTool{formTool("search", parameters[4]), formTool("calculator", parameters[0])}}
	reply := join(tokenizer.ToolCall, "search", tokenizer.Argument, `{"query": "what is it", "limit": 12}`, tokenizer.End)
	set := model.NewTokenSet(dialog.Compact().VocabSize())
	for b.Loop() {
		c, err := dialog.Constrain(form)
		require.NoError(b, err)
		for _, token := range reply {
			clear(set)
			c.Allowed(set)
			require.True(b, set.Has(token))
			c.Accept(token)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(reply)), "ns/token")
}
