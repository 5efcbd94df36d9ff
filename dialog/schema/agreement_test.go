package schema_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
)

// stroll returns a text of the grammar. After some bytes it closes what can be closed.
func stroll(t failer, r *rand.Rand, g *schema.Grammar, most int) string {
	m := g.Matcher()
	var text []byte
	for {
		allowed := m.Allowed()
		require.True(t, allowed.Len() > 0 || m.Complete(), "stuck after %s", text)
		if m.Complete() && (allowed.Len() == 0 || len(text) > most || r.IntN(2) == 0) {
			return string(text)
		}
		all := slices.Collect(allowed.All())
		b := all[r.IntN(len(all))]
		if len(text) > most || r.IntN(3) == 0 {
			for _, end := range []byte(`"]}`) {
				inString := allowed.Has(' ') && allowed.Has('~')
				if allowed.Has(end) && (!inString || end == '"') {
					b = end
					break
				}
			}
		}
		require.Less(t, len(text), most+5000, "no end of %.200s", text)
		require.True(t, m.Step(b))
		text = append(text, b)
	}
}

// what clients write: the schemas of zod 4, pydantic and OpenAPI's generators among them.
var written = []string{
	`{"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"boolean"}}`,
	`{"type":"object","propertyNames":{"type":"string","enum":["a","b"]},"additionalProperties":{"type":"number"},"required":["a","b"]}`,
	`{"type":"object","propertyNames":{"enum":["a"]},"properties":{"a":{"type":"null"},"b":{}},"additionalProperties":true}`,
	`{"type":"object","properties":{"a":{"type":"string"}},"propertyNames":{"allOf":[{"type":["string","null"]}]},"required":["a"],"minProperties":1,"maxProperties":1}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["a"],"dependentRequired":{"b":["a"],"c":["d"],"a":[]},"dependentSchemas":{"a":{}},"unevaluatedProperties":false}`,
	`{"type":"object","additionalProperties":{"not":{}},"properties":{"a":{"type":"integer"}}}`,
	`{"type":"object","properties":{"never":{"not":{}},"a":{"type":["string","null"],"not":{"type":"null"}}},"required":["a"]}`,
	`{"type":"object","patternProperties":{"^x":{}},"additionalProperties":{"type":"integer"}}`,
	`{"type":"object","patternProperties":{"^.*$":{"type":"integer"}},"additionalProperties":false}`,
	`{"type":"object","patternProperties":{"^a":{"minimum":3},"^b":{"type":"string"}},"properties":{"ab":{"type":"integer"},"x":{"type":"null"}},"required":["ab"]}`,
	`{"type":"object","properties":{"a":{}},"if":{"required":["a"]},"unevaluatedProperties":{}}`,
	`{"type":"array","items":{"type":"integer","multipleOf":0.5},"uniqueItems":true,"maxItems":1}`,
	`{"type":"array","items":{"type":"null"},"contains":{},"minItems":1,"unevaluatedItems":false}`,
	`{"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"contains":{"const":7},"minContains":0,"unevaluatedItems":false}`,
	`{"type":"array","minContains":3,"items":{"type":"boolean"}}`,
	`{"enum":[0.25,0.3,4,"x"],"multipleOf":0.25}`,
	`{"type":"string","format":"date","minLength":10,"maxLength":10}`,
	`{"type":"string","format":"date-time","minLength":21}`,
	`{"type":"string","format":"email","minLength":9,"maxLength":12}`,
	`{"type":"string","format":"email","maxLength":254}`,
	`{"type":"string","format":"ipv4","pattern":"^1"}`,
	`{"type":"string","format":"uuid","pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$"}`,
	`{"allOf":[{"type":"string","format":"hostname"},{"format":"ipv4"},{"maxLength":9}]}`,
	`{"allOf":[{"type":"string","pattern":"^[a-c]+$"},{"pattern":"b"},{"pattern":"c$"},{"minLength":4}]}`,
	`{"type":"string","pattern":"^(ab|c)*$","minLength":3,"maxLength":5}`,
	`{"type":"string","pattern":"^[^ ]+@[^ ]+$","maxLength":20}`,
	`{"type":"string","pattern":"\"|é","minLength":2,"maxLength":4}`,
	`{"anyOf":[{"type":"string","format":"time","maxLength":10},{"type":"null"}],"title":"Maybe"}`,
	`{"type":"string","format":"color-of-mine","minLength":2,"contentMediaType":"text/html","contentEncoding":"base64"}`,
	`{"$ref":"#/$defs/P","$defs":{"P":{"type":"object","properties":{"x":{"type":"integer","exclusiveMinimum":0}},"required":["x"]}}}`,
}

