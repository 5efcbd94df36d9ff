package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

func TestSchemasThatCannotBeHeldAreRefusedByNameAndPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"properties":{"a/b":{"not":{"minLength":1}}}}`:                     `#/properties/a~1b/not: keyword "not" can't be held`,
		`{"anyOf":[{"type":"null"},{"if":{},"then":{"type":"null"}}]}`:       `#/anyOf/1/if: keyword "if"`,
		`{"type":"integer","multipleOf":2}`:                                  `#/multipleOf: keyword "multipleOf"`,
		`{"type":"number","multipleOf":1}`:                                   `#/multipleOf: keyword "multipleOf"`,
		`{"patternProperties":{"^x":{"type":"null"}}}`:                       `#/patternProperties: keyword`,
		`{"type":"object","minProperties":1}`:                                `#/minProperties: keyword`,
		`{"items":{"contains":{}}}`:                                          `#/items/contains: keyword`,
		`{"enum":[[1,1]],"uniqueItems":true}`:                                `#/uniqueItems: keyword`,
		`{"enum":[[1,1]],"maxItems":1}`:                                      `#/enum/0: enum or const has an array or object`,
		`{"const":{},"required":["a"]}`:                                      `#/const: enum or const has an array or object`,
		`{"pattern":"(?=a)"}`:                                                "#/pattern: pattern \"(?=a)\": error parsing regexp",
		`{"pattern":"a\\b"}`:                                                 `is possible only at an end`,
		`{"pattern":"^(a|bc)*$","maxLength":9000}`:                           `#/pattern: pattern together with a length`,
		`{"$ref":"other.json"}`:                                              `#/$ref: $ref "other.json" leads nowhere`,
		`{"$ref":"#/$defs/a"}`:                                               `leads nowhere`,
		`{"$ref":"#"}`:                                                       `#: refers to itself without an object or array between`,
		`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`:                           `refers to itself`,
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: `no value of at most 32 levels satisfies it`,
		`false`: `no value of at most`,
		`{"type":"integer","minimum":3,"maximum":2}`:                   `#/minimum: no number that can be written`,
		`{"type":"integer","minimum":1e308}`:                           `#/minimum: no number that can be written is within the limits; they have up to 18 digits`,
		`{"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2}`: `#/exclusiveMinimum: no number`,
		`{"type":"number","exclusiveMinimum":0.5,"maximum":0.5}`:       `#/exclusiveMinimum: no number`,
		`{"type":"string","minLength":3,"maxLength":2}`:                `#/maxLength: no string satisfies it together with the other keywords`,
		`{"type":"string","format":"email","maxLength":3}`:             `#/format: no string`,
		`{"type":"string","format":"date","pattern":"^x"}`:             `#/format: no string`,
		`{"type":"object","properties":{"a":{"items":{"maxLength":1,"minLength":2,"type":"string"},"minItems":1,"type":"array"}},"required":["a"]}`: `#/properties/a/items/minLength: no string`,
		`{"type":"string","pattern":"^a{3}$","maxLength":2}`:  `#/pattern: no string`,
		`{"type":"string","pattern":"[^\\x{0}-\\x{10FFFF}]"}`: `#/pattern: no string`,
		`{"enum":[]}`:                  `#/enum: none of the values`,
		`{"enum":["a"],"type":"null"}`: `#/enum: none of the values`,
		`{"type":"array","prefixItems":[{}],"minItems":2}`: `#/minItems: no array has that number`,
		`{"allOf":[{"type":"string"},{"type":"null"}]}`:    `#/allOf/1/type: no type is left`,
		`{"type":"thing"}`:        `#/type: unknown type`,
		`{"minLength":-1}`:        `#/minLength: want a whole number`,
		`{"minimum":"1"}`:         `#/minimum: want a number`,
		`{"minimum":1e999999999}`: `#/minimum: number out of range`,
		`{"minimum":1e-30}`:       `#/minimum: a limit of more than 18 digits`,
		`{"required":"a"}`:        `#/required: required has the wrong type`,
		`{"anyOf":[]}`:            `#/anyOf: want a list of schemas`,
		`{"properties":{"a":1}}`:  `#/properties/a: a schema is an object or a boolean`,
		`{"a":`:                   `not JSON`,
		`{} {}`:                   `text after the schema's end`,
		"{\"title\":\"\xff\"}":    `not UTF-8`,
	} {
		_, err := schema.Compile([]byte(text))
		require.ErrorIs(t, err, schema.ErrSchema, text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestKeywordsThatCannotMatterAreNotRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"type":"string","multipleOf":2,"uniqueItems":true,"patternProperties":{"a":{}}}`,
		`{"type":"integer","pattern":"^[a-z]+$","multipleOf":1}`,
		`{"type":"array","uniqueItems":false}`,
		`{"$defs":{"a":{"not":{}}},"title":"t","description":"d","default":1,"examples":[],"deprecated":true,"format":"uri","$id":"x","x-y":1}`,
	} {
		compile(t, text)
	}
}

// A schema is untrusted input: no schema may keep a process busy.
func TestSchemaBombsAreRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	var chain, lists strings.Builder
	for i := range 200 {
		fmt.Fprintf(&chain, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
		fmt.Fprintf(&lists, `,{"anyOf":[{"minLength":%d},{"maxLength":%d}]}`, i, i)
	}
	for _, text := range []string{
		`{"enum":[0` + many(`,"%d"`, 20_000) + `]}`,
		`{"properties":{"a":{}` + many(`,"`+strings.Repeat("x", 500)+`%d":{}`, 400) + `},"additionalProperties":true}`,
		`{"pattern":"^(.{0,30}){0,30}$"}`,
		`{"minLength":1000000000}`,
	} {
		m := compile(t, text).Matcher()
		for _, b := range []byte(`"xxx`) {
			m.Step(b)
		}
	}
	compile(t, `{"$ref":"#/$defs/a0","$defs":{`+chain.String()+`"a200":{"type":"null"}}}`)
	for text, want := range map[string]string{
		`{"allOf":[{}` + lists.String() + `]}`:                                          `more than 512 alternatives`,
		`{"title":"` + strings.Repeat("x", 1<<18) + `"}`:                                `at most 262144`,
		strings.Repeat(`{"items":`, 200) + `{}` + strings.Repeat(`}`, 200):              `nested deeper than 128`,
		`{"properties":{"a":{}` + many(`,"p%d":{}`, 1000) + `}}`:                        `more than 1000 properties`,
		`{"allOf":[{}` + many(`,{"minLength":%d}`, 3000) + `]}`:                         `too much to combine`,
		`{"$defs":{"a":{}},"prefixItems":[true` + many(`,{"minItems":%d}`, 5000) + `]}`: `more than 4096 schemas`,
	} {
		_, err := schema.Compile([]byte(text))
		require.ErrorIs(t, err, schema.ErrSchema)
		require.ErrorContains(t, err, want)
	}
}

func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"type":["string","null"],"maxLength":3}}}`,
		`{"anyOf":[{"enum":[1,"a",{"b":[]}]},{"type":"number","minimum":-0.25,"exclusiveMaximum":1e2}]}`,
		`{"type":"array","prefixItems":[true],"items":{"pattern":"^(a|é)*b?$","minLength":1},"maxItems":4}`,
		`{"allOf":[{"required":["x"]},{"additionalProperties":{"format":"date"}}]}`,
	} {
		f.Add([]byte(text), []byte(`{"a": 1, "b":[0.5,"x"]}`))
	}
	f.Fuzz(func(t *testing.T, text, choices []byte) {
		g, err := schema.Compile(text)
		if err != nil {
			require.ErrorIs(t, err, schema.ErrSchema)
			return
		}
		// After any allowed bytes, there are further ones or the text may end.
		m := g.Matcher()
		for _, choice := range choices {
			allowed := m.Allowed()
			require.True(t, allowed.Len() > 0 || m.Complete())
			all := slices.Collect(allowed.All())
			if len(all) == 0 {
				return
			}
			require.True(t, m.Step(all[int(choice)%len(all)]))
		}
	})
}
