package grading_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the databases of the tests

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

// zoo makes a data set in Spider's layout with these gold queries.
func zoo(t *testing.T, queries ...string) (source, database string) {
	t.Helper()
	folder := t.TempDir()
	database = filepath.Join(folder, "database", "zoo", "zoo.sqlite")
	require.NoError(t, os.MkdirAll(filepath.Dir(database), 0o755))
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE animal (name TEXT, legs INT); INSERT INTO animal VALUES ('owl', 2), ('cat', 4), ('dog', 4)")
	require.NoError(t, err)
	var rows []string
	for i, query := range queries {
		rows = append(rows, fmt.Sprintf(`{"db_id": "zoo", "question": "question %d", "query": %q}`, i, query))
	}
	path := filepath.Join(folder, "train.json")
	require.NoError(t, os.WriteFile(path, []byte("["+strings.Join(rows, ",\n")+"]"), 0o600))
	return "spider:" + path, database
}

func TestQueriesAreGradedByWhatTheyReturn(t *testing.T) {
	t.Parallel()
	source, database := zoo(t, "SELECT name FROM animal WHERE legs = 4", "SELECT DISTINCT legs FROM animal")
	var graders grading.Graders
	defer graders.Close()
	grader := spec.Grader{Type: spec.GraderSQL}
	list, err := graders.Open(t.Context(), spec.Tasks{}, grader, source)
	require.NoError(t, err)
	for result, want := range map[string][2]float64{
		"SELECT name FROM animal WHERE legs > 2 ORDER BY name DESC;": {1, 0},
		"SELECT legs FROM animal":                                    {0, 1},
		"DROP TABLE animal":                                          {0, 0},
		"I don't know":                                               {0, 0},
		"":                                                           {0, 0},
	} {
		for i, task := range list {
			got, _, err := graders.Grade(t.Context(), grader, task, result)
			require.NoError(t, err)
			require.InDelta(t, want[i], got, 0, "%d: %s", i, result)
		}
	}
	strict := spec.Grader{Type: spec.GraderSQL, KeepDistinct: true}
	got, _, err := graders.Grade(t.Context(), strict, list[1], "SELECT legs FROM animal")
	require.NoError(t, err)
	require.Zero(t, got)
	require.NoError(t, os.Remove(database))
	_, _, err = graders.Grade(t.Context(), grader, list[0], "SELECT 1")
	require.ErrorIs(t, err, sqlmatch.ErrDatabase)
	require.ErrorContains(t, err, "task 0")
}

func TestTasksInBIRDsLayoutAreGradedByBIRDsMetric(t *testing.T) {
	t.Parallel()
	var graders grading.Graders
	defer graders.Close()
	source, _ := zoo(t, "SELECT count(DISTINCT legs) FROM animal", "SELECT DISTINCT legs FROM animal", "SELECT name, legs FROM animal")
	path := strings.TrimPrefix(source, "spider:")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	bird := filepath.Join(filepath.Dir(path), "dev.json")
	require.NoError(t, os.WriteFile(bird, []byte(strings.ReplaceAll(string(data), `"query"`, `"evidence": "", "SQL"`)), 0o600))
	written := filepath.Join(filepath.Dir(path), "written.jsonl")
	for _, c := range []struct {
		source string
		metric string
		want   [3]float64
	}{{source, "", [3]float64{1, 0, 1}}, {"spider:" + bird, "", [3]float64{0, 1, 0}}, {written, "", [3]float64{0, 1, 0}}, {source, "bird", [3]float64{0, 1, 0}}, {"spider:" + bird, "spider", [3]float64{1, 0, 1}}} {
		grader := spec.Grader{Type: spec.GraderSQL, Metric: c.metric}
		list, err := graders.Open(t.Context(), spec.Tasks{}, grader, c.source)
		require.NoError(t, err)
		for i, result := range []string{"SELECT count(legs) FROM animal", "SELECT legs FROM animal GROUP BY legs", "SELECT legs, name FROM animal"} {
			got, _, err := graders.Grade(t.Context(), grader, list[i], result)
			require.NoError(t, err)
			require.InDelta(t, c.want[i], got, 0, "%s by %q: %s", c.source, c.metric, result)
		}
		text, err := tasks.Encode(list)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(written, text, 0o600))
	}
	text, err := os.ReadFile(written)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(written, []byte(strings.ReplaceAll(string(text), `"bird"`, `"brid"`)), 0o600))
	_, err = graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, written)
	require.ErrorContains(t, err, "metadata.sql_metric is brid: give spider or bird")
}

