package sqlmatch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

func TestAnOutcomeSaysWhetherAQueryFailsOrReturnsSomethingElse(t *testing.T) {
	t.Parallel()
	database := school(t, "school")
	d := newDatabases(t)
	for _, c := range []struct {
		metric      sqlmatch.Metric
		gold, query string
		want        string
	}{
		{gold: "SELECT count(*) FROM pupil", query: "SELECT 6", want: "The query returns what the task's query returns."},
		{gold: "SELECT 1", query: "-- I do not know", want: "The result is no query."},
		{gold: "SELECT 1", query: "The answer is 6.", want: `The result is no query: it begins with "the".`},
		{gold: "SELECT 1", query: "SELECT nam FROM pupil", want: "The query fails: no such column: nam."},
		{gold: "SELECT 1", query: "SELECT FROM pupil", want: `The query fails: near "FROM": syntax error.`},
		{gold: "SELECT 1", query: "DELETE FROM pupil", want: "The query is refused: it has a statement that does more than select."},
		{gold: "SELECT 1", query: "SELECT 1; SELECT 1", want: "The query is refused: it has more than one statement."},
		{gold: "SELECT 1", query: "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c", want: "The query was ended: it took too many steps."},
		{gold: "SELECT 4242", query: "SELECT 6", want: "The query returns other values: it has 1 row of 1 column, as is right."},
		{gold: "SELECT 4242, 4243", query: "SELECT 6", want: "The query returns rows of 1 column, where 1 row of 2 columns is right."},
		{gold: "SELECT 4242", query: "SELECT id FROM pupil", want: "The query returns more than 1 row, where 1 row of 1 column is right."},
		{gold: "SELECT 4242 UNION ALL SELECT 4243", query: "SELECT 4242", want: "The query returns 1 row of 1 column, where 2 rows of 1 column are right."},
		{gold: "SELECT 4242 WHERE 1 = 0", query: "SELECT 6", want: "The query returns rows, where no row is right."},
		{gold: "SELECT 4242", query: "SELECT 'a text that is longer than any number'", want: "The query returns other values, which are longer: 1 row of 1 column is right."},
		{gold: "SELECT id FROM pupil ORDER BY id", query: "SELECT id FROM pupil ORDER BY id DESC", want: "The query returns the right 6 rows in another order."},
		{metric: sqlmatch.BIRD, gold: "SELECT 4242", query: "SELECT 6", want: "The query returns a row that is none of the right ones: 1 row of 1 column is right."},
		{metric: sqlmatch.BIRD, gold: "SELECT 4242 WHERE 1 = 0", query: "SELECT 6", want: "The query returns rows, where no row is right."},
		{metric: sqlmatch.BIRD, gold: "SELECT 1 UNION SELECT 2", query: "SELECT 1", want: "The query returns 1 of the 2 different rows that are right."},
		{metric: sqlmatch.BIRD, gold: "SELECT 4242, 4243", query: "SELECT 6", want: "The query returns rows of 1 column, where 1 row of 2 columns is right."},
	} {
		got, err := d.Match(t.Context(), sqlmatch.Comparison{Metric: c.metric, Database: database, Gold: c.gold, Query: c.query})
		require.NoError(t, err, c.query)
		// A slow machine reaches the limit of time first.
		require.Equal(t, c.want, strings.Replace(got.Text, "too much time", "too many steps", 1), c.query)
		require.NotContains(t, got.Text, "424", "a value of the gold result")
	}
}
