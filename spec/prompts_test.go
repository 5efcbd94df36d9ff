package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/spec"
)

const withPrompts = minimal + `
prompts:
  texts:
    - {name: writer, text: "Write SQL for {schema}.", placeholders: [schema]}
    - {name: search, file: search.txt}
  rules:
    - {prompt: writer, match: {prefix: You write SQL.}}
    - {prompt: search, match: {role: tool, tool: search}}
`

func TestPromptsOfFilesAreReadOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "search.txt"), "\ufeffFinds pages.\r\nFast.\n")
	s, err := spec.LoadText([]byte(withPrompts), "a.yaml", dir)
	require.NoError(t, err)
	s, err = s.Complete()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "search.txt"), s.Prompts.Texts[1].File)
	require.Empty(t, s.PromptsDigest())

	read, err := s.ReadPrompts()
	require.NoError(t, err)
	require.Equal(t, spec.PromptText{Name: "search", Text: "Finds pages.\nFast."}, read.Prompts.Texts[1])
	require.NotEmpty(t, s.Prompts.Texts[1].File, "the spec that was given does not change")
	set, err := read.Prompts.Set()
	require.NoError(t, err)
	require.Equal(t, set.Digest(), read.PromptsDigest())
	require.Equal(t, []string{"search", "writer"}, set.Prompts().Names())
	require.Equal(t, prompts.System, set.Rules()[0].Match.Role, "the default")

	require.NoError(t, os.Remove(filepath.Join(dir, "search.txt")))
	again, err := read.ReadPrompts()
	require.NoError(t, err)
	require.Equal(t, read, again)
	require.NoError(t, read.Check())
	require.ErrorContains(t, s.Check(), "prompts.texts[1].file: "+filepath.Join(dir, "search.txt")+": no such file or directory")

	inline := parse(t, strings.Replace(withPrompts, "file: search.txt", `text: "Finds pages.\nFast."`, 1)).WithDefaults()
	inline, err = inline.ReadPrompts()
	require.NoError(t, err)
	require.Equal(t, spec.Digest(read), spec.Digest(inline))
	inline.Prompts.Texts[0].Text = "{schema}"
	_, err = inline.ReadPrompts()
	require.ErrorContains(t, err, "prompts.digest: the digest of the texts and rules is sha256:")
}

func TestASpecWithoutPromptsIsUnchanged(t *testing.T) {
	t.Parallel()
	s := parse(t, minimal).WithDefaults()
	require.Nil(t, s.Prompts)
	read, err := s.ReadPrompts()
	require.NoError(t, err)
	require.Equal(t, s, read)
	require.NotEqual(t, spec.Digest(s), spec.Digest(parse(t, withPrompts)))
}

func TestFaultsOfPromptsAreReportedByTheirKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "latin.txt"), "caf\xe9")
	write(t, filepath.Join(dir, "empty.txt"), "\n")
	write(t, filepath.Join(dir, "missing.txt"), "no placeholder")
	said := map[string]string{}
	for name, section := range map[string]string{
		"no texts":            `{rules: []}`,
		"neither":             `{texts: [{name: a}]}`,
		"both":                `{texts: [{name: a, text: x, file: missing.txt}]}`,
		"name":                `{texts: [{name: A b, text: x}]}`,
		"twice":               `{texts: [{name: a, text: x}, {name: a, text: y}]}`,
		"long":                `{texts: [{name: a, text: xyz}], max_bytes: 2}`,
		"zero":                `{texts: [{name: a, text: xyz}], max_bytes: 0}`,
		"placeholders":        `{texts: [{name: a, text: "{b}", placeholders: [c]}]}`,
		"placeholder in file": `{texts: [{name: a, file: missing.txt, placeholders: [c]}]}`,
		"latin":               `{texts: [{name: a, file: latin.txt}]}`,
		"empty":               `{texts: [{name: a, file: empty.txt}]}`,
		"directory":           `{texts: [{name: a, file: .}]}`,
		"rule":                `{texts: [{name: a, text: x}], rules: [{prompt: b, match: {role: assistant, exact: x, prefix: y, position: -1}}, {match: {role: tool}}]}`,
		"unknown keys":        `{text: [], texts: [{nam: a}], rules: [{prompt: a, match: {roles: user}}]}`,
		"version":             `{version: demo}`,
		"digest":              `{texts: [{name: a, text: x}], digest: abc}`,
	} {
		s, err := spec.LoadText([]byte(minimal+"prompts: "+section+"\n"), "a.yaml", dir)
		if err == nil {
			_, err = s.Complete()
		}
		require.Error(t, err, name)
		said[name] = strings.ReplaceAll(err.Error(), dir, "DIR")
	}
	golden.Table(t, "prompts", said)
}

func TestPromptsOfAVersionReplaceTheTextsOfTheSpec(t *testing.T) {
	t.Parallel()
	version := []spec.PromptText{
		{Name: "writer", Text: "Better SQL for {schema}.", Placeholders: []string{"schema"}}, {Name: "search", Text: "Finds more."}, {Name: "third", Text: "x"},
	}
	s := parse(t, strings.Replace(withPrompts, "prompts:\n", "prompts:\n  version: demo@1\n", 1))
	s.Prompts.Texts = []spec.PromptText{{Name: "search"}, {Name: "writer", Text: "old {schema}"}}
	require.NoError(t, s.Validate(), "a name is enough")
	unknown, err := s.ReadPrompts()
	require.NoError(t, err)
	require.Empty(t, unknown.PromptsDigest(), "only the run knows the texts")

	got, err := unknown.TakePrompts(version)
	require.NoError(t, err)
	require.Equal(t, []spec.PromptText{version[1], version[0]}, got.Prompts.Texts)
	set, err := got.Prompts.Set()
	require.NoError(t, err)
	require.Equal(t, set.Digest(), got.PromptsDigest())
	again, err := got.ReadPrompts()
	require.NoError(t, err)
	require.Equal(t, got, again)
	again, err = got.TakePrompts(version)
	require.NoError(t, err, "a spec on record can be prepared again")
	require.Equal(t, got, again)

	s.Prompts.Texts = nil
	require.NoError(t, s.Validate())
	got, err = s.TakePrompts(version)
	require.NoError(t, err)
	require.Equal(t, version, got.Prompts.Texts)

	_, err = s.TakePrompts(version[1:])
	require.ErrorContains(t, err, `prompts.rules[0].prompt: prompts.version demo@1 has no prompt "writer"; name one of search, third, or another version`)
	s.Prompts.Texts = []spec.PromptText{{Name: "fourth"}}
	_, err = s.TakePrompts(version)
	require.ErrorContains(t, err, `prompts.texts[0].name: prompts.version demo@1 has no prompt "fourth"`)
	got.Prompts.Digest = "sha256:" + strings.Repeat("0", 64)
	_, err = got.TakePrompts(version)
	require.ErrorContains(t, err, "prompts.digest: ")
}

func TestTheTextsOfPromptsStayOutOfHistories(t *testing.T) {
	t.Parallel()
	require.Nil(t, parse(t, withPrompts).WithoutSecrets().Prompts)
}