func TestOtherGradersGradeAsTasksDo(t *testing.T) {
	t.Parallel()
	var graders grading.Graders
	got, _, err := graders.Grade(t.Context(), spec.Grader{Type: spec.GraderQA}, tasks.Task{ID: "a", Answer: "the owl"}, "Owl.")
	require.NoError(t, err)
	require.InDelta(t, 1, got, 0)
	list, err := graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderNumeric}, "arithmetic:gate:3")
	require.NoError(t, err)
	require.Len(t, list, 3)
}

func TestTasksThatCantBeGradedAreNamed(t *testing.T) {
	t.Parallel()
	var graders grading.Graders
	defer graders.Close()
	source, database := zoo(t, "SELECT 1", "SELECT wings FROM animal", "SELECT 2", "PRAGMA user_version")
	_, err := graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, source)
	require.ErrorIs(t, err, sqlmatch.ErrGold)
	require.ErrorContains(t, err, source+": task 1: unusable gold query on "+database+": no such column: wings")
	require.ErrorContains(t, err, "\n"+source+": task 3: unusable gold query")
	broken, file := zoo(t, "SELECT 1", "SELECT 2")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("noise", 1000)), 0o600))
	_, err = graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, broken)
	require.EqualError(t, err, broken+": task 0: unusable database: open "+file+": the file is not an SQLite database (also task 1)")
	path := filepath.Join(t.TempDir(), "plain.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"id": "a", "input": "i", "answer": "SELECT 1"}`+"\n"+`{"id": "b", "input": "i", "answer": "SELECT 1", "metadata": {"database": "zoo.sqlite"}}`), 0o600))
	_, err = graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, path)
	require.ErrorIs(t, err, tasks.ErrAnswer)
	require.ErrorContains(t, err, "task a: unusable answer: metadata.database must be the absolute path")
	require.ErrorContains(t, err, "(also task b)")
}

func TestTasksThatCanBeGradedAreReturnedBesideAllFaults(t *testing.T) {
	t.Parallel()
	var graders grading.Graders
	defer graders.Close()
	queries := []string{"SELECT name FROM animal", "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 200001) SELECT x FROM c", "SELECT 1 WHERE 0"}
	for i := range 40 {
		queries = append(queries, fmt.Sprintf("SELECT wings%d FROM animal", i))
	}
	source, _ := zoo(t, queries...)
	path := strings.TrimPrefix(source, "spider:")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	rows := strings.TrimSuffix(string(data), "]") + `, {"db_id": "gone", "question": "q", "query": "SELECT 1"}]`
	require.NoError(t, os.WriteFile(path, []byte(rows), 0o600))
	list, empty, err := graders.OpenChecked(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, source)
	var faults *grading.FaultsError
	require.ErrorAs(t, err, &faults)
	require.Len(t, list, 2)
	require.Equal(t, []string{"0", "2"}, []string{list[0].ID, list[1].ID})
	require.Equal(t, []string{"2"}, empty)
	require.Equal(t, 1, faults.File.Places())
	require.Equal(t, 41, faults.Tasks[0].Places())
	require.ErrorContains(t, err, `train.json:row 43: no database "gone"`)
	require.ErrorContains(t, err, "task 1: unusable gold query on")
	require.ErrorContains(t, err, "it returns more than 200000 rows or 64 MiB")
	require.ErrorContains(t, err, "\nand 21 more")
	_, err = graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, source)
	require.ErrorContains(t, err, "\n`fulgurite tasks "+source+" --write DIR` writes the other 2 tasks; with --json instead, it lists all faults")
}

func TestGoldQueriesWithoutRowsAreNamed(t *testing.T) {
	t.Parallel()
	var graders grading.Graders
	defer graders.Close()
	source, _ := zoo(t, "SELECT name FROM animal WHERE legs = 3", "SELECT 1", "SELECT name FROM animal WHERE legs = 5")
	list, empty, err := graders.OpenChecked(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, source)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, []string{"0", "2"}, empty)
}
