package sqlmatch_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the databases of the tests

	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

// school makes the database of testdata/school.sql in a folder with the given name.
func school(t testing.TB, name string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(folder, 0o755))
	path := filepath.Join(folder, name+".sqlite")
	text, err := os.ReadFile("testdata/school.sql")
	require.NoError(t, err)
	execute(t, path, string(text))
	return path
}

func execute(t testing.TB, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(text)
	require.NoError(t, err)
}

// verdict is a line that testdata/verdicts.py wrote.
type verdict struct {
	Database, Gold, Query string
	Metric                sqlmatch.Metric
	Right                 bool
}

func readVerdicts(t *testing.T, path string) []verdict {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []verdict
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var v verdict
		require.NoError(t, json.Unmarshal(s.Bytes(), &v))
		out = append(out, v)
	}
	require.NotEmpty(t, out)
	return out
}

func TestVerdictsAreThoseOfTheOfficialEvaluations(t *testing.T) {
	t.Parallel()
	database := school(t, "school")
	d := newDatabases(t)
	right := 0
	for _, v := range append(readVerdicts(t, "testdata/school.jsonl"), readVerdicts(t, "testdata/school_bird.jsonl")...) {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Metric: v.Metric, Database: database, Gold: v.Gold, Query: v.Query})
		require.NoError(t, err, v.Query)
		require.Equal(t, v.Right, got.Right, "gold %s\nquery %s", v.Gold, v.Query)
		if got.Right {
			right++
		}
	}
	require.Greater(t, right, 200)
}

// TestVerdictsOnADataSet checks the verdicts that testdata/verdicts.py wrote for a data
// set. FULGURITE_TEST_SQL_VERDICTS has the path of the file.
func TestVerdictsOnADataSet(t *testing.T) {
	path := os.Getenv("FULGURITE_TEST_SQL_VERDICTS")
	if path == "" {
		t.Skip("FULGURITE_TEST_SQL_VERDICTS names no file of verdicts")
	}
	d := newDatabases(t)
	verdicts := readVerdicts(t, path)
	start := time.Now()
	var wrong int
	for _, v := range verdicts {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Metric: v.Metric, Database: v.Database, Gold: v.Gold, Query: v.Query})
		if err != nil || got.Right != v.Right {
			wrong++
			t.Errorf("%s: %v instead of %v, %v\ngold  %s\nquery %s", v.Database, got, v.Right, err, v.Gold, v.Query)
		}
	}
	t.Logf("%d of %d verdicts differ; %.0f gradings a second", wrong, len(verdicts), float64(len(verdicts))/time.Since(start).Seconds())
}

