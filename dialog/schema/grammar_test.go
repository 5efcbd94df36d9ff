package schema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// accepts reports whether text is in the grammar's set.
func accepts(g *schema.Grammar, text string) bool {
	m := g.Matcher()
	for i := range len(text) {
		if !m.Step(text[i]) {
			return false
		}
	}
	return m.Complete()
}

type failer interface {
	require.TestingT
	Helper()
}

func compile(t failer, text string) *schema.Grammar {
	t.Helper()
	g, err := schema.Compile([]byte(text))
	require.NoError(t, err, "%.500s", text)
	return g
}

// validator returns a function that checks values against the schema with an independent
// library.
func validator(t failer, text string) func(value string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err, text)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("test:schema", document))
	s, err := c.Compile("test:schema")
	require.NoError(t, err, text)
	return func(value string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

// wander draws a text of the grammar, byte by byte. After the given number of bytes
// it closes what can be closed.
func wander(t *rapid.T, g *schema.Grammar, maxLength int) string {
	m := g.Matcher()
	var text []byte
	for {
		allowed := m.Allowed()
		if m.Complete() && (allowed.Len() == 0 || len(text) > maxLength || rapid.Bool().Draw(t, "end")) {
			return string(text)
		}
		require.NotZero(t, allowed.Len(), "stuck after %s", text)
		require.Less(t, len(text), maxLength+5000, "no end of %.200s", text)
		b := draw(t, allowed, len(text) > maxLength)
		require.True(t, m.Step(b))
		text = append(text, b)
	}
}

// draw chooses a byte; in a hurry one that closes a string, or else a bracket.
func draw(t *rapid.T, allowed schema.ByteSet, hurry bool) byte {
	inString := allowed.Has(' ') && allowed.Has('~') || allowed.Has('"') && allowed.Has('\\')
	for _, b := range []byte(`"]}`) {
		if allowed.Has(b) && inString == (b == '"') && (hurry || rapid.IntRange(0, 3).Draw(t, "close") == 0) {
			return b
		}
	}
	return rapid.SampledFrom(slices.Collect(allowed.All())).Draw(t, "byte")
}

func TestWhateverIsAllowedEndsInAValidValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t).schema
		text := wander(t, compile(t, s), 200)
		require.NoError(t, validator(t, s)(text), "%s\nallowed %s", s, text)
	})
}

func TestValidValuesInTheOrderOfTheSchemaAreAllowed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		text := s.value(t)
		require.NoError(t, validator(t, s.schema)(text), "the test's own value")
		require.True(t, accepts(compile(t, s.schema), text), "%s\nexcludes %s", s.schema, text)
	})
}
