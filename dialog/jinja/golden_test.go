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

// The files in golden hold what Jinja2 renders for templates; golden/README.md describes
// how they were made.

// golden returns the time at which the golden files were rendered.
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
	templates := filepath.Join("golden", "templates")
	require.Equal(t, 8, compareFolder(t, templates, filepath.Join(templates, "expected.json")))
	require.Equal(t, 1, compareFolder(t, filepath.Join("..", "..", "examples", "templates"), filepath.Join("golden", "examples.json")))
}

// fetched returns the folder into which golden/fetch.sh puts the templates of published
// models. These belong to others, so they are not in the repository. Without them it
// skips the test.
func fetched(t *testing.T) string {
	t.Helper()
	folder := filepath.Join("golden", "fetched")
	if _, err := os.Stat(filepath.Join(folder, "expected.json")); err != nil {
		t.Skip("make golden-templates fetches templates of published models")
	}
	return folder
}

func TestFetchedChatTemplatesRenderAsInPython(t *testing.T) {
	t.Parallel()
	folder := fetched(t)
	require.Positive(t, compareFolder(t, folder, filepath.Join(folder, "expected.json")))
}

// The repository keeps what Python rendered for some published templates, under the
// digests of their texts. The test therefore notices a changed template as well as a
// change in Python.
func TestPublishedChatTemplatesRenderAsOnRecord(t *testing.T) {
	t.Parallel()
	folder := fetched(t)
	var published map[string]struct {
		File     string // in the folder
		SHA256   string
		Expected []*string
	}
	readJSON(t, filepath.Join("golden", "published.json"), &published)
	require.Len(t, published, 18)
	for name, p := range published {
		source, err := os.ReadFile(filepath.Join(folder, p.File))
		require.NoError(t, err, name)
		sum := sha256.Sum256(source)
		require.Equal(t, p.SHA256, hex.EncodeToString(sum[:]), "the text of %s", name)
		compareTemplate(t, name, string(source), p.Expected)
	}
}

// compareFolder renders the templates of a folder, compares the results with those in a
// file, and returns the number of templates.
func compareFolder(t *testing.T, folder, file string) int {
	t.Helper()
	var expected map[string][]*string
	readJSON(t, file, &expected)
	same, both := 0, 0
	for name, digests := range expected {
		source, err := os.ReadFile(filepath.Join(folder, name+".jinja"))
		require.NoError(t, err)
		rendered, refused := compareTemplate(t, name, string(source), digests)
		same, both = same+rendered, both+refused
	}
	t.Logf("%s: %d templates: %d texts same, %d refused as by Python", folder, len(expected), same, both)
	return len(expected)
}

// compareTemplate renders a template for each case and compares the results with the
// digests of Python's. A digest is nil if Python refused the case.
func compareTemplate(t *testing.T, name, source string, digests []*string) (rendered, refused int) {
	t.Helper()
	var cases []struct {
		Name      string
		Variables json.RawMessage
	}
	readJSON(t, filepath.Join("golden", "cases.json"), &cases)
	require.Len(t, digests, len(cases))
	template, err := jinja.Parse(source)
	require.NoError(t, err, name)
	for i, want := range digests {
		variables, err := jinja.FromJSON(cases[i].Variables)
		require.NoError(t, err)
		text, err := template.Render(variables, golden())
		if want == nil {
			require.Error(t, err, "%s: Python refuses %s", name, cases[i].Name)
			refused++
			continue
		}
		require.NoError(t, err, "%s: %s", name, cases[i].Name)
		sum := sha256.Sum256([]byte(text))
		require.Equal(t, *want, hex.EncodeToString(sum[:])[:16], "%s: %s", name, cases[i].Name)
		rendered++
	}
	return rendered, refused
}
