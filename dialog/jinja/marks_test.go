package jinja_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

const alphabet = "<[aA"

// marking marks the characters of the alphabet in s.
func marking(s string) string {
	return strings.Map(func(c rune) rune {
		if i := strings.IndexRune(alphabet, c); i >= 0 {
			return jinja.FirstMark + rune(i)
		}
		return c
	}, s)
}

func unmarking(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= jinja.FirstMark && c <= jinja.LastMark {
			return rune(alphabet[c-jinja.FirstMark])
		}
		return c
	}, s)
}

// expressions are all things that a template can do with a string x, and some that it can
// do with another string y.
var expressions = strings.Split(strings.TrimSpace(`
x
x|length
x|count
x[0:3]
x[-2:]
x[::-1]
x[1]
x|first
x|last
x|list|join('.')
x|reverse
x|upper
x|lower
x|title
x|capitalize
x|trim
x|trim('<a')
x|replace('<', 'xx')
x|replace(y, '|')
x|replace('', '.')
x|replace('a', y, 1)
x|tojson
x|tojson(ensure_ascii=true)
[x, y]|tojson(indent=2)
{'k': x, 'l': [y]}|string
x|string
x|indent(2)
x|int
x|float
x|default(y)
x ~ y
x + y
x * 2
x == y
x != y
x < y
y in x
'<' in x
x in [y, 'a<']
x is lower
x is upper
x is eq(y)
x.split('<')
x.split(y or 'a')
x.split('a', 1)
x.rsplit('<', 1)
x.split()
x.splitlines()
x.strip('a<')
x.lstrip('[')
x.rstrip(y)
x.startswith('<')
x.startswith(y)
x.endswith(('a', y))
x.find('a')
x.rfind(y)
x.count('<')
x.partition('<')
x.rpartition('a')
x.removeprefix('<')
x.removesuffix('a')
x.upper().lower()
x.isalpha()
x.isupper()
x.join([y, y])
'{}-{}'.format(x, y)
[y, x]|sort|join('.')
[y, x, 'a']|unique|join('.')
[y, x]|min
[x, y]|map('upper')|join(',')
[x, y, '<a']|select('equalto', '<a')|list
x.replace('<', '')[:2]
(x|safe) + y
`), "\n")

func TestNoTemplateSeesMarks(t *testing.T) {
	t.Parallel()
	render := func(expression, x, y string, marked bool) (string, error) {
		one, err := jinja.Parse("{{ " + expression + " }}")
		require.NoError(t, err, expression)
		given := func(x, y string) jinja.Value {
			return jinja.Object(jinja.Member{Key: "x", Value: jinja.String(x)}, jinja.Member{Key: "y", Value: jinja.String(y)})
		}
		if !marked {
			return one.Render(given(x, y), time.Time{})
		}
		text, err := one.RenderMarked(given(marking(x), marking(y)), time.Time{}, []rune(alphabet))
		return unmarking(text), err
	}
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.StringOfN(rapid.SampledFrom([]rune("<<[aAbB é\n1\"'\\")), 0, 8, -1)
		x, y := texts.Draw(t, "x"), rapid.StringOfN(rapid.SampledFrom([]rune("<[aAb")), 0, 2, -1).Draw(t, "y")
		for _, e := range expressions {
			want, wrong := render(e, x, y, false)
			got, err := render(e, x, y, true)
			require.Equal(t, wrong == nil, err == nil, "%s of %q and %q: %v, %v", e, x, y, wrong, err)
			require.Equal(t, want, got, "%s of %q and %q", e, x, y)
		}
	})
}

func TestWhatComesFromVariablesKeepsItsMarks(t *testing.T) {
	t.Parallel()
	for _, e := range []string{
		"x", "x|upper", "x|lower", "x|tojson", "x|tojson(ensure_ascii=true)", "x|replace('.', '')", "x.split('.')|join('')", "x[::-1][::-1]", "x|list|join",
		"x|trim", "x.partition('.')|join", "x|capitalize|lower", "x|title", "'%'.join([x])", "'{}'.format(x)", "x[0] ~ x[1:]",
	} {
		one, err := jinja.Parse("{{ " + e + " }}")
		require.NoError(t, err, e)
		text, err := one.RenderMarked(jinja.Object(jinja.Member{Key: "x", Value: jinja.String(marking("<a.>[a]"))}), time.Time{}, []rune(alphabet))
		require.NoError(t, err, e)
		require.False(t, strings.ContainsAny(text, "<aA"), "%s: %q", e, text)
		require.NotContains(t, strings.TrimLeft(text, "["), "[", "%s: %q", e, text)
	}
}
