package sqlmatch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

func TestAQueryIsFoundAmongProse(t *testing.T) {
	t.Parallel()
	var f sqlmatch.Finder
	for text, want := range map[string]string{
		"SELECT 1": "SELECT 1",
		"Here it is:\n```sql\nSELECT a\n\nFROM b;\n```\nIt returns a. ```SELECT 2```": "SELECT a\n\nFROM b;",
		"```sql SELECT 1 ```": "SELECT 1",
		"```SELECT 1":         "SELECT 1",
		"```\nWITH t AS (SELECT 1) SELECT * FROM t\n```": "WITH t AS (SELECT 1) SELECT * FROM t",
		"The query select name FROM a; lists the names.": "select name FROM a",
		"SELECT ';' FROM \"a;b\"; done":                  "SELECT ';' FROM \"a;b\"",
		"SELECT a\nFROM b\n \nThis query lists a.":       "SELECT a\nFROM b",
		"SELECT a\n": "SELECT a",
		"With this: WITH RECURSIVE t(n) AS (SELECT 1) SELECT n FROM t": "WITH RECURSIVE t(n) AS (SELECT 1) SELECT n FROM t",
		"```text\nno query\n```": "text\nno query",
	} {
		got, ok := f.Find(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "I don't know.", "the selected rows"} {
		_, ok := f.Find(text)
		require.False(t, ok, text)
	}
}
