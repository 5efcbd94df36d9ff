package testsuite_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workflows"
)

// recordNames makes TestNamesInHistoriesAreOnRecord write the file that it reads.
var recordNames = flag.Bool("record-names", false, "write the names of today into testdata/names.txt")

// namesFile lists, one a line, the names that histories hold.
const namesFile = "testdata/names.txt"

// Histories name activities, workflows and children, and their payloads name the fields
// of inputs and results. A name that is gone breaks the runs that began before, so that a
// change of names has to be seen: run this test with -record-names. From version 0.1.0 on
// names are only added.
func TestNamesInHistoriesAreOnRecord(t *testing.T) {
	t.Parallel()
	names := slices.Concat(activityNames(), workflowNames(), constantNames(t))
	slices.Sort(names)
	names = slices.Compact(names)
	if *recordNames {
		require.NoError(t, os.WriteFile(namesFile, []byte(strings.Join(names, "\n")+"\n"), 0o644))
	}
	text, err := os.ReadFile(namesFile)
	require.NoError(t, err)
	held := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, name := range held {
		require.True(t, slices.Contains(names, name), "%q is gone: go test ./testsuite -run TestNamesInHistories -record-names", name)
	}
	for _, name := range names {
		require.True(t, slices.Contains(held, name), "%q is new: go test ./testsuite -run TestNamesInHistories -record-names", name)
	}
}

// activityNames returns the names of the activities that a worker registers, with the
// fields of their inputs and results.
func activityNames() []string {
	var out []string
	for _, holder := range []any{&activities.Coordinator{}, &activities.Runner{}, &activities.Trainer{}} {
		of := reflect.TypeOf(holder)
		for i := range of.NumMethod() {
			m := of.Method(i)
			if m.Type.NumIn() != 3 || m.Type.In(1) != reflect.TypeFor[context.Context]() {
				continue // no activity, such as Close
			}
			out = append(out, callNames("activity "+m.Name, m.Type, 2)...)
		}
	}
	return out
}

// registered takes the names and functions of workflows.
type registered struct{ names []string }

func (r *registered) RegisterWorkflowWithOptions(w any, o workflow.RegisterOptions) {
	r.names = append(r.names, callNames("workflow "+o.Name, reflect.TypeOf(w), 1)...)
}

func workflowNames() []string {
	var r registered
	workers.Workflows(&r)
	r.names = append(r.names, fieldNames("workflow TrainingWorkflow input resume", reflect.TypeFor[workflows.TrainingState]())...)
	r.names = append(r.names, "query "+workflows.QueryProgress)
	for name, in := range map[string]any{
		workflows.UpdatePause: workflows.ControlInput{}, workflows.UpdateResume: workflows.ControlInput{}, workflows.UpdateStop: workflows.ControlInput{},
		workflows.UpdateSet: workflows.SetInput{}, workflows.UpdateApprove: workflows.VerdictInput{}, workflows.UpdateReject: workflows.VerdictInput{},
	} {
		r.names = append(r.names, "update "+name)
		r.names = append(r.names, fieldNames("update "+name+" input", reflect.TypeOf(in))...)
		r.names = append(r.names, fieldNames("update "+name+" result", reflect.TypeFor[workflows.UpdateResult]())...)
	}
	for _, queue := range []string{workflows.QueueTraining, workflows.QueueRollout, workflows.QueueTrainGPU} {
		r.names = append(r.names, "queue "+queue)
	}
	for name := range workflows.SearchAttributes() {
		r.names = append(r.names, "search attribute "+name)
	}
	return append(r.names, "error type "+activities.ErrTypeInvalid, "error type "+workflows.ErrTypeEvaluation)
}

// callNames returns the name of an activity or workflow, and the fields of its result and
// of its input, which is argument number in.
func callNames(name string, of reflect.Type, in int) []string {
	out := append([]string{name}, fieldNames(name+" input", of.In(in))...)
	if of.NumOut() == 2 {
		out = append(out, fieldNames(name+" result", of.Out(0))...)
	}
	return out
}

// fieldNames returns the JSON names of a type's fields, each with its path and the kind
// of its value.
func fieldNames(path string, of reflect.Type) []string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	custom := of.Implements(reflect.TypeFor[json.Marshaler]()) || of.String() == "time.Time"
	switch {
	case custom, of == reflect.TypeFor[json.RawMessage]():
		return []string{path + " json"}
	case of.Kind() == reflect.Slice:
		return fieldNames(path+"[]", of.Elem())
	case of.Kind() == reflect.Map:
		return fieldNames(path+"{}", of.Elem())
	case of.Kind() != reflect.Struct:
		return []string{fmt.Sprintf("%s %s", path, of.Kind())}
	}
	var out []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			out = append(out, fieldNames(path, f.Type)...)
		default:
			if name == "" {
				name = f.Name
			}
			out = append(out, fieldNames(path+"."+name, f.Type)...)
		}
	}
	return out
}

// constantNames returns the formats of children's ids, which are only found in the source
// of package workflows.
func constantNames(t *testing.T) []string {
	t.Helper()
	var out []string
	files, err := filepath.Glob("../workflows/*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasSuffix(n.Name.Name, "ID") && n.Recv == nil {
					out = append(out, "child "+n.Name.Name+" "+formatIn(n))
				}
			}
			return true
		})
	}
	require.NotEmpty(t, out)
	return out
}

// formatIn returns the first string in a function.
func formatIn(f *ast.FuncDecl) string {
	var format string
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if s := text(n); s != "" && format == "" {
			format = s
		}
		return true
	})
	return format
}

// text returns the value of a string literal, or "" for any other node.
func text(n ast.Node) string {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(literal.Value)
	if err != nil {
		panic(err) // the parser has accepted it
	}
	return s
}
