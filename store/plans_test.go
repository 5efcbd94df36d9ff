package store_test

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
)

// argument is one that a query can be asked with.
func argument(of reflect.Type) reflect.Value {
	run := trace.RolloutID{Run: "demo", Kind: trace.Train, Step: 1}
	switch of {
	case reflect.TypeFor[trace.Address]():
		return reflect.ValueOf(trace.Address{RolloutID: run, Attempt: 1})
	case reflect.TypeFor[[]trace.Address]():
		return reflect.ValueOf([]trace.Address{{RolloutID: run, Attempt: 1}})
	case reflect.TypeFor[model.VersionID]():
		return reflect.ValueOf(model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
	}
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.String:
		v.SetString("demo")
	case reflect.Int:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	}
	return v
}

func TestNoPageReadsTheAttemptsOfOtherRuns(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	explain := store.Plans(s)
	records, asked := reflect.TypeFor[page.Records](), reflect.ValueOf(s)
	for i := range records.NumMethod() {
		method := asked.MethodByName(records.Method(i).Name)
		in := []reflect.Value{reflect.ValueOf(t.Context())}
		for k := 1; k < method.Type().NumIn(); k++ {
			in = append(in, argument(method.Type().In(k)))
		}
		require.True(t, method.Type().In(0) == reflect.TypeFor[context.Context](), records.Method(i).Name)
		method.Call(in) // what is not there is not found, and was asked for
	}
	plans, err := explain(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(plans), records.NumMethod()/2)
	for query, plan := range plans {
		for _, step := range plan {
			if table, scanned := strings.CutPrefix(step, "SCAN "); scanned && !strings.HasPrefix(table, "(subquery") {
				// A run is a row, and a lease a process: these few are listed as a whole. The others are arguments and results of subqueries.
				require.Contains(t, []string{"runs", "leases", "CONSTANT", "wanted", "latest", "below", "b"}, strings.Fields(table)[0], "%s\n%s", step, query)
			}
			require.NotContains(t, step, "AUTOMATIC", "%s\n%s", step, query)
		}
	}
}
