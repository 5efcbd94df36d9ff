package page

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/trace"
)

// tasksPerPage is how many tasks a list has that a reader searched for.
const tasksPerPage = 50

// narrow adds the tasks that a request searches for, or the form alone if it asks for none.
func (s *splitTasks) narrow(r *http.Request) {
	s.Found, s.Search = listing.Narrow(r, s.rows, tasksPerPage, taskOrder(string(s.Kind), s.Before != nil))
	if s.Search != nil && s.Search.Clear == "" {
		s.Found = nil // the hardest and the easiest are shown
		s.Search.Next = ""
	}
}

// taskOrder says how the tasks of a split can be searched, filtered and sorted.
func taskOrder(kind string, changed bool) listing.Order[taskRow] {
	o := listing.Order[taskRow]{
		Prefix: kind + "_", Anchor: "#split-" + kind,
		Text: func(t taskRow) string { return t.TaskID },
		Filters: []listing.Filter[taskRow]{
			{Text: "all"},
			{Name: "never", Text: "never passed", Keep: func(t taskRow) bool { return t.Passed == 0 }},
			{Name: "sometimes", Text: "passed at times", Keep: func(t taskRow) bool { return t.Passed > 0 && t.Passed < t.Graded }},
			{Name: "always", Text: "always passed", Keep: func(t taskRow) bool { return t.Passed == t.Graded }},
			{Name: "failed", Text: "whose agent failed", Keep: func(t taskRow) bool { return t.Failed > 0 }},
		},
		Sorts: []listing.Sort[taskRow]{
			{Text: "hardest and easiest"},
			{Name: "hard", Text: "hardest first", Compare: func(a, b taskRow) int { return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Mean, b.Mean)) }},
			{Name: "easy", Text: "easiest first", Compare: func(a, b taskRow) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Mean, a.Mean)) }},
			{Name: "name", Text: "name", Compare: func(a, b taskRow) int { return cmp.Compare(a.TaskID, b.TaskID) }},
			{Name: "failed", Text: "failed attempts, most first", Compare: func(a, b taskRow) int { return cmp.Compare(b.Failed, a.Failed) }},
		},
	}
	if changed {
		o.Sorts = append(o.Sorts,
			listing.Sort[taskRow]{Name: "worse", Text: "change, worst first", Compare: func(a, b taskRow) int { return compareKnown(a.Change, b.Change, 1) }},
			listing.Sort[taskRow]{Name: "better", Text: "change, best first", Compare: func(a, b taskRow) int { return compareKnown(a.Change, b.Change, -1) }},
		)
	}
	return o
}

// quarantineOrder says how quarantines can be searched, filtered and sorted.
func quarantineOrder(prefix, anchor string) listing.Order[quarantineRow] {
	of := func(kind trace.Kind) func(quarantineRow) bool {
		return func(q quarantineRow) bool { return q.Kind == kind }
	}
	return listing.Order[quarantineRow]{
		Prefix: prefix, Anchor: anchor,
		Text: func(q quarantineRow) string {
			return fmt.Sprintf("step %d %s %d task %d of the split: %s", q.Step, q.Kind, q.Task, q.Index, q.Reason)
		},
		Filters: []listing.Filter[quarantineRow]{
			{Text: "all"},
			{Name: string(trace.Train), Text: "of the steps", Keep: of(trace.Train)},
			{Name: string(trace.Reserve), Text: "of the reserve", Keep: of(trace.Reserve)},
		},
		Sorts: []listing.Sort[quarantineRow]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b quarantineRow) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task)) }},
			{Name: "task", Text: "task of the split", Compare: func(a, b quarantineRow) int { return cmp.Compare(a.Index, b.Index) }},
			{Name: "reason", Text: "reason", Compare: func(a, b quarantineRow) int { return cmp.Compare(a.Reason, b.Reason) }},
		},
	}
}
