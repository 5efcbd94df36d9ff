package tasks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks"
)

func TestOverlapsAreFound(t *testing.T) {
	t.Parallel()
	about := func(id, input, database string) tasks.Task {
		return tasks.Task{ID: id, Input: input, Metadata: map[string]any{"db_id": database}}
	}
	hops := func(id string, ids ...any) tasks.Task {
		return tasks.Task{ID: id, Input: id, Metadata: map[string]any{"single_hops": ids}}
	}
	a := []tasks.Task{about("1", "How many?", "zoo"), about("2", "Who?", "pets"), {ID: "3", Input: "6*7"}, hops("4", "x", "y")}
	b := []tasks.Task{about("5", " How many?\n", "zoo"), about("6", "Who?", "cars"), {ID: "7", Input: "6*7"}, hops("8", "y", "z"), hops("9", "y")}
	o := tasks.Overlaps(a, b)
	require.Equal(t, tasks.Overlap{
		IDs: [][2]string{{"1", "5"}, {"3", "7"}}, Databases: []string{"zoo"},
		SingleHops: []tasks.SharedHop{{ID: "y", Tasks: [2][]string{{"4"}, {"8", "9"}}}},
		Tasks:      [2][]string{{"1", "3", "4"}, {"5", "7", "8", "9"}},
	}, o)
	require.True(t, o.Leaks())
	require.Equal(t, "2 tasks with the same input and 1 single question (y): tasks 1, 3 and 4 of the first, tasks 5, 7, 8 and 1 more of the second; 1 database (zoo)", o.String())
	require.False(t, tasks.Overlap{Databases: []string{"zoo"}}.Leaks())
	require.Equal(t, "nothing", tasks.Overlaps(a[:1], b[1:]).String())
	require.ErrorContains(t, tasks.CheckLeak("spider:a", "gsm8k:b", a, b), "spider:a leaks into gsm8k:b: they share 2 tasks")
	require.ErrorContains(t, tasks.CheckLeak("spider:a", "gsm8k:b", a, b), "`fulgurite tasks SPEC --write DIR` writes splits without those tasks")
	require.Equal(t, "1 task with the same input: task 3 of the first, task 7 of the second", tasks.Overlaps(a[2:3], b[2:3]).String())
	require.NoError(t, tasks.CheckLeak("spider:a", "b.jsonl", a, b), "what plain files share is their owner's choice")
	require.NoError(t, tasks.CheckLeak("arithmetic:train", "gsm8k:b", a, b))
	require.NoError(t, tasks.CheckLeak("spider:a", "spider:b", a[1:3], b[:2]))
}
