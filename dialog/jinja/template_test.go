package jinja_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

func nothing() jinja.Value { return jinja.Object() }

func TestWhatIsNotKnownIsRefusedByNameAndPlace(t *testing.T) {
	t.Parallel()
	variables := jinja.Object(jinja.Member{Key: "l", Value: jinja.List(jinja.Int(1), jinja.Int(2))})
	for source, want := range map[string]string{
		"{% for i in l recursive %}{% endfor %}":           "line 1, column 15: not supported: a recursive loop",
		"x\n  {% macro m() %}{{ varargs }}{% endmacro %}":  "line 2, column 6: not supported: a macro that reads varargs",
		"{{ '{:>5}'.format(1) }}":                          "line 1, column 18: not supported: format with the field {:>5}",
		"é{{ 'ß'.upper() }}":                               "line 1, column 14: not supported: the upper or lower case of 'ß'",
		"{{ 'ΑΣ'.lower() }}":                               "not supported: the upper or lower case of 'Σ'",
		"{{ l|map('string') }}":                            "not supported: the text of a generator",
		"{{ l.count }}":                                    "not supported: the text of a function",
		"{{ 'a'|escape }}":                                 "line 1, column 8: not supported: filter escape",
		"{{ 1 is sameas 1 }}":                              "line 1, column 6: not supported: test sameas",
		"{{ lipsum() }}":                                   "not supported: the function lipsum",
		"{% block a %}{% endblock %}":                      "line 1, column 4: not supported: {% block %}",
		"{% include 'a' %}":                                "not supported: {% include %}",
		"{{ l.__class__ }}":                                "not supported: attribute __class__",
		"{{ l['__class__'] }}":                             "not supported: attribute __class__",
		"{{ '%d' % 1 }}":                                   "not supported: % after a string",
		"{{ 9223372036854775807 + 1 }}":                    "not supported: arithmetic with integers beyond 64 bits",
		"{{ 1e308 * 10 }}":                                 "not supported: arithmetic that gives inf",
		"{{ 2.0 ** 0.5 }}":                                 "not supported: a power of floats",
		"{{ {none: 1} }}":                                  "not supported: a NoneType as a key",
		"{{ f(**l) }}":                                     "not supported: an argument with **",
		"{{ 'a'.zfill(3) }}":                               "not supported: attribute zfill of a str",
		"{{ strftime_now('%U') }}":                         "not supported: the time directive %U",
		"{{ l[1, 2] }}":                                    "not supported: a subscript with a comma",
		"{{ é }}":                                          "not supported: character 'é' in a tag",
		"{{ '1_0'|int }}":                                  `not supported: "1_0" as a number`,
		"{{ 'é'.title() }}":                                "not supported: title of letters beyond ASCII",
		"{% set ns = namespace() %}{{ ns }}":               "not supported: the text of a Namespace",
		"{{ l|sort(attribute='a,b') }}":                    "not supported: sort by several attributes",
		"{% for i in l %}{{ loop([]) }}{% endfor %}":       "not supported: a call of loop",
		"{% if true %}{{ l|nofilter }}{% endif %}":         "not supported: filter nofilter",
		"{% set a = l.copy() %}":                           "not supported: attribute copy of a list",
		"{% macro m(caller) %}{% endmacro %}":              "not supported: parameter caller",
		"{% set w | replace(q, 'b') %}{{ 1 }}{% endset %}": "not supported: variable q in this place",
		"{{ [1.5, 2.5]|sum }}":                             "not supported: sum of floats",
		"{{ '<'|safe|upper }}":                             "not supported: upper of a string that is marked as safe",
		"{{ 1e400 }}":                                      "not supported: number 1e400",
		"{{ '\\N{DASH}' }}":                                `not supported: escape \N`,
		"{{ '\\ud83d' }}":                                  "which is not a character",
		"{{ 12345678901234567890 + 1 }}":                   "not supported: arithmetic with floats and integers beyond 53 bits",
		"{{ range(3)[1:] }}":                               "not supported: a slice of a range",
		"{% for i in l %}{% for j in loop %}{% endfor %}{% endfor %}": "not supported: a loop over the variable loop",
	} {
		_, err := render(source, variables)
		require.ErrorIs(t, err, jinja.ErrUnsupported, source)
		require.ErrorContains(t, err, want, source)
	}
}