func newDatabases(t testing.TB) *sqlmatch.Databases {
	t.Helper()
	d := &sqlmatch.Databases{}
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestHostileQueriesCostTheRewardAlone(t *testing.T) {
	t.Parallel()
	database := school(t, "school")
	other := school(t, "other")
	before, err := os.ReadFile(database)
	require.NoError(t, err)
	d := newDatabases(t)
	doubling := "WITH a0 AS (SELECT 1 AS x)"
	for i := range 40 {
		doubling += fmt.Sprintf(", a%d AS (SELECT p.x FROM a%d p, a%d q)", i+1, i, i)
	}
	var highest runtime.MemStats
	for _, query := range []string{
		"", ";", "-- nothing", "nonsense", "SELECT", "SELECT 6; SELECT 6", "SELECT 6\x00", strings.Repeat("(", 100_000),
		"SELECT " + strings.Repeat("(", 5000) + "6" + strings.Repeat(")", 5000),
		"SELECT 6" + strings.Repeat(" UNION ALL SELECT 6", 3000), "SELECT " + strings.Repeat("1+", 30_000) + "1",
		"ATTACH '" + other + "' AS other", "ATTACH ':memory:' AS m", "DETACH main", "PRAGMA table_info(pupil)", "PRAGMA query_only = 0",
		"PRAGMA journal_mode = WAL", "SELECT count(*) FROM pragma_table_info('pupil')", "VACUUM", "VACUUM INTO '" + database + ".copy'", "ANALYZE", "REINDEX",
		"DELETE FROM pupil", "DROP TABLE pupil", "INSERT INTO pupil (name) VALUES ('x')", "UPDATE pupil SET age = 1", "REPLACE INTO pupil (id) VALUES (1)",
		"CREATE TABLE t (a)", "CREATE TEMP TABLE t (a)", "CREATE VIEW v AS SELECT 6", "CREATE VIRTUAL TABLE t USING fts5(a)", "BEGIN", "COMMIT", "SAVEPOINT a",
		"WITH x AS (SELECT 1) DELETE FROM pupil", "DELETE FROM pupil RETURNING 6", "SELECT load_extension('/lib/libc.so.6')", "SELECT readfile('/etc/passwd')",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION SELECT x + 1 FROM c) SELECT count(*) FROM c",
		"WITH RECURSIVE c(x, y) AS (SELECT 1, zeroblob(100000) UNION ALL SELECT x + 1, randomblob(100000) FROM c ORDER BY 2) SELECT count(*) FROM c",
		"SELECT count(*) FROM pupil a, pupil b, pupil c, pupil d, pupil e, pupil f, pupil g, pupil h, pupil i, pupil j, pupil k",
		"SELECT a.name FROM pupil a, pupil b, pupil c, pupil d, pupil e, pupil f, pupil g, pupil h, pupil i ORDER BY random()",
		"SELECT randomblob(1000000000)", "SELECT zeroblob(2000000000)", "SELECT printf('%1000000000d', 6)", "SELECT hex(zeroblob(100000000))",
		"SELECT replace(hex(zeroblob(50000)), '0', hex(zeroblob(50000)))", "SELECT group_concat(hex(zeroblob(60000))) FROM pupil a, pupil b, pupil c",
		"SELECT hex(zeroblob(3000)) LIKE '" + strings.Repeat("%0", 200) + "1'", "SELECT instr(hex(zeroblob(10000)), hex(zeroblob(5000)) || '1')",
		doubling + " SELECT count(*) FROM a40", "SELECT * FROM " + strings.Repeat("pupil, ", 70) + "pupil",
		"SELECT json_extract('" + strings.Repeat("[", 20_000) + "', '$')", "EXPLAIN SELECT 6", "SELECT * FROM sqlite_dbpage",
	} {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT count(*) FROM pupil", Query: query, Most: 300 * time.Millisecond})
		require.NoError(t, err, "%.200s", query)
		require.False(t, got.Right, "%.200s", query)
		require.Regexp(t, `^The [^\n]{10,250}\.$`, strings.ToValidUTF8(got.Text, "?"), "%.200s", query)
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		highest.HeapSys = max(highest.HeapSys, now.HeapSys)
	}
	require.Less(t, highest.HeapSys, uint64(1<<30))
	after, err := os.ReadFile(database)
	require.NoError(t, err)
	require.Equal(t, before, after)
	entries, err := os.ReadDir(filepath.Dir(database))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no file was made beside the database")
	got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT count(*) FROM pupil", Query: "SELECT 6"})
	require.NoError(t, err)
	require.True(t, got.Right, "the database is as good as before")
}

// TestTemporaryFilesAreBounded fails if a sorter, or a table with intermediate results,
// may write without limit. Both queries would end by themselves.
func TestTemporaryFilesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 800 MB")
	}
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	const rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000) "
	for _, query := range []string{
		rows + "SELECT 1 FROM (SELECT x, zeroblob(120000 + x % 2) AS b FROM c ORDER BY -x LIMIT 3000) WHERE length(b) < 0",
		rows + "SELECT count(*) FROM (SELECT DISTINCT x, zeroblob(120000 + x % 2) FROM c)",
	} {
		_, err := d.CheckGold(t.Context(), sqlmatch.Comparison{Database: database, Gold: query, KeepDistinct: true, Most: time.Minute})
		require.ErrorIs(t, err, sqlmatch.ErrGold, query)
		require.ErrorContains(t, err, "more than 256 MiB in temporary files", query)
	}
	got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT 1", Query: rows + "SELECT 1 FROM (SELECT DISTINCT x, zeroblob(120000 + x % 2) FROM c)", KeepDistinct: true, Most: time.Minute})
	require.NoError(t, err, "a query over the limit is wrong, no fault")
	require.False(t, got.Right)
	few := strings.ReplaceAll(rows, "3000", "300") + "SELECT count(*) FROM (SELECT DISTINCT x, zeroblob(120000) FROM c)"
	got, err = d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT 300", Query: few, KeepDistinct: true, Most: time.Minute})
	require.NoError(t, err)
	require.True(t, got.Right, "each query has the whole limit")
}

