package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/output"
	"github.com/fulgurite/fulgurite/internal/golden"
)

const (
	schemasFile = "internal/output/schemas.json"
	jsonDocs    = "../../docs/json.md"
	module      = "github.com/fulgurite/fulgurite"
)

// outputs is implemented by each command that has --json. It returns a zero value of each
// type that the command may print.
type outputs interface{ Outputs() []any }

// leaves returns the commands of the program by what a person types, such as "token list".
func leaves() map[string]*kong.Node {
	out := map[string]*kong.Node{}
	for _, leaf := range kong.Must(&commands{}).Model.Leaves(false) {
		name := leaf.Name
		if leaf.Parent.Parent != nil {
			name = leaf.Parent.Name + " " + name
		}
		out[name] = leaf
	}
	return out
}

// shapes returns the commands that print JSON. One that does not say what it prints is nil.
func shapes() map[string]outputs {
	out := map[string]outputs{}
	for name, leaf := range leaves() {
		for _, flag := range leaf.Flags {
			if flag.Name == "json" && flag.IsBool() {
				out[name], _ = leaf.Target.Addr().Interface().(outputs)
			}
		}
	}
	return out
}

// printers returns what shapes does, and fails if one is nil.
func printers(t testing.TB) map[string]outputs {
	t.Helper()
	out := shapes()
	for name, printer := range out {
		require.NotNil(t, printer, "%s has --json and no method Outputs", name)
	}
	return out
}

// sourceComments reads the comments of types and fields from the source.
type sourceComments map[string]map[string]string // by package, then by "Type." or "Type.Field"

func (c sourceComments) of(t reflect.Type, field string) string {
	if !strings.HasPrefix(t.PkgPath(), module) {
		return ""
	}
	known, ok := c[t.PkgPath()]
	if !ok {
		known = map[string]string{}
		c[t.PkgPath()] = known
		files, _ := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(t.PkgPath(), module), "*.go"))
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err == nil {
				ast.Inspect(parsed, func(n ast.Node) bool { return describe(known, n) })
			}
		}
	}
	return known[t.Name()+"."+field]
}

// describe takes the comments of a declaration of types.
func describe(known map[string]string, n ast.Node) bool {
	declared, ok := n.(*ast.GenDecl)
	if !ok || declared.Tok != token.TYPE {
		return true
	}
	text := func(groups ...*ast.CommentGroup) string {
		var all []string
		for _, group := range groups {
			all = append(all, strings.Fields(group.Text())...)
		}
		return strings.Join(all, " ")
	}
	for _, spec := range declared.Specs {
		one := spec.(*ast.TypeSpec)
		known[one.Name.Name+"."] = text(declared.Doc, one.Doc)
		if structure, ok := one.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					known[one.Name.Name+"."+name.Name] = text(field.Doc, field.Comment)
				}
			}
		}
	}
	return true
}