func TestWrittenSchemasAgreeWithAValidator(t *testing.T) {
	t.Parallel()
	for i, text := range written {
		g, valid := compile(t, text), validator(t, text)
		r := rand.New(rand.NewPCG(7, uint64(i)))
		for range 40 {
			value := stroll(t, r, g, 60)
			require.NoError(t, valid(value), "%s\nallows %s", text, value)
		}
	}
}

// place matches what an error says about its place.
var place = regexp.MustCompile(`unsupported schema: #([^:]*): `)

// A schema is refused by its place or it holds, whatever its keywords are.
func TestAnyKeywordsAgreeWithAValidator(t *testing.T) {
	t.Parallel()
	accepted, refused := 0, map[string]int{}
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := randomSchema(r, 2)
		g, err := schema.Compile([]byte(text))
		if err != nil {
			require.ErrorIs(t, err, schema.ErrSchema)
			found := place.FindStringSubmatch(err.Error())
			require.NotNil(t, found, "%v", err)
			names := strings.Split(found[1], "/")
			refused[names[len(names)-1]]++
			continue
		}
		accepted++
		valid := validator(t, text)
		for range 6 {
			value := stroll(t, r, g, 40)
			require.NoError(t, valid(value), "seed %d: %s\nallows %s", seed, text, value)
		}
	}
	require.Greater(t, accepted, 600)
	require.Greater(t, len(refused), 8, "%v", refused)
}

