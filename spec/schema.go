package spec

import (
	"embed" // the schema takes its descriptions from the types' doc comments
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

//go:embed spec.go agent.go prompts.go optimizer.go phases.go lora.go server.go credit.go loss.go curriculum.go budget.go scheduling.go policies.go traffic.go
var source embed.FS

// SchemaID is the address at which the schema is published.
const SchemaID = "https://raw.githubusercontent.com/fulgurite/fulgurite/main/docs/spec.schema.json"

// Schema returns the JSON Schema (draft 2020-12) of spec files, for editors and other
// tools. The Go types give the names of keys, their kinds and, by their comments, the
// descriptions. The tables that Validate and WithDefaults use give the allowed names,
// bounds and defaults. The schema does not express how keys depend on each other: only
// Validate checks that.
func Schema() ([]byte, error) {
	described, err := comments()
	if err != nil {
		return nil, fmt.Errorf("read comments of the spec's types: %w", err)
	}
	reflector := jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, ExpandedStruct: true,
		LookupComment: func(t reflect.Type, field string) string { return described[t.Name()+"."+field] },
	}
	schema := reflector.Reflect(Spec{})
	schema.ID, schema.Title = SchemaID, "Fulgurite training spec"
	checked := Faults{bounds: map[string]bounds.Bounds{}}
	complete().check(&checked)
	completeOptimizer().check(&checked)
	refine(schema, "", checked.bounds)
	data, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return append(data, '\n'), nil
}

// refine adds the restrictions that Go types can't express to the properties below key.
func refine(schema *jsonschema.Schema, key string, limits map[string]bounds.Bounds) {
	for pair := schema.Properties.Oldest(); pair != nil; pair = pair.Next() {
		path, property := join(key, pair.Key), pair.Value
		if property.Properties != nil {
			refine(property, path, limits)
		}
		for _, name := range choices(path) {
			property.Enum = append(property.Enum, name)
		}
		if b, ok := limits[path]; ok {
			limit(property, b)
		}
		if standard, ok := defaultOf(path); ok && property.Properties == nil {
			property.Default = standard
		}
	}
}

// limit adds the bounds of a number to its property.
func limit(property *jsonschema.Schema, b bounds.Bounds) {
	number := func(v float64) json.Number { return json.Number(strconv.FormatFloat(v, 'f', -1, 64)) }
	switch {
	case math.IsInf(b.Low, -1):
	case b.Above:
		property.ExclusiveMinimum = number(b.Low)
	default:
		property.Minimum = number(b.Low)
	}
	switch {
	case math.IsInf(b.High, 1):
	case b.Below:
		property.ExclusiveMaximum = number(b.High)
	default:
		property.Maximum = number(b.High)
	}
}

// comments returns the doc comments of the spec's types, under "Type.", and of their
// fields, under "Type.Field". Each is one line.
func comments() (map[string]string, error) {
	files, err := source.ReadDir(".")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, entry := range files {
		text, err := source.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.TYPE {
				describe(found, general)
			}
		}
	}
	return found, nil
}

// describe adds the comments of the types that a declaration declares.
func describe(found map[string]string, types *ast.GenDecl) {
	text := func(group *ast.CommentGroup) string { return strings.Join(strings.Fields(group.Text()), " ") }
	for _, s := range types.Specs {
		declared, ok := s.(*ast.TypeSpec)
		if !ok {
			continue
		}
		found[declared.Name.Name+"."] = text(types.Doc)
		if structure, ok := declared.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				if len(field.Names) > 0 {
					found[declared.Name.Name+"."+field.Names[0].Name] = text(field.Doc)
				}
			}
		}
	}
}
