package tokenizer_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// goldenCase is one case that golden/make.py wrote. It has the ids with special tokens
// found in the text; the ids without, where these differ; and the text that those ids
// decode to, where this differs from Text.
type goldenCase struct {
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Plain   []int32 `json:"plain"`
	Decoded *string `json:"decoded"`
}

func readGolden(t *testing.T, path string) []goldenCase {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	text, err := gzip.NewReader(f)
	require.NoError(t, err)
	var cases []goldenCase
	require.NoError(t, json.NewDecoder(text).Decode(&cases))
	require.NotEmpty(t, cases)
	return cases
}

// strips reports whether the decoder of a file removes the first space. All do so, except
// those of byte-level vocabularies.
func strips(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return !strings.Contains(string(text), `"ByteLevel"`)
}

func read(t testing.TB, path string) *tokenizer.BPE {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := tokenizer.FromJSON(text)
	require.NoError(t, err)
	return b
}

// oneMark matches the marks that replace bytes which are not valid text. Implementations
// differ in how many marks a run of bytes gets.
var oneMark = regexp.MustCompile("\uFFFD+")

// requireGolden compares b with the reference. When it decodes, the reference removes the
// first space of a text if the vocabulary has put one there; ours keeps it.
func requireGolden(t *testing.T, b *tokenizer.BPE, cases []goldenCase, stripped bool) {
	t.Helper()
	for _, c := range cases {
		plain, decoded := c.Plain, c.Text
		if plain == nil {
			plain = c.IDs
		}
		if c.Decoded != nil {
			decoded = *c.Decoded
		}
		require.Equal(t, c.IDs, b.EncodeSpecial(c.Text), "with special tokens: %q", c.Text)
		require.Equal(t, plain, b.Encode(c.Text), "without special tokens: %q", c.Text)
		back := strings.ToValidUTF8(b.Decode(plain), "\uFFFD")
		if stripped {
			back = strings.TrimPrefix(back, " ")
		}
		require.Equal(t, oneMark.ReplaceAllString(decoded, "\uFFFD"), oneMark.ReplaceAllString(back, "\uFFFD"), "back: %q", c.Text)
	}
}

func TestIDsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*-golden.json.gz")
	require.NoError(t, err)
	require.Len(t, paths, 10)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), "-golden.json.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases := readGolden(t, path)
			require.GreaterOrEqual(t, len(cases), 400)
			file := filepath.Join("testdata", name+".json")
			requireGolden(t, read(t, file), cases, strips(t, file))
		})
	}
}

// Published vocabularies are not in the repository. This test runs if a folder has them,
// each next to the file that golden/make.py wrote for it.
func TestPublishedTokenizers(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("FULGURITE_TOKENIZERS")
	if folder == "" {
		t.Skip("FULGURITE_TOKENIZERS names no folder")
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*", "golden.json.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			t.Parallel()
			file, cases := filepath.Join(filepath.Dir(path), "tokenizer.json"), readGolden(t, path)
			requireGolden(t, read(t, file), cases, strips(t, file))
			t.Logf("%d strings have the same tokens", len(cases))
		})
	}
}
