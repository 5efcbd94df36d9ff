package toolcall_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/dialog/toolcall"
)

func qwen(t *testing.T) toolcall.Checker {
	t.Helper()
	f, err := toolcall.Named("qwen3_xml")
	require.NoError(t, err)
	return f.(toolcall.Checker)
}

// xml writes a call with these parameters, name and value by turns.
func xml(parameters ...string) string {
	text := "<tool_call>\n<function=f>\n"
	for pair := range slices.Chunk(parameters, 2) {
		text += "<parameter=" + pair[0] + ">\n" + pair[1] + "\n</parameter>\n"
	}
	return text + "</function>\n</tool_call>"
}

func TestTypesAreFoundWhereverASchemaDescribesParameters(t *testing.T) {
	t.Parallel()
	p := `{"type":"object","properties":{"x":{"type":"integer"},"o":{"type":"object"},"s":{"type":"string"}},"required":["x"]}`
	written := []string{"x", "5", "o", `{"a": 1}`, "s", "7"}
	want := `{"x": 5, "o": {"a": 1}, "s": "7"}`
	for _, text := range []string{
		p,
		`{"$ref":"#/$defs/P","$defs":{"P":` + p + `}}`,
		`{"$ref":"#/definitions/a/deep","definitions":{"a":{"deep":` + p + `}}}`,
		`{"allOf":[` + p + `,{"type":"object"}]}`,
		`{"anyOf":[` + p + `,{"type":"object","properties":{"y":{"type":"null"}}}]}`,
		`{"oneOf":[{"$ref":"#/$defs/P"}],"$defs":{"P":` + p + `}}`,
		`{"properties":{"x":{"$ref":"#/$defs/n"},"o":{"allOf":[{"$ref":"#/$defs/o"}]},"s":{"$ref":"#/properties/o/x-text"}},"$defs":{"n":{"$ref":"#/$defs/m"},"m":{"const":5},"o":{"type":"object"}}}`,
		`{"properties":{"x":{"enum":[5,6]},"s":{"type":"string"}},"additionalProperties":{"type":"object"}}`,
		`{"additionalProperties":{"type":["integer","object"]},"properties":{"s":{"type":"string"}}}`,
		`{"patternProperties":{"^[xo]$":{"type":["integer","object"]}},"properties":{"s":{}}}`,
		`{"properties":{"x":{"minimum":3},"o":{"properties":{"a":{}}},"s":{"not":{"type":"null"},"type":"string"}}}`,
	} {
		text = strings.ReplaceAll(text, `"#/properties/o/x-text"`, `"#/$defs/text"`)
		text = strings.ReplaceAll(text, `"$defs":{"n"`, `"$defs":{"text":{"type":"string"},"n"`)
		tool := toolcall.Tool{Name: "f", Parameters: json.RawMessage(text)}
		require.NoError(t, qwen(t).Check(tool), text)
		got := qwen(t).Parse(xml(written...), []toolcall.Tool{tool})
		require.Empty(t, got.Problem, text)
		require.Equal(t, want, got.Calls[0].Arguments, text)
	}
}

func TestToolsWhoseParametersCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"$ref":"https://example.com/p.json"}`:        `#/$ref: $ref "https://example.com/p.json" leads nowhere`,
		`{"properties":{"a":{"$ref":"#/$defs/none"}}}`: `#/properties/a/$ref: $ref "#/$defs/none" leads nowhere`,
		`{"$ref":"#"}`: `refers to itself`,
		`{"properties":{"a":{"allOf":[{"type":"text"}]}}}`:           `#/properties/a/allOf/0/type: unknown type`,
		`{"properties":{"a\nb":{"type":"string"}}}`:                  `the name "a\nb" of a parameter can't be written in a tag`,
		`{"patternProperties":{"(?!x)":{}},"properties":{"a":true}}`: `#/patternProperties/(?!x): pattern`,
		`[]`: `a schema is an object or a boolean`,
	} {
		err := qwen(t).Check(toolcall.Tool{Name: "f", Parameters: json.RawMessage(text)})
		require.ErrorIs(t, err, schema.ErrSchema, text)
		require.ErrorContains(t, err, want, text)
	}
}