func TestGoldQueriesWithoutRowsAreFound(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	for gold, want := range map[string]bool{
		"SELECT name FROM pupil WHERE age > 1000": true, "SELECT name FROM pupil": false, "SELECT NULL": false, "SELECT count(*) FROM pupil WHERE age > 1000": false,
	} {
		empty, err := d.CheckGold(t.Context(), sqlmatch.Comparison{Database: database, Gold: gold})
		require.NoError(t, err)
		require.Equal(t, want, empty, gold)
	}
	second := filepath.Join(filepath.Dir(database), "school_2.sqlite")
	execute(t, second, "CREATE TABLE pupil (name, age); INSERT INTO pupil VALUES ('x', 2000)")
	empty, err := d.CheckGold(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT name FROM pupil WHERE age > 1000"})
	require.NoError(t, err)
	require.False(t, empty, "another database of the suite has rows")
}

func TestDistinctCountsOnRequest(t *testing.T) {
	t.Parallel()
	c := sqlmatch.Comparison{Database: school(t, "school"), Gold: "SELECT DISTINCT age FROM pupil", Query: "SELECT age FROM pupil"}
	d := newDatabases(t)
	got, err := d.Match(t.Context(), c)
	require.NoError(t, err)
	require.True(t, got.Right)
	c.KeepDistinct = true
	got, err = d.Match(t.Context(), c)
	require.NoError(t, err)
	require.False(t, got.Right)
}

func TestNumbersMayDifferByRounding(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	for query, want := range map[string]bool{
		"SELECT 0.1 + 0.2": true, "SELECT 0.3": true, "SELECT 0.300000001": false, "SELECT '0.3'": false, "SELECT 0.3 WHERE 0": false,
	} {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT 0.3", Query: query})
		require.NoError(t, err)
		require.Equal(t, want, got.Right, query)
	}
	got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT 9007199254740993", Query: "SELECT 9007199254740992.0"})
	require.NoError(t, err)
	require.False(t, got.Right, "whole numbers are compared exactly")
	const seconds = "WITH RECURSIVE s(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM s WHERE x < 39) "
	for _, c := range []struct {
		gold, query string
		want        bool
	}{
		{"SELECT 2000000000", "SELECT 2000000001.5", false},
		{"SELECT 2000000000 UNION ALL SELECT 2000000001.5", "SELECT 2000000000 UNION ALL SELECT 2000000000", false},
		{seconds + "SELECT 1764000000.5 + x FROM s", seconds + "SELECT 1764000039.5 FROM s", false},
		{seconds + "SELECT 0.1 + x * 3e-17 FROM s", seconds + "SELECT 0.1 + 39 * 3e-17 FROM s", false}, // each is near the one before
		{"SELECT 0.3 UNION ALL SELECT 0.3", "SELECT 0.1 + 0.2 UNION ALL SELECT 0.3", true},
		{"SELECT 0.3 ORDER BY 1", "SELECT 0.1 + 0.2", true},
		{"SELECT 100.0 / 3", "SELECT 1.0 / 3 * 100", true},
		{"SELECT 3", "SELECT 3.0000000000000004", true},
		{"SELECT 0.0", "SELECT 1e-12", false},
		{"SELECT 1 UNION ALL SELECT 1.0", "SELECT 1.0 UNION ALL SELECT 1", true},
		{"SELECT 9e999", "SELECT 1e308", false},
	} {
		for _, metric := range []sqlmatch.Metric{sqlmatch.Spider, sqlmatch.BIRD} {
			got, err := d.Match(t.Context(), sqlmatch.Comparison{Metric: metric, Database: database, Gold: c.gold, Query: c.query})
			require.NoError(t, err)
			require.Equal(t, c.want, got.Right, "%s: %s for %s", metric, c.query, c.gold)
		}
	}
}

func TestBIRDComparesSetsOfRows(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	for _, c := range []struct {
		gold, query string
		want        bool
	}{
		{"SELECT count(DISTINCT name) FROM pupil", "SELECT count(name) FROM pupil", false},
		{"SELECT DISTINCT name FROM pupil", "SELECT name FROM pupil GROUP BY name", true},
		{"SELECT name FROM (SELECT name, age FROM pupil ORDER BY age)", "SELECT name FROM pupil ORDER BY id DESC", true},
		{"SELECT id, age FROM pupil", "SELECT age, id FROM pupil", false},
		{"SELECT age FROM pupil", "SELECT a.age FROM pupil a, pupil b, pupil c, pupil d, pupil e", true}, // more rows than the gold query
		{"SELECT age FROM pupil", "SELECT age FROM pupil WHERE age > 9", false},
		{"SELECT name FROM pupil WHERE 0", "SELECT 1, 2 WHERE 0", true},
		{"SELECT a.id, b.id FROM pupil a, pupil b", "SELECT a.id, a.id FROM pupil a", false},
		{"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 300000) SELECT x % 7 FROM c", "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c LIMIT 7) SELECT x FROM c", true},
	} {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Metric: sqlmatch.BIRD, Database: database, Gold: c.gold, Query: c.query})
		require.NoError(t, err, c.gold)
		require.Equal(t, c.want, got.Right, "%s for %s", c.query, c.gold)
	}
	second := filepath.Join(filepath.Dir(database), "school_2.sqlite")
	execute(t, second, "CREATE TABLE pupil (name, age)")
	got, err := d.Match(t.Context(), sqlmatch.Comparison{Metric: sqlmatch.BIRD, Database: database, Gold: "SELECT count(*) FROM pupil", Query: "SELECT 6"})
	require.NoError(t, err)
	require.True(t, got.Right, "BIRD has no test suites")
}

