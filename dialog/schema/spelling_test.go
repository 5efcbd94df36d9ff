package schema_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
)

func TestHowValuesAreWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ about, schema, in, out string }{
		{"order", `{"type":"object","properties":{"b":{},"a":{}},"required":["a"]}`,
			`{"a":1}|{"b":1,"a":2}`, `{}|{"b":1}|{"a":1,"b":2}|{"a":1,"c":1}|{"a":1,"a":1}`},
		{"others", `{"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"integer"}}`,
			`{}|{"a":null,"b":1}|{"ab":1,"":2}`, `{"a":1}|{"b":1,"a":null}|{"\u0061":1}|{"b":null}`},
		{"any", `{}`, `null|{"a":[{}]}|-0.5e+10|"\ud83d\ude00\u00e9"|1E5|0`, ` 1|01|1.|.5|+1|"\ud83d"|"\udc00"|"a|tru|nan|[1,]|{"a"}`},
		{"white space", `{"type":"object"}`, `{"a": [1, 2]}|{"a":1, "b":2}`, `{ }|{"a" :1}|{"a":  1}|{"a":1 }|{"a":[1 ]}`},
		{"constants", `{"enum":[{"b":1,"a":[1.50,"é"]},"/"]}`, `{"b": 1, "a":[1.50, "é"]}|"/"`, `{"a":[1.50,"é"],"b":1}|{"b":1,"a":[1.5,"é"]}|"\/"`},
		{"filtered", `{"enum":[1,2.5,3,"a","abc",null],"type":["number","string"],"maximum":2.5,"maxLength":2}`, `1|2.5|"a"`, `3|"abc"|null`},
		{"intersected", `{"allOf":[{"enum":[1,2]},{"enum":[2,3]}]}`, `2`, `1|3`},
		{"integer", `{"type":"integer"}`, `0|-7|123456789012345678`, `-0|1.0|1e1|00|1234567890123456789`},
		{"limits", `{"type":"integer","minimum":-12,"maximum":105}`, `-12|-9|0|99|105`, `-13|-20|106|110|-100`},
		{"half open", `{"type":"integer","exclusiveMinimum":-2.5,"exclusiveMaximum":1}`, `-2|0`, `-3|1`},
		{"tighter limits", `{"type":"integer","minimum":1,"exclusiveMinimum":1,"exclusiveMaximum":5,"maximum":5}`, `2|4`, `1|5`},
		{"fractions", `{"type":"number","minimum":0.25,"exclusiveMaximum":1}`, `0.25|0.250|0.3|0.999`, `0.2|0.24|0|1|1.0|0.|3e-1|0.250000000000000000000`},
		{"negative", `{"type":"number","minimum":-1.5,"exclusiveMaximum":0}`, `-1.5|-0.001|-1`, `-1.51|0|-0|-0.0|-2`},
		{"lengths", `{"type":"string","minLength":2,"maxLength":3}`, `"éé"|"😀\ud83d\ude00\n"`, `"é"|"abcd"|"\u00e9"`},
		{"pattern", `{"type":"string","pattern":"^[a-z]+\\d$","maxLength":4}`, `"a1"|"abc1"`, `"abcd1"|"a"|"1"|"\u00611"`},
		{"escapes of patterns", `{"type":"string","pattern":"^(\"|\\\\|\\x01|\\n)$"}`, `"\""|"\\"|"\u0001"|"\n"`, `"\u000a"|"a"|"""`},
		{"dates", `{"type":"string","format":"date"}`, `"2024-02-29"|"2000-02-29"|"1996-02-29"|"2023-12-31"`, `"2023-02-29"|"1900-02-29"|"2023-04-31"|"2023-13-01"|"2023-1-1"`},
		{"unknown formats", `{"type":"string","format":"uri"}`, `"no uri"`, `1`},
		{"inner anchors", `{"type":"string","pattern":"^ab|^ac$"}`, `"abx"|"ac"`, `"acx"|"xab"|"a"`},
		{"items", `{"type":"array","items":{"type":"null"},"minItems":1,"maxItems":2}`, `[null]|[null,null]`, `[]|[null,null,null]|[1]`},
		{"tuple", `{"prefixItems":[{"type":"null"},{"const":1}],"type":"array"}`, `[]|[null]|[null,1]`, `[1]|[null,1,1]`},
		{"old tuple", `{"items":[{"const":1}],"additionalItems":{"const":2},"type":"array"}`, `[1,2,2]`, `[2]|[1,1]`},
		{"types of all", `{"allOf":[{"type":["integer","null"]},{"type":["number","string"]}]}`, `1`, `null|"a"|0.5`},
		{"all of", `{"allOf":[{"properties":{"a":{"minimum":2}},"additionalProperties":{"type":"integer"}},{"properties":{"a":{"type":"integer"},"b":{"maximum":5}}}],"type":"object"}`,
			`{"a":2,"b":5}|{"c":7}`, `{"a":1}|{"b":4.5}|{"b":6}|{"c":0.5}`},
		{"beside anyOf", `{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			`{"a":1}|{"b":2}|{"a":1,"b":2}`, `{}`},
		{"references", `{"$ref":"#/properties/x","properties":{"x":{"type":["array","object"],"items":{"$ref":"#/$defs/a~1b%25"}}},"$defs":{"a/b%":{"const":1}}}`,
			`[1,1]|{"x":[1]}`, `[2]|{"x":1}`},
		{"unlisted but required", `{"type":"object","required":["z"]}`, `{"z":[],"a":1}`, `{}|{"a":1}|{"a":1,"z":1}`},
	} {
		g := compile(t, c.schema)
		for text := range strings.SplitSeq(c.in, "|") {
			require.True(t, accepts(g, text), "%s: %s is excluded", c.about, text)
		}
		for text := range strings.SplitSeq(c.out, "|") {
			require.False(t, accepts(g, text), "%s: %s is allowed", c.about, text)
		}
	}
}

func TestStringsAreUTF8(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"type":"string"}`, `{"pattern":"^.$","type":"string"}`} {
		g := compile(t, text)
		for _, r := range []rune{' ', 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfffd, 0xffff, 0x10000, 0x3ffff, 0x40000, utf8.MaxRune} {
			require.True(t, accepts(g, `"`+string(r)+`"`), "%U", r)
		}
		for _, bad := range []string{"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf",
			"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\n", "\x00"} {
			require.False(t, accepts(g, `"`+bad+`"`), "%q", bad)
		}
	}
}