// Forced calls are read back as arguments that a validator accepts.
func TestForcedCallsSatisfyTheSchemaOfTheirTool(t *testing.T) {
	t.Parallel()
	p := `{"type":"object","properties":{"x":{"type":"integer"},"o":{"type":"object","properties":{"</parameter>":{"type":"string"}},"required":["</parameter>"]}},"required":["x","o"]}`
	for i, c := range []struct{ schema, has string }{
		{`{}`, ``}, {`null`, ``},
		{p, `"x"`},
		{`{"$ref":"#/$defs/P","$defs":{"P":` + p + `}}`, `"x"`},
		{`{"allOf":[` + p + `,{"properties":{"y":{"type":"boolean"}},"required":["y"]}]}`, `"y"`},
		{`{"anyOf":[` + p + `,{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}]}`, `"x"`},
		{`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{"type":["string","integer","boolean","null","object","array","number"]}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{"type":["string","integer"],"minLength":3,"maxLength":2000},"b":{"type":["string","number","null"],"maxLength":100000}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{"type":"string","minLength":2,"maxLength":100000}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{"type":"string","pattern":"^[</a]+$","maxLength":6}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{"anyOf":[{"type":"string","format":"date"},{"type":"number"}]}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{"enum":["x","1",1,"null",null,"</"]},"b":{"const":"tr"}},"required":["a","b"]}`, `"b"`},
		{`{"properties":{"a":{"type":["string","null"],"pattern":"^(null|nul|nulls)$"}},"required":["a"]}`, `"a"`},
		{`{"properties":{"a":{},"b":{"properties":{"c":{"type":"integer"}}}},"required":["a","b"]}`, `"a"`},
		{`{"additionalProperties":{"type":"integer"},"properties":{"a":{"type":"string"}},"required":["z"]}`, `"z"`},
		{`{"required":["q"]}`, `"q"`},
	} {
		text := c.schema
		if text == "null" {
			text = "{}"
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		require.NoError(t, compiler.AddResource("test:schema", document))
		validator, err := compiler.Compile("test:schema")
		require.NoError(t, err)

		tools := []toolcall.Tool{{Name: "f", Parameters: json.RawMessage(c.schema)}}
		b := schema.NewBuilder()
		e, err := qwen(t).Grammar(b, tools, b.Literal)
		require.NoError(t, err, c.schema)
		g := b.Grammar(e)
		r := rand.New(rand.NewPCG(uint64(i), 5))
		for range 30 {
			said := forced(t, r, g)
			got := qwen(t).Parse(said, tools)
			require.Empty(t, got.Problem, "%s\n%s", c.schema, said)
			require.Len(t, got.Calls, 1)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.Calls[0].Arguments))
			require.NoError(t, err, got.Calls[0].Arguments)
			require.NoError(t, validator.Validate(value), "%s\n%s\n%s", c.schema, said, got.Calls[0].Arguments)
			require.Contains(t, got.Calls[0].Arguments, c.has, c.schema)
		}
	}
}

// forced returns a text of the grammar. After some bytes it ends what can be ended.
func forced(t *testing.T, r *rand.Rand, g *schema.Grammar) string {
	t.Helper()
	const end = "\n</parameter>\n"
	m := g.Matcher()
	var text []byte
	for !m.Final() {
		all := slices.Collect(m.Allowed().All())
		require.NotEmpty(t, all, "stuck after %s", text)
		next := all[r.IntN(len(all))]
		ended := len(end) - 1
		for !strings.HasSuffix(string(text), end[:ended]) {
			ended--
		}
		for _, closing := range []byte{'"', ']', '}', end[ended]} {
			if m.Allowed().Has(closing) && (r.IntN(4) == 0 || len(text) > 300 && closing == end[ended]) {
				next = closing
			}
		}
		require.Less(t, len(text), 20_000)
		require.True(t, m.Step(next))
		text = append(text, next)
	}
	return string(text)
}

func TestAForcedCallThatCannotBeHeldNamesItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"properties":{"a":{"properties":{"b":{"type":"array","uniqueItems":true}},"type":"object"}}}`: `#/properties/a/properties/b/uniqueItems: keyword "uniqueItems"`,
		`{"$ref":"#/$defs/P","$defs":{"P":{"properties":{"a":{"type":"string","pattern":"(?=x)"}}}}}`:   `#/$defs/P/properties/a/pattern: pattern "(?=x)"`,
		`{"const":{"a":1}}`: `enum or const of whole objects`,
		`{"properties":{"a":{"const":"</"}},"required":["a"]}`: `no arguments can be written`,
	} {
		b := schema.NewBuilder()
		_, err := qwen(t).Grammar(b, []toolcall.Tool{{Name: "f", Parameters: json.RawMessage(text)}}, b.Literal)
		require.ErrorIs(t, err, schema.ErrSchema, text)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, `tool "f"`, text)
	}
}
