// Package calc_test checks that the example specs are valid and have the properties that
// they describe.
package calc_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

func examples(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.yaml", "*.json"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	require.GreaterOrEqual(t, len(files), 4)
	return files
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	published, err := os.Open("../../docs/spec.schema.json")
	require.NoError(t, err)
	defer func() { require.NoError(t, published.Close()) }()
	document, err := jsonschema.UnmarshalJSON(published)
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource(spec.SchemaID, document))
	compiled, err := compiler.Compile(spec.SchemaID)
	require.NoError(t, err)
	return compiled
}

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	compiled := schema(t)
	for _, file := range examples(t) {
		s, err := spec.Load(file)
		require.NoError(t, err)
		require.NoError(t, s.Validate(), file)
		if len(s.Agent.Command) > 0 {
			s.Agent.Command = []string{"go"} // the example says how its program is built
		}
		require.NoError(t, s.Check(), file)
		written, err := json.Marshal(s)
		require.NoError(t, err)
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
		require.NoError(t, err)
		require.NoError(t, compiled.Validate(document), file)
	}
}

func TestTasksOfExamplesCanBeGraded(t *testing.T) {
	t.Parallel()
	for _, file := range examples(t) {
		s, err := spec.Load(file)
		require.NoError(t, err)
		for _, source := range []string{s.Tasks.Train, s.Tasks.Gate, s.Tasks.Test} {
			if source == "" {
				continue
			}
			list, err := tasks.Open(source)
			require.NoError(t, err, file)
			require.NoError(t, tasks.CheckAnswers(s.Grader, list), file)
			for _, task := range list {
				reward, err := tasks.Grade(s.Grader, task, task.Answer)
				require.NoError(t, err)
				require.InDelta(t, 1, reward, 0)
			}
		}
		if w := s.Model.WarmStart; w != nil {
			d, err := tasks.OpenDemonstrations(w.Demonstrations, 1, w.Updates)
			require.NoError(t, err)
			codec, err := dialog.Named(s.WithDefaults().Model.Codec)
			require.NoError(t, err)
			for _, demonstration := range d.Batch(0, 8) {
				_, _, err := codec.Demonstration(demonstration)
				require.NoError(t, err)
			}
		}
	}
}

func TestYAMLAndJSONSayTheSame(t *testing.T) {
	t.Parallel()
	inYAML, err := spec.Load("spec.yaml")
	require.NoError(t, err)
	inJSON, err := spec.Load("spec.json")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(inYAML, inJSON))
	require.Equal(t, spec.Digest(inYAML), spec.Digest(inJSON))
}

// The JSON file is used directly as a workflow's input, for which relative paths are not
// resolved.
func TestJSONExampleNeedsNoFile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("spec.json")
	require.NoError(t, err)
	asInput, err := spec.Parse(data, "spec.json")
	require.NoError(t, err)
	loaded, err := spec.Load("spec.json")
	require.NoError(t, err)
	require.Equal(t, loaded, asInput)
}

func TestSpecsInTheDocumentationAreValid(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/spec.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(docs), "```yaml\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	s, err := spec.Parse([]byte(text), "docs/spec.md")
	require.NoError(t, err)
	require.NoError(t, s.Check())
}

func TestDataInTheDocumentationIsRead(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/spec.md")
	require.NoError(t, err)
	blocks := strings.Split(string(docs), "```json\n")
	require.Len(t, blocks, 3)
	task, _, _ := strings.Cut(blocks[1], "```")
	list, err := tasks.ReadJSONL(strings.NewReader(task), "docs/spec.md")
	require.NoError(t, err)
	require.Equal(t, "144", list[0].Answer)
	demonstration, _, _ := strings.Cut(blocks[2], "```")
	dialogs, err := tasks.ReadDemonstrations(strings.NewReader(demonstration), "docs/spec.md")
	require.NoError(t, err)
	_, _, err = dialog.Compact().Demonstration(dialogs[0])
	require.NoError(t, err)
}