// randomSchema returns a schema of random keywords, also of such that can't be held.
func randomSchema(r *rand.Rand, depth int) string {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	inner := func() string {
		if depth == 0 {
			return one(`true`, `{}`, `{"type":"null"}`, `{"type":"integer"}`, `{"type":"string"}`, `{"enum":["a",1]}`, `{"not":{}}`)
		}
		return randomSchema(r, depth-1)
	}
	names := func() string { return one(`[]`, `["a"]`, `["b","a"]`) }
	keywords := []func() string{
		func() string {
			return `"type":` + one(`"string"`, `"object"`, `"array"`, `["integer","null"]`, `"number"`, `["string","boolean"]`)
		},
		func() string { return `"properties":{"a":` + inner() + `,"bc":` + inner() + `}` },
		func() string { return `"required":` + names() },
		func() string { return `"additionalProperties":` + one("false", "true", inner()) },
		func() string {
			return `"propertyNames":` + one(`{"type":"string"}`, `{"enum":["a"]}`, `{"maxLength":1}`, inner())
		},
		func() string { return `"patternProperties":{` + one(`"^a"`, `""`, `"c$"`) + `:` + inner() + `}` },
		func() string { return one(`"min`, `"max`) + `Properties":` + one("0", "1", "2") },
		func() string { return `"dependentRequired":{` + one(`"a"`, `"d"`) + `:` + names() + `}` },
		func() string { return `"dependentSchemas":{` + one(`"a"`, `"d"`) + `:` + inner() + `}` },
		func() string {
			return `"unevaluated` + one("Properties", "Items") + `":` + one("false", "true", inner())
		},
		func() string { return `"items":` + inner() },
		func() string { return `"prefixItems":[` + inner() + `,` + inner() + `]` },
		func() string { return one(`"min`, `"max`) + `Items":` + one("0", "1", "2", "3") },
		func() string { return `"contains":` + inner() },
		func() string { return one(`"min`, `"max`) + `Contains":` + one("0", "1") },
		func() string { return `"uniqueItems":` + one("true", "false") },
		func() string { return `"multipleOf":` + one("1", "0.5", "2") },
		func() string { return one(`"minimum":`, `"exclusiveMinimum":`) + one("-3", "0", "0.5") },
		func() string { return one(`"maximum":`, `"exclusiveMaximum":`) + one("3", "12", "0.75") },
		func() string { return one(`"min`, `"max`) + `Length":` + one("0", "1", "3", "10") },
		func() string {
			return `"pattern":` + one(`"^a"`, `"b"`, `"^[a-c]{2,5}$"`, `"^(ab|c)*$"`, `"[0-9]+$"`)
		},
		func() string {
			return `"format":` + one(`"date"`, `"email"`, `"ipv4"`, `"time"`, `"hostname"`, `"color-of-mine"`)
		},
		func() string { return `"enum":` + one(`[1,"a",null]`, `["ab","abc"]`, `[{"a":1},"b"]`, `[0.5,3,12]`) },
		func() string { return `"not":` + inner() },
		func() string { return `"if":` + inner() },
		func() string { return one(`"then":`, `"else":`) + inner() },
		func() string { return one(`"allOf":[`, `"anyOf":[`) + inner() + `,` + inner() + `]` },
		func() string { return `"title":"t","default":null,"examples":[1]` },
	}
	var members []string
	seen := map[string]bool{}
	for range 1 + r.IntN(4) {
		m := keywords[r.IntN(len(keywords))]()
		if name, _, _ := strings.Cut(m, ":"); !seen[name] {
			seen[name], members = true, append(members, m)
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// Intersections may have states without an end. None of them is reached, also not by
// tokens of several bytes.
func TestIntersectionsHaveNoDeadEnds(t *testing.T) {
	t.Parallel()
	v := schema.NewVocabulary(pieces())
	for i, text := range []string{
		`{"type":"string","pattern":"^(abc)*$","minLength":7,"maxLength":11}`,
		`{"type":"string","pattern":"^(abc)*$","minLength":7,"maxLength":200}`,
		`{"type":"string","pattern":"^a*b.*$","format":"hostname","maxLength":30}`,
		`{"type":"string","format":"date","pattern":"^.*-02-29$"}`,
	} {
		g := compile(t, text)
		r := rand.New(rand.NewPCG(3, uint64(i)))
		for range 20 {
			c := schema.NewConstraint(g, v)
			m := g.Matcher()
			for n := 0; ; n++ {
				set := model.NewTokenSet(v.Size())
				c.Allowed(set)
				var all []int32
				for id, bytes := range pieces() {
					one, fits := m, len(bytes) > 0
					for _, b := range bytes {
						fits = fits && one.Step(b)
					}
					require.Equal(t, fits, set.Has(int32(id)), "%s: token %q after %d tokens", text, bytes, n)
					if fits {
						all = append(all, int32(id))
					}
				}
				require.NotEmpty(t, all)
				token := all[r.IntN(len(all))]
				for _, b := range pieces()[token] {
					m.Step(b)
				}
				if c.Accept(token) {
					break
				}
			}
		}
	}
}

func TestTooLargeIntersectionsAreRefusedSoon(t *testing.T) {
	t.Parallel()
	var parts []string
	for i := range 40 {
		parts = append(parts, fmt.Sprintf(`{"pattern":"a.{%d}$"}`, i+5))
	}
	_, err := schema.Compile([]byte(`{"type":"string","allOf":[` + strings.Join(parts, ",") + `]}`))
	require.ErrorIs(t, err, schema.ErrSchema)
	require.ErrorContains(t, err, "too much to combine")
}