func TestNestingEnds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"type":"array","items":{"$ref":"#"}}`} {
		g := compile(t, text)
		nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
		require.True(t, accepts(g, nested(schema.MaxDepth)))
		require.False(t, accepts(g, nested(schema.MaxDepth+1)))
	}
	// The depth that the rest of a value needs is checked before the value begins.
	m := compile(t, `{"type":"array","items":{"type":"object","properties":{"deeper":{"$ref":"#"}},"required":["deeper"]}}`).Matcher()
	for range schema.MaxDepth/2 - 1 {
		for _, b := range []byte(`[{"deeper":`) {
			require.True(t, m.Step(b))
		}
	}
	require.True(t, m.Step('['))
	allowed := m.Allowed()
	require.Equal(t, 1, allowed.Len(), "an object would need one level more than there is")
	require.True(t, allowed.Has(']'))
}

// The tokens that a vocabulary keeps for strings must not depend on how the strings end.
func TestLongTokensFitLengths(t *testing.T) {
	t.Parallel()
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for n := range 40 {
		tokens = append(tokens, []byte(strings.Repeat("a", n+2)), []byte(strings.Repeat("a", n+1)+`"`), []byte(strings.Repeat("a", n+1)+`",`),
			[]byte(strings.Repeat("é", n+1)+`"]`), []byte(`["`+strings.Repeat("a", n+1)))
	}
	v := schema.NewVocabulary(tokens)
	for _, count := range []string{`"minLength":35`, `"maxLength":35`, `"minLength":14,"maxLength":18`, `"minLength":15,"maxLength":15`, `"minLength":0`,
		`"pattern":"^(aa){3,17}$"`, `"pattern":"^a{5,}$"`} {
		g := compile(t, `{"type":"array","items":{"type":"string",`+count+`},"maxItems":2}`)
		c, m := schema.NewConstraint(g, v), g.Matcher()
		for _, b := range []byte(`["` + strings.Repeat("a", 36)) {
			set := model.NewTokenSet(v.Size())
			c.Allowed(set)
			for id, bytes := range tokens {
				one, fits := m, true
				for _, b := range bytes {
					fits = fits && one.Step(b)
				}
				require.Equal(t, fits, set.Has(int32(id)), "%s: %q", count, bytes)
			}
			c.Accept(int32(b))
			if !m.Step(b) {
				break
			}
		}
	}
}
