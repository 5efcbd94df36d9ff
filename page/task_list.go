package page

import (
	"cmp"
	"net/http"
)

// tasksPerPage is how many tasks a list has that a reader searched for.
const tasksPerPage = 50

// narrow adds the tasks that a request searches for, or the form alone if it asks for none.
func (s *splitTasks) narrow(r *http.Request) {
	s.Found, s.Search = narrow(r, s.rows, tasksPerPage, taskOrder(string(s.Kind), s.Before != nil))
	if s.Search != nil && s.Search.Clear == "" {
		s.Found = nil // the hardest and the easiest are shown
		s.Search.Next = ""
	}
}

// taskOrder says how the tasks of a split can be searched, filtered and sorted.
func taskOrder(kind string, changed bool) ordering[taskRow] {
	o := ordering[taskRow]{
		Prefix: kind + "_", Anchor: "#split-" + kind,
		Text: func(t taskRow) string { return t.TaskID },
		Filters: []filter[taskRow]{
			{Text: "all"},
			{"never", "never passed", func(t taskRow) bool { return t.Passed == 0 }},
			{"sometimes", "passed at times", func(t taskRow) bool { return t.Passed > 0 && t.Passed < t.Graded }},
			{"always", "always passed", func(t taskRow) bool { return t.Passed == t.Graded }},
			{"failed", "whose agent failed", func(t taskRow) bool { return t.Failed > 0 }},
		},
		Sorts: []sorting[taskRow]{
			{Text: "hardest and easiest"},
			{"hard", "hardest first", func(a, b taskRow) int { return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Mean, b.Mean)) }},
			{"easy", "easiest first", func(a, b taskRow) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Mean, a.Mean)) }},
			{"name", "name", func(a, b taskRow) int { return cmp.Compare(a.TaskID, b.TaskID) }},
			{"failed", "failed attempts, most first", func(a, b taskRow) int { return cmp.Compare(b.Failed, a.Failed) }},
		},
	}
	if changed {
		o.Sorts = append(o.Sorts,
			sorting[taskRow]{"worse", "change, worst first", func(a, b taskRow) int { return compareKnown(a.Change, b.Change, 1) }},
			sorting[taskRow]{"better", "change, best first", func(a, b taskRow) int { return compareKnown(a.Change, b.Change, -1) }},
		)
	}
	return o
}
