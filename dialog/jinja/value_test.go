package jinja_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

func TestJSONKeepsOrderAndNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"b":1,"a":{"z":[],"y":{}}}`:                                       `{"b": 1, "a": {"z": [], "y": {}}}`,
		`{"a":1,"b":2,"a":3}`:                                               `{"a": 3, "b": 2}`,
		`[1, 1.0, -0, -0.0, 1e2, 1E-7, 1e16, 123456]`:                       `[1, 1.0, 0, -0.0, 100.0, 1e-07, 1e+16, 123456]`,
		`[12345678901234567890, -9223372036854775808, 9223372036854775808]`: `[12345678901234567890, -9223372036854775808, 9223372036854775808]`,
		`["\u00e9\ud83d\ude00\u2028<>&\/"]`:                                 "[\"é😀\u2028<>&/\"]",
		`[null,true,false]`:                                                 `[null, true, false]`,
		`["\ud800"]`:                                                        `["` + "\uFFFD" + `"]`,
	} {
		value, err := jinja.FromJSON([]byte(text))
		require.NoError(t, err, text)
		got, err := render("{{ v|tojson }}", jinja.Object(jinja.Member{Key: "v", Value: value}))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestBadJSONIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "{", "[1", `{"a"}`, `{"a":}`, "1 2", "{} x", "NaN", "1e400", "[1,]", "nul", `{"a":1,}`, `"a`,
		strings.Repeat("[", 100_000), strings.Repeat("[", 300) + strings.Repeat("]", 300), strings.Repeat("9", 5000),
	} {
		_, err := jinja.FromJSON([]byte(text))
		require.ErrorContains(t, err, "read JSON value: ", "%.40s", text)
	}
}

func TestValuesAreMadeOfGoValues(t *testing.T) {
	t.Parallel()
	value := jinja.Object(
		jinja.Member{Key: "l", Value: jinja.List(jinja.Value{}, jinja.Bool(true), jinja.Int(-1), jinja.Float(2), jinja.String("é\xff"))},
		jinja.Member{Key: "x", Value: jinja.Int(1)},
		jinja.Member{Key: "x\xff", Value: jinja.Int(2)},
		jinja.Member{Key: "x", Value: jinja.Int(3)},
	)
	text, err := render("{{ v }}", jinja.Object(jinja.Member{Key: "v", Value: value}))
	require.NoError(t, err)
	require.Equal(t, "{'l': [None, True, -1, 2.0, 'é\uFFFD'], 'x': 3, 'x\uFFFD': 2}", text)
}

func TestObjectsOfAnySizeFindTheirMembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.StringMatching("[a-c]{0,2}"), 0, 40).Draw(t, "keys")
		last, members := map[string]int{}, []jinja.Member{}
		for i, key := range keys {
			last[key] = i
			members = append(members, jinja.Member{Key: key, Value: jinja.Int(int64(i))})
		}
		object := jinja.Object(members...)
		variables := jinja.Object(jinja.Member{Key: "o", Value: object})
		for key, i := range last {
			got, err := render("{{ o['"+key+"'] }}{{ o['zzz'] }}", variables)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(i), got)
		}
	})
}

// tojson writes each value as it was read.
func TestJSONComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, err := json.Marshal(anyValue(3).Draw(t, "value"))
		require.NoError(t, err)
		value, err := jinja.FromJSON(want)
		require.NoError(t, err)
		for _, form := range []string{"", "(indent=2)", "(ensure_ascii=true)", "(separators=(',', ':'))"} {
			text, err := render("{{ v|tojson"+form+" }}", jinja.Object(jinja.Member{Key: "v", Value: value}))
			require.NoError(t, err)
			require.JSONEq(t, string(want), text)
		}
	})
}

func anyValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind %= 4
		}
		switch kind {
		case 0:
			return rapid.String().Draw(t, "text")
		case 1:
			return rapid.Int32().Draw(t, "integer")
		case 2:
			return rapid.Float64Range(-1e15, 1e15).Draw(t, "float")
		case 3:
			return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "plain")
		case 4:
			return rapid.SliceOfN(anyValue(depth-1), 0, 4).Draw(t, "list")
		}
		return rapid.MapOfN(rapid.String(), anyValue(depth-1), 0, 12).Draw(t, "object")
	})
}