func TestAnErrorSaysItsKindAndPlace(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]struct {
		kind error
		text string
	}{
		"a\n{{ 1 + }}":                        {jinja.ErrSyntax, "chat template, line 2, column 8: syntax error: unexpected }}"},
		"{% if x %}\n":                        {jinja.ErrSyntax, "line 1, column 11: syntax error: the template ends where {% endif %} is expected"},
		"{% what %}":                          {jinja.ErrSyntax, `line 1, column 4: syntax error: unknown tag "what"`},
		"\xff":                                {jinja.ErrSyntax, "the template is not UTF-8"},
		"é\r\né{{ x.y }}":                     {jinja.ErrRender, "line 2, column 6: render error: x is undefined"},
		"{{ {}.update({}) }}":                 {jinja.ErrRender, "the sandbox hides method update of a dict"},
		"{{ ''.nothing() }}":                  {jinja.ErrRender, "attribute nothing of a str is undefined"},
		"a\n{{ raise_exception('Go ' ~ 1) }}": {jinja.ErrRaised, "line 2, column 19: raised by the template: Go 1"},
	} {
		_, err := render(source, nothing())
		require.ErrorIs(t, err, want.kind, source)
		require.ErrorContains(t, err, want.text, source)
		var located *jinja.Error
		require.ErrorAs(t, err, &located)
		require.NotEmpty(t, located.Message)
	}
	template, err := jinja.Parse("x")
	require.NoError(t, err)
	_, err = template.Render(jinja.List(), golden())
	require.ErrorContains(t, err, "the variables are a list, not an object")
}

func TestAHostileTemplateEndsWithAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("no goroutines")
	}
	t.Parallel()
	for _, source := range []string{
		"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% macro m() %}{% if true %}{% set x = m() %}{% endif %}{% endmacro %}{{ m() }}",
		"{{ 'a' * 1000000000000 }}",
		"{{ [1] * 1000000000 }}",
		"{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
		"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
		"{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
		"{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
		"{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + [i] %}{% endfor %}",
		"{{ 3 ** 100000000 }}{{ 1 ** 100000000000 }}",
		"{{ ('a\\n' * 1000000)|indent(1000) }}",
		"{{ [[1]]|tojson(indent='" + strings.Repeat(" ", 1000) + "') * 10000000 }}",
		"{{ " + strings.Repeat("(", 100_000) + strings.Repeat(")", 100_000) + " }}",
		strings.Repeat("{% if true %}", 10_000) + strings.Repeat("{% endif %}", 10_000),
		"{{ x" + strings.Repeat(" + 1", 100_000) + " }}",
		"{{ x" + strings.Repeat("|list", 100_000) + " }}",
		"{{ " + strings.Repeat("not ", 100_000) + "x }}",
		"{{ " + strings.Repeat("-", 100_000) + "1 }}",
		strings.Repeat("x", 2<<20),
	} {
		_, err := render(source, nothing())
		require.Error(t, err, "%.60s", source)
		require.NotErrorIs(t, err, jinja.ErrSyntax, "%.60s", source)
	}
}

func TestVariablesHideGlobalFunctions(t *testing.T) {
	t.Parallel()
	text, err := render("{{ range }}", jinja.Object(jinja.Member{Key: "range", Value: jinja.Int(3)}))
	require.NoError(t, err)
	require.Equal(t, "3", text)
}

func TestTheTimeIsTheCallers(t *testing.T) {
	t.Parallel()
	template, err := jinja.Parse("{{ strftime_now('%d %b %Y, %I:%M %p %-m %e %j') }}")
	require.NoError(t, err)
	text, err := template.Render(nothing(), time.Date(2024, 2, 3, 0, 7, 0, 0, time.FixedZone("here", 3600)))
	require.NoError(t, err)
	require.Equal(t, "03 Feb 2024, 12:07 AM 2  3 034", text)
}

func TestATemplateMayBeRenderedByManyAtOnce(t *testing.T) {
	t.Parallel()
	template, err := jinja.Parse("{% set ns = namespace(n=0) %}{% for k, v in o.items() %}{% set ns.n = ns.n + v %}{% endfor %}{{ ns.n }}{{ o.k11 }}")
	require.NoError(t, err)
	members := make([]jinja.Member, 12)
	for i := range members {
		members[i] = jinja.Member{Key: "k" + string(rune('0'+i/10)) + string(rune('0'+i%10)), Value: jinja.Int(int64(i))}
	}
	variables := jinja.Object(jinja.Member{Key: "o", Value: jinja.Object(members...)})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			text, err := template.Render(variables, golden())
			if err != nil || text != "6611" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	group.Wait()
}
