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
	_, err := tasks.CheckLeak("spider:a", "gsm8k:b", a, b)
	require.ErrorContains(t, err, "spider:a leaks into gsm8k:b: they share 2 tasks")
	require.ErrorContains(t, err, "`fulgurite tasks SPEC --write DIR` writes splits without those tasks")
	require.Equal(t, "1 task with the same input: task 3 of the first, task 7 of the second", tasks.Overlaps(a[2:3], b[2:3]).String())
	for _, source := range []string{"b.jsonl", "command:test", "arithmetic:train", "harbor:b"} {
		warning, err := tasks.CheckLeak("spider:a", source, a, b)
		require.NoError(t, err, "what splits of %s share is their owner's choice", source)
		require.Contains(t, warning, "spider:a leaks into "+source+": they share 2 tasks")
	}
	warning, err := tasks.CheckLeak("spider:a", "spider:b", a[1:3], b[:2])
	require.NoError(t, err)
	require.Empty(t, warning)
}

func TestAQuestionCountsWithWhatItIsAbout(t *testing.T) {
	t.Parallel()
	one := func(input, answer string, metadata map[string]any) tasks.Task {
		return tasks.Task{ID: "t", Input: input, Answer: answer, Metadata: metadata}
	}
	type object = map[string]any
	for name, c := range map[string]struct {
		a, b tasks.Task
		same bool
	}{
		"case and blanks":              {one("What is  2+2?", "4", nil), one("what is 2+2?\n", "4", nil), true},
		"case that decides the answer": {one("Reverse ab", "ba", nil), one("Reverse AB", "BA", nil), false},
		"labels":                       {one("Q", "4", object{"level": 1}), one("Q", "4", object{"level": 2}), true},
		"an answer written otherwise":  {one("Q", "1/2", nil), one("Q", "0.5", nil), true},
		"notes of a program":           {one("Q", `{"index": 3}`, nil), one("Q", `{"index": 5}`, nil), true},
		"other contexts":               {one("Is it true?", "yes", object{"context": "A"}), one("Is it true?", "yes", object{"context": "B"}), false},
		"the same context":             {one("Is it true?", "yes", object{"context": "A"}), one("Is it true?", "yes", object{"context": "A"}), true},
		"metadata that decides":        {one("The total?", "5", object{"invoice": "a"}), one("The total?", "7", object{"invoice": "b"}), false},
		"metadata without answers":     {one("Play", "", object{"seed": 1}), one("Play", "", object{"seed": 2}), false},
		"databases by name":            {one("Q", "1", object{"db_id": "a", "database": "/x/d.sqlite"}), one("Q", "1", object{"db_id": "b", "database": "/x/d.sqlite"}), false},
		"databases by path":            {one("Q", "1", object{"database": "/x/a.sqlite"}), one("Q", "1", object{"database": "/x/b.sqlite"}), false},
		"a database at two paths":      {one("Q", "1", object{"db_id": "zoo", "database": "/x/zoo/zoo.sqlite"}), one("Q", "1", object{"database": "/y/zoo/zoo.sqlite"}), true},
		"environments":                 {one("Fix it", "", object{"harbor": "/x/a", "environment_digest": "1"}), one("Fix it", "", object{"harbor": "/x/b", "environment_digest": "2"}), false},
		"one environment twice":        {one("Fix it", "", object{"harbor": "/x/a", "environment_digest": "1"}), one("Fix it", "", object{"harbor": "/x/b", "environment_digest": "1"}), true},
		"messages":                     {one(`[{"role":"user","content":"Q"}]`, "4", nil), one(`[{"content":"Q","role":"user"}]`, "4", nil), true},
	} {
		require.Equal(t, c.same, tasks.Overlaps([]tasks.Task{c.a}, []tasks.Task{c.b}).Leaks(), name)
		require.Equal(t, c.same, tasks.Repeats([]tasks.Task{c.a, c.b}).Any(), name)
		kept, _ := tasks.Disjoint([][]tasks.Task{{c.a}, {c.b}})
		require.Equal(t, c.same, len(kept[0]) == 0, name)
	}
}

func TestDuplicatesAreNamed(t *testing.T) {
	t.Parallel()
	list := []tasks.Task{{ID: "a", Input: "Q?", Answer: "4"}, {ID: "b", Input: "R?"}, {ID: "c", Input: "q? ", Answer: "4"}, {ID: "d", Input: "Q?", Answer: "5"}}
	require.Equal(t, "2 tasks repeat the questions of others: c (as a) and d (as a); 1 with another answer: d (as a)", tasks.Repeats(list).String())
	require.Equal(t, "1 task repeats the question of another: c (as a)", tasks.Repeats(list[:3]).String())
	require.False(t, tasks.Repeats(list[:2]).Any())
}