func TestIsDistinctFromKeepsItsWord(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	for _, c := range []struct {
		gold, query string
		want        bool
	}{
		{"SELECT name FROM pupil WHERE teacher_id IS DISTINCT FROM 1", "SELECT name FROM pupil WHERE coalesce(teacher_id, 0) <> 1", true},
		{"SELECT name FROM pupil WHERE teacher_id IS NOT DISTINCT FROM 1", "SELECT name FROM pupil WHERE teacher_id = 1", true},
		{"SELECT name FROM pupil WHERE teacher_id <> 1 OR teacher_id IS NULL", "SELECT name FROM pupil WHERE teacher_id is /* not */ distinct\n-- so\nfrom 1", true},
		{"SELECT age FROM pupil", "SELECT DISTINCT age FROM pupil", true},
		{"SELECT count(*) FROM pupil WHERE name = 'a > = b'", "SELECT 0", true},
		{"SELECT 'a > = b'", "SELECT 'a >= b'", false},
		{"SELECT 'YEAR(CURDATE())'", "SELECT '2020'", false},
	} {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: c.gold, Query: c.query})
		require.NoError(t, err, c.gold)
		require.Equal(t, c.want, got.Right, "%s for %s", c.query, c.gold)
	}
}

func TestATestSuiteCountsAsAWhole(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	c := sqlmatch.Comparison{Database: database, Gold: "SELECT count(*) FROM pupil", Query: "SELECT max(id) FROM pupil"}
	got, err := d.Match(t.Context(), c)
	require.NoError(t, err)
	require.True(t, got.Right)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(database), "._school.sqlite"), []byte("notes of a copying program"), 0o600))
	got, err = d.Match(t.Context(), c)
	require.NoError(t, err, "a hidden file is no database")
	require.True(t, got.Right)
	second := filepath.Join(filepath.Dir(database), "school_2.sqlite")
	data, err := os.ReadFile(database)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second, data, 0o600))
	execute(t, second, "DELETE FROM pupil WHERE id = 3")
	got, err = d.Match(t.Context(), c)
	require.NoError(t, err)
	require.False(t, got.Right)
	require.Equal(t, "The query returns other values: it has 1 row of 1 column, as is right (on school_2.sqlite, one of 2 databases).", got.Text)
}