// nameOf names a type by its package, too. It returns "" for a type without a name.
func nameOf(t reflect.Type) string {
	if t.PkgPath() == "" {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

// schemaOf makes the schema of a command's output from its types.
func schemaOf(name string, printer outputs, comments sourceComments) *jsonschema.Schema {
	reflector := jsonschema.Reflector{
		Anonymous: true, LookupComment: comments.of,
		Namer: nameOf,
	}
	whole := &jsonschema.Schema{Version: jsonschema.Version, Title: fmt.Sprintf("fulgurite %s --json", name), Definitions: jsonschema.Definitions{}}
	for _, form := range printer.Outputs() {
		one := reflector.ReflectFromType(reflect.TypeOf(form))
		for key, definition := range one.Definitions {
			whole.Definitions[key] = definition
		}
		one.Definitions, one.Version = nil, ""
		whole.AnyOf = append(whole.AnyOf, one)
		allowNull(whole.Definitions, reflect.TypeOf(form), map[reflect.Type]bool{})
	}
	return whole
}

// allowNull lets the pointers be null that a type has, if they are printed also where there
// is nothing.
func allowNull(all jsonschema.Definitions, t reflect.Type, known map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		allowNull(all, t.Elem(), known)
	case reflect.Struct:
		if known[t] {
			return
		}
		known[t] = true
		for _, field := range reflect.VisibleFields(t) {
			allowNull(all, field.Type, known)
			name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Type.Kind() != reflect.Pointer || strings.Contains(rest, "omit") || all[nameOf(t)] == nil || all[nameOf(t)].Properties == nil {
				continue
			}
			if property, ok := all[nameOf(t)].Properties.Get(name); ok && property.AnyOf == nil {
				value := *property
				value.Description = ""
				all[nameOf(t)].Properties.Set(name, &jsonschema.Schema{Description: property.Description, AnyOf: []*jsonschema.Schema{&value, {Type: "null"}}})
			}
		}
	}
}

func TestSchemasOfOutputsAreCurrent(t *testing.T) {
	t.Parallel()
	all, comments := map[string]*jsonschema.Schema{}, sourceComments{}
	for name, printer := range printers(t) {
		all[name] = schemaOf(name, printer, comments)
	}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(all))
	if golden.Updating() {
		require.NoError(t, os.WriteFile(schemasFile, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(schemasFile)
	require.NoError(t, err)
	require.JSONEq(t, want.String(), string(got), "go test ./cmd/fulgurite -run TestSchemas -update writes them anew")
}

// printedAs returns the command of a line of a script whose output is JSON, or "".
func printedAs(known map[string]outputs, words []string) string {
	if len(words) < 2 || words[0] != "fulgurite" || !slices.Contains(words, "--json") {
		return ""
	}
	for _, name := range []string{words[1], strings.Join(words[1:min(len(words), 3)], " ")} {
		if _, ok := known[name]; ok {
			return name
		}
	}
	return ""
}

// conforms returns how a text differs from what a command may print.
func conforms(command, text string) error {
	schema, err := output.Schema(command)
	if err != nil {
		return err
	}
	document, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return err
	}
	compiler := validator.NewCompiler()
	if err := compiler.AddResource("output.json", document); err != nil {
		return err
	}
	compiled, err := compiler.Compile("output.json")
	if err != nil {
		return err
	}
	printed, err := validator.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(printed)
}

// formsOf names the types that a command prints. Those that steer a run print the same.
func formsOf(printer outputs) string {
	var forms []string
	for _, form := range printer.Outputs() {
		forms = append(forms, reflect.TypeOf(form).String())
	}
	return strings.Join(forms, " ")
}

// Each command's JSON is printed by a script, where it is compared with its schema, and is
// described.
func TestEveryOutputIsPrintedByAScriptAndDescribed(t *testing.T) {
	t.Parallel()
	known, seen := printers(t), map[string]bool{}
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			words := strings.Fields(line)
			if len(words) > 2 && (words[0] == "code" || words[0] == "eventually") {
				if name := printedAs(known, words[max(0, slices.Index(words, "fulgurite")):]); name != "" {
					seen[formsOf(known[name])] = true
				}
			}
		}
	}
	docs, err := os.ReadFile(jsonDocs)
	require.NoError(t, err)
	var missing []string
	for name := range known {
		if !seen[formsOf(known[name])] {
			missing = append(missing, name)
		}
		require.Contains(t, string(docs), "| `"+name+"` |")
	}
	require.Empty(t, missing, "no script runs these commands with --json")
}

func TestAnotherShapeIsNoticed(t *testing.T) {
	t.Parallel()
	require.NoError(t, conforms("token create", `{"name": "ada", "secret": "s"}`))
	for _, text := range []string{`{"name": "ada"}`, `{"name": "ada", "secret": 1}`, `{"name": "ada", "secret": "s", "more": 1}`, `null`} {
		require.Error(t, conforms("token create", text), text)
	}
}
