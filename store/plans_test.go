package store_test

import (
	"context"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// argument returns an argument of the given type for a query.
func argument(of reflect.Type) reflect.Value {
	run := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}
	switch of {
	case reflect.TypeFor[record.Address]():
		return reflect.ValueOf(record.Address{RolloutID: run, Attempt: 1})
	case reflect.TypeFor[[]record.Address]():
		return reflect.ValueOf([]record.Address{{RolloutID: run, Attempt: 1}})
	case reflect.TypeFor[[]int]():
		return reflect.ValueOf([]int{1})
	case reflect.TypeFor[[]string]():
		return reflect.ValueOf([]string{"demo"})
	case reflect.TypeFor[record.ConversationQuery]():
		version := 1
		return reflect.ValueOf(record.ConversationQuery{Run: "demo", Version: &version, Label: "rude", User: "c0", WithFeedback: true, Before: 9, Limit: 5})
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

// plansOfPages returns the database's plan for each query that a page can make.
func plansOfPages(t *testing.T, url, explain string) map[string][]string {
	t.Helper()
	s, err := store.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	explained := store.Plans(s, explain)
	records, asked := reflect.TypeFor[page.Records](), reflect.ValueOf(s)
	for i := range records.NumMethod() {
		method := asked.MethodByName(records.Method(i).Name)
		in := []reflect.Value{reflect.ValueOf(t.Context())}
		for k := 1; k < method.Type().NumIn(); k++ {
			in = append(in, argument(method.Type().In(k)))
		}
		require.True(t, method.Type().In(0) == reflect.TypeFor[context.Context](), records.Method(i).Name)
		method.Call(in) // a query that finds nothing has still been made
	}
	plans, err := explained(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(plans), records.NumMethod()/2)
	return plans
}

func TestNoPageReadsTheAttemptsOfOtherRuns(t *testing.T) {
	t.Parallel()
	for query, plan := range plansOfPages(t, filepath.Join(t.TempDir(), "store.db"), "EXPLAIN QUERY PLAN") {
		for _, step := range plan {
			if table, scanned := strings.CutPrefix(step, "SCAN "); scanned && !strings.HasPrefix(table, "(subquery") {
				// There are few runs and leases, so these tables may be listed
				// completely. The others are arguments and results of subqueries.
				require.Contains(t, []string{"runs", "leases", "CONSTANT", "wanted", "latest", "below", "b"}, strings.Fields(table)[0], "%s\n%s", step, query)
			}
			require.NotContains(t, step, "AUTOMATIC", "%s\n%s", step, query)
		}
	}
}

// scanned finds the table of a step of PostgreSQL's plan that reads one.
var scanned = regexp.MustCompile(`^[ >-]*(?:Parallel )?(Seq|Index|Index Only|Bitmap Heap) Scan .*?\bon ([a-z_]+)`)

// In PostgreSQL every table but those few is read by an index condition. The test keeps
// PostgreSQL from reading small tables completely.
func TestNoPageReadsTheAttemptsOfOtherRunsInPostgreSQL(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	for query, plan := range plansOfPages(t, url+separator+"options=-c%20enable_seqscan%3Doff", "EXPLAIN") {
		for i, step := range plan {
			found := scanned.FindStringSubmatch(step)
			if found == nil || slices.Contains([]string{"runs", "leases"}, found[2]) {
				continue
			}
			require.NotEqual(t, "Seq", found[1], "%s\n%s", strings.Join(plan, "\n"), query)
			require.Regexp(t, `(Index|Recheck) Cond: .*\b(run|name|id|digest|key)\b`, strings.Join(plan[i+1:min(len(plan), i+3)], " "), "%s\n%s", strings.Join(plan, "\n"), query)
		}
	}
}

// Others wait while it is asked which versions are in use, also if the run has many attempts.
func TestVersionsInUseAreFoundWithoutReadingEndedAttempts(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	explained := store.Plans(s, "EXPLAIN QUERY PLAN")
	_, err = s.Holdings(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	plans, err := explained(t.Context())
	require.NoError(t, err)
	asked := 0
	for query, plan := range plans {
		if strings.Contains(query, "FROM attempts") {
			asked++
			require.Contains(t, plan[0], "INDEX attempts_cut_off (run=?)", query)
		}
	}
	require.Equal(t, 1, asked)
}