func TestFaultsOfDatabasesAndGoldQueriesAreErrors(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	noise := filepath.Join(t.TempDir(), "noise.sqlite")
	require.NoError(t, os.WriteFile(noise, bytes.Repeat([]byte("noise"), 1000), 0o600))
	for _, path := range []string{database + ".none", noise, t.TempDir()} {
		_, err := d.Match(t.Context(), sqlmatch.Comparison{Database: path, Gold: "SELECT count(*) FROM pupil", Query: "SELECT 1"})
		require.ErrorIs(t, err, sqlmatch.ErrDatabase, path)
		require.ErrorContains(t, err, path)
	}
	_, err := d.Match(t.Context(), sqlmatch.Comparison{Database: noise, Gold: "SELECT 1", Query: "SELECT 1"})
	require.EqualError(t, err, "unusable database: open "+noise+": the file is not an SQLite database")
	for gold, want := range map[string]string{
		"SELECT absent FROM pupil": "no such column: absent",
		"DELETE FROM pupil":        "does more than select",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c": "too m",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c":        "",
	} {
		_, err := d.CheckGold(t.Context(), sqlmatch.Comparison{Database: database, Gold: gold, Most: 100 * time.Millisecond})
		require.ErrorIs(t, err, sqlmatch.ErrGold, gold)
		require.ErrorContains(t, err, database)
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	endless := "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
	_, err = d.Match(ctx, sqlmatch.Comparison{Database: database, Gold: "SELECT 1", Query: endless})
	require.ErrorIs(t, err, context.Canceled, "what was cut off is no verdict")
}

func TestAChangedDatabaseIsReadAnew(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	c := sqlmatch.Comparison{Database: database, Gold: "SELECT count(*) FROM pupil", Query: "SELECT 6"}
	got, err := d.Match(t.Context(), c)
	require.NoError(t, err)
	require.True(t, got.Right)
	execute(t, database, "DELETE FROM pupil; CREATE TABLE more (a); INSERT INTO more VALUES (zeroblob(10000))")
	got, err = d.Match(t.Context(), c)
	require.NoError(t, err)
	require.False(t, got.Right)
}

func TestManyCompareAtOnce(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for range 20 {
				got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: fmt.Sprintf("SELECT name FROM pupil WHERE id > %d", i%4), Query: "SELECT name FROM pupil WHERE id > 2"})
				if err != nil || got.Right != (i%4 == 2) {
					t.Errorf("%d: %v %v", i, got, err)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkMatch(b *testing.B) {
	database, d := school(b, "school"), newDatabases(b)
	for b.Loop() {
		got, err := d.Match(b.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT name, age FROM pupil ORDER BY age", Query: "SELECT age, name FROM pupil ORDER BY age"})
		if err != nil || !got.Right {
			b.Fatal(got, err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gradings/s")
}

func TestTablesOfWithMayBeUsedReasonably(t *testing.T) {
	t.Parallel()
	database, d := school(t, "school"), newDatabases(t)
	for _, query := range []string{
		"WITH a AS (SELECT id, age FROM pupil), b (n, m) AS NOT MATERIALIZED (SELECT a.id, a.age FROM a JOIN a AS other ON a.id = other.id) SELECT count(*) FROM b",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 6) SELECT max(x) FROM c",
		"SELECT CAST(6 AS INTEGER)",
	} {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Database: database, Gold: "SELECT 6", Query: query})
		require.NoError(t, err)
		require.True(t, got.Right, query)
	}
}
