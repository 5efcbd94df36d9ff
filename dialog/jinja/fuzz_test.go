package jinja_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

// FuzzTemplate looks for templates that neither render nor return an Error.
func FuzzTemplate(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("golden", "constructs.json"))
	require.NoError(f, err)
	var file struct {
		Variables json.RawMessage
		Snippets  [][2]*string
	}
	require.NoError(f, json.Unmarshal(text, &file))
	for _, snippet := range file.Snippets {
		f.Add(*snippet[0])
	}
	variables, err := jinja.FromJSON(file.Variables)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, source string) {
		template, err := jinja.Parse(source)
		if err != nil {
			requireError(t, err)
			return
		}
		once, err := template.Render(variables, golden())
		if err != nil {
			requireError(t, err)
			return
		}
		require.True(t, utf8.ValidString(once))
		again, err := template.Render(variables, golden())
		require.NoError(t, err)
		require.Equal(t, once, again, "a template renders to the same text each time")
	})
}

func requireError(t *testing.T, err error) {
	t.Helper()
	var located *jinja.Error
	require.True(t, errors.As(err, &located), "%v", err)
	require.Positive(t, located.Line)
	require.Positive(t, located.Column)
}

// FuzzFromJSON checks that FromJSON accepts the same texts as encoding/json.
func FuzzFromJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,null,"x"],"a":{}}`, `"\ud83d"`, "1e5", "-0", "[", "{}", ` [true] `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := jinja.FromJSON(text)
		if err != nil {
			return
		}
		require.True(t, json.Valid(text))
		out, err := render("{{ v|tojson }}", jinja.Object(jinja.Member{Key: "v", Value: value}))
		require.NoError(t, err)
		again, err := jinja.FromJSON([]byte(out))
		require.NoError(t, err)
		require.Equal(t, value, again)
	})
}
