package jinja_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

// The files in golden say what Jinja2 makes of templates; golden/README.md says how
// they were made.

// golden is the time that the golden files were rendered at.
func golden() time.Time { return time.Date(2026, 11, 21, 7, 5, 9, 0, time.UTC) }

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}

func render(source string, variables jinja.Value) (string, error) {
	template, err := jinja.Parse(source)
	if err != nil {
		return "", err
	}
	return template.Render(variables, golden())
}

func TestSnippetsRenderAsInPython(t *testing.T) {
	t.Parallel()
	for file, atLeast := range map[string]int{"constructs.json": 180, "composed.json": 1000} {
		var golden struct {
			Variables json.RawMessage
			Snippets  [][2]*string
		}
		readJSON(t, filepath.Join("golden", file), &golden)
		variables, err := jinja.FromJSON(golden.Variables)
		require.NoError(t, err)
		rendered := 0
		for _, snippet := range golden.Snippets {
			source, want := *snippet[0], snippet[1]
			got, err := render(source, variables)
			if want == nil {
				require.Error(t, err, "Python refuses %s", source)
				continue
			}
			require.NoError(t, err, source)
			require.Empty(t, cmp.Diff(*want, got), source)
			rendered++
		}
		require.Greater(t, rendered, atLeast, file)
	}
}

func TestChatTemplatesRenderAsInPython(t *testing.T) {
	t.Parallel()
	require.Equal(t, 18, compareFolder(t, filepath.Join("golden", "templates")))
}

// Templates that can't be given away with this repository are fetched by
// golden/fetch.sh; without them there is nothing to compare.
func TestFetchedChatTemplatesRenderAsInPython(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("golden", "fetched")
	if _, err := os.Stat(filepath.Join(folder, "expected.json")); err != nil {
		t.Skip("run golden/fetch.sh for more templates")
	}
	require.Positive(t, compareFolder(t, folder))
}

// compareFolder compares what the templates of a folder render to, and gives their
// number.
func compareFolder(t *testing.T, folder string) int {
	t.Helper()
	var cases []struct {
		Name      string
		Variables json.RawMessage
	}
	readJSON(t, filepath.Join("golden", "cases.json"), &cases)
	variables := make([]jinja.Value, len(cases))
	for i, c := range cases {
		var err error
		variables[i], err = jinja.FromJSON(c.Variables)
		require.NoError(t, err)
	}
	var expected map[string][]*string
	readJSON(t, filepath.Join(folder, "expected.json"), &expected)
	same, both := 0, 0
	for name, digests := range expected {
		require.Len(t, digests, len(cases))
		source, err := os.ReadFile(filepath.Join(folder, name+".jinja"))
		require.NoError(t, err)
		template, err := jinja.Parse(string(source))
		require.NoError(t, err, name)
		for i, want := range digests {
			text, err := template.Render(variables[i], golden())
			if want == nil {
				require.Error(t, err, "%s: Python refuses %s", name, cases[i].Name)
				both++
				continue
			}
			require.NoError(t, err, "%s: %s", name, cases[i].Name)
			sum := sha256.Sum256([]byte(text))
			require.Equal(t, *want, hex.EncodeToString(sum[:])[:16], "%s: %s", name, cases[i].Name)
			same++
		}
	}
	t.Logf("%s: %d templates, %d cases: %d same, %d refused as by Python", folder, len(expected), len(cases), same, both)
	return len(expected)
}
