package spec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	schemaFile = "../docs/spec.schema.json"
	docsFile   = "../docs/spec.md"
)

func TestPublishedSchemaIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := spec.Schema()
	require.NoError(t, err)
	if golden.Updating() {
		require.NoError(t, os.WriteFile(schemaFile, want, 0o644))
	}
	got, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "go test ./spec -run Schema -update writes it anew")
}

// property holds the parts of a schema that the tests look at.
type property struct {
	Type                 string              `json:"type"`
	Description          string              `json:"description"`
	Default              any                 `json:"default"`
	Enum                 []string            `json:"enum"`
	Properties           map[string]property `json:"properties"`
	AdditionalProperties any                 `json:"additionalProperties"`
}

func schema(t *testing.T) property {
	t.Helper()
	data, err := spec.Schema()
	require.NoError(t, err)
	var root property
	require.NoError(t, json.Unmarshal(data, &root))
	return root
}

// walk calls visit with every key below p and its property.
func walk(p property, path string, visit func(path string, p property)) {
	for name, below := range p.Properties {
		key := strings.TrimPrefix(path+"."+name, ".")
		visit(key, below)
		walk(below, key, visit)
	}
}

func TestEveryKeyIsDescribedInTheSchema(t *testing.T) {
	t.Parallel()
	keys := 0
	walk(schema(t), "", func(path string, p property) {
		keys++
		require.NotEmpty(t, p.Description, path)
		require.NotEmpty(t, p.Type, path)
		if len(p.Properties) > 0 {
			require.Equal(t, false, p.AdditionalProperties, path)
		}
	})
	require.Greater(t, keys, 50)
}

// row matches a row of a table in docs/spec.md: key, kind, default, meaning.
var row = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+(?:\\.[a-z0-9_]+)*)` \\|([^|]*)\\|([^|]*)\\|([^|]+)\\|$")

func TestEveryKeyIsDocumentedWithItsDefault(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	documented := map[string][]string{}
	for _, cells := range row.FindAllStringSubmatch(string(docs), -1) {
		documented[cells[1]] = cells
	}
	leaves := 0
	walk(schema(t), "", func(path string, p property) {
		if len(p.Properties) > 0 {
			return
		}
		leaves++
		cells, ok := documented[path]
		require.True(t, ok, "docs/spec.md has no row for %s", path)
		for _, name := range p.Enum {
			require.Contains(t, cells[4]+cells[3], name, "row of %s", path)
		}
		if p.Default != nil {
			require.Equal(t, plain(p.Default), strings.TrimSpace(cells[3]), "default in the row of %s", path)
		}
	})
	require.Len(t, documented, leaves, "docs/spec.md has rows for keys that don't exist")
}

func plain(v any) string {
	if f, ok := v.(float64); ok && f == float64(int(f)) {
		return fmt.Sprint(int(f))
	}
	return fmt.Sprint(v)
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := spec.Schema()
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource(spec.SchemaID, document))
	s, err := compiler.Compile(spec.SchemaID)
	require.NoError(t, err)
	return s
}

func TestSchemaAcceptsWhatParseAccepts(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(valid().WithDefaults())
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	require.NoError(t, compiled(t).Validate(document))
}

func TestSchemaRefusesWhatParseRefuses(t *testing.T) {
	t.Parallel()
	const rest = `"agent":{"func":"f"},"tasks":{"train":"t"},"grader":{"type":"exact"},"training":{"steps":1}`
	for _, text := range []string{
		`{"stepz":1,` + rest + `}`, `{"name":12,` + rest + `}`, `{"seed":0,` + rest + `}`, `{"seed":1.5,` + rest + `}`,
		`{"model":{"engine":"cuda"},` + rest + `}`, `{"sampling":{"temperature":-1},` + rest + `}`,
		`{"model":{"warm_start":{"updates":1}},` + rest + `}`, `{"loss":{"clip_low":2},` + rest + `}`, `{}`,
	} {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		require.Error(t, compiled(t).Validate(document), text)
		s, err := spec.Parse([]byte(text), "a.json")
		if err == nil {
			err = s.Validate()
		}
		require.Error(t, err, text)
	}
}
