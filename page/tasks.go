package page

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// maxQuarantines is how many quarantines are read at most, the newest ones.
	maxQuarantines = 10_000
	// tasksShown is how many tasks of a split are shown of the hardest ones, and how many
	// of the easiest.
	tasksShown = 20
	// resultsEvery is how long the results of a run that goes on are used: to count them
	// reads all its attempts.
	resultsEvery = 30 * time.Second
)

// tasksBody is the page of a run's tasks.
type tasksBody struct {
	Success          float64 // the least reward of a passed attempt
	Splits           []splitTasks
	Quarantines      []quarantineRow
	QuarantineSearch *listing.Form
	Earlier          bool // there are quarantines that were not read
	Counting         bool // the results are not known yet
}

// splitTasks are the tasks of one kind of rollout: those of one evaluated version, or of
// all steps of the training.
type splitTasks struct {
	Kind         record.Kind
	Scope        string // which attempts it counts, in words
	Tried, Known int    // tasks
	Attempts     int
	Passed       float64 // share of the graded attempts
	Mean         float64
	// Before sums up the first evaluation on the split, if Scope is a later one, and Changed
	// is the page that compares the two task by task.
	Before            *splitTasks
	Changed           string
	rows              []taskRow // all of them, the hardest first
	Search            *listing.Form
	Found             []taskRow // that the reader searched for
	Hardest, Easiest  []taskRow
	Always, Never     int // tasks of which all, and none, of the attempts passed
	Histogram         template.HTML
	HistogramSentence string
}

// taskList is a list of tasks with the figures of their split.
type taskList struct {
	splitTasks
	Rows []taskRow
}

// List returns a list of the split's tasks for the template.
func (s splitTasks) List(rows []taskRow) taskList { return taskList{s, rows} }

// taskRow is a task in a list.
type taskRow struct {
	record.TaskResult
	Path string
	// Before is the task in the first evaluation on the split, and Change by how much its
	// mean has changed since; nil if there is no earlier one.
	Before *taskRow
	Change *float64
	Beside string  // the page with both, side by side
	Share  float64 // of passed attempts
	Bar    template.HTML
	Cells  template.HTML // pass rates from step to step
}

// quarantineRow is a task that was set apart.
type quarantineRow struct {
	record.Quarantine
	Path string
}

func (s *Server) tasks(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	step, err := s.lastStep(ctx, run.Name)
	if err != nil {
		return view{}, err
	}
	state := fmt.Sprintf("%s %s %d", run.ExecutionID, run.Status, step)
	if run.Status == record.Running {
		state += fmt.Sprintf(" %d", time.Now().UnixNano()/int64(resultsEvery))
	}
	counted := s.results.Of(ctx, run.Name, state, run.Status == record.Running, s.Patience, func() ([]splitTasks, error) { return s.splitsOf(s.ctx, run) })
	if counted.Err != nil {
		return view{}, counted.Err
	}
	b := tasksBody{Success: specOf(run).Evaluation.SuccessThreshold(), Counting: !counted.Known, Splits: slices.Clone(counted.Value)}
	for i := range b.Splits {
		b.Splits[i].narrow(r)
	}
	quarantines, err := s.Records.LatestQuarantines(ctx, run.Name, model.DefaultPolicy, maxQuarantines)
	if err != nil {
		return view{}, err
	}
	b.Earlier = len(quarantines) == maxQuarantines
	rows := make([]quarantineRow, len(quarantines))
	for i, q := range quarantines {
		rows[i] = quarantineRow{q, fmt.Sprintf("%s/%d", stepPath(run.Name, q.Kind, q.Step), q.Task)}
	}
	b.Quarantines, b.QuarantineSearch = listing.Narrow(r, rows, groupsPerPage, quarantineOrder("quarantine_", "#quarantine"))
	v := runView("tasks", run, "Tasks", link{Text: "Tasks"})
	v.Body = b
	return v, nil
}

// splitsOf sums up the results of a run, and those of the tasks that are shown step by step.
func (s *Server) splitsOf(ctx context.Context, run record.Run) ([]splitTasks, error) {
	sp := specOf(run)
	pass := spec.LeastReaching(sp.Evaluation.SuccessThreshold())
	results, err := s.Records.TaskResults(ctx, run.Name, model.DefaultPolicy, pass, sp.Evaluation.Samples)
	if err != nil {
		return nil, err
	}
	j, err := s.judged(ctx, run)
	if err != nil {
		return nil, err
	}
	var out []splitTasks
	type place struct {
		kind record.Kind
		task string
	}
	rows := map[place]*taskRow{}
	for _, kind := range []record.Kind{record.Train, record.Reserve, record.Gate, record.Test, record.Minibatch, record.Validation} {
		one := splitOf(run, kind, results)
		if one.Scope = "all steps"; evaluates(sp, kind) {
			if one, err = s.evaluatedSplit(ctx, run, sp, one, j.evaluations); err != nil {
				return nil, err
			}
		}
		if one.Tried == 0 {
			continue
		}
		out = append(out, one)
		for _, list := range [][]taskRow{one.Hardest, one.Easiest} {
			for i := range list {
				rows[place{kind, list[i].TaskID}] = &list[i]
			}
		}
	}
	moments, err := s.Records.TaskMoments(ctx, run.Name, model.DefaultPolicy, pass, sp.Evaluation.Samples, func(kind record.Kind, task string) bool { return rows[place{kind, task}] != nil })
	if err != nil {
		return nil, err
	}
	byTask := map[place][]record.TaskMoment{}
	for _, m := range moments {
		byTask[place{m.Kind, m.TaskID}] = append(byTask[place{m.Kind, m.TaskID}], m)
	}
	for at, of := range byTask {
		rows[at].Cells = cells(of)
	}
	return out, nil
}

// evaluatedSplit returns the tasks of the last evaluation on a split, next to those of the
// first one. all sums up every attempt on the split; it stays if no evaluation has ended.
func (s *Server) evaluatedSplit(ctx context.Context, run record.Run, sp spec.Spec, all splitTasks, evaluations []record.Evaluation) (splitTasks, error) {
	evaluations = slices.DeleteFunc(slices.Clone(evaluations), func(e record.Evaluation) bool { return e.Kind != all.Kind })
	all.Scope = "so far"
	if len(evaluations) == 0 {
		return all, nil
	}
	of := func(e record.Evaluation) (splitTasks, error) {
		trials, err := s.Records.TrialsOfStep(ctx, run.Name, all.Kind, e.Version)
		if err != nil {
			return splitTasks{}, err
		}
		for _, b := range blocksOf(run, sp, trials) {
			if b.Policy == e.Policy && !b.Baseline {
				trials = b.trials
			}
		}
		one := splitOf(run, all.Kind, resultsOf(sp, all.Kind, trials))
		one.Scope = fmt.Sprintf("version %d%s", e.Version, ofPolicy(e.Policy))
		return one, nil
	}
	first, last := evaluations[0], evaluations[len(evaluations)-1]
	out, err := of(last)
	if err != nil || len(evaluations) == 1 {
		return out, err
	}
	before, err := of(first)
	if err != nil {
		return out, err
	}
	out.Before, out.Changed = &before, changePath(first, last)
	place := sp.FirstTask(last.Policy, last.Tasks) // ordinals of the last evaluation begin here
	earlier := make(map[string]*taskRow, len(before.rows))
	for i := range before.rows {
		earlier[before.rows[i].TaskID] = &before.rows[i]
	}
	for _, list := range [][]taskRow{out.rows, out.Hardest, out.Easiest} {
		for i := range list {
			if b := earlier[list[i].TaskID]; b != nil {
				change := list[i].Mean - b.Mean
				list[i].Before, list[i].Change = b, &change
				list[i].Beside = besidePath(run.Name, referenceOf(first), referenceOf(last), all.Kind, list[i].Task-place)
			}
		}
	}
	return out, nil
}

// resultsOf sums up the attempts of one evaluation by task, as Records.TaskResults does for
// all of a run.
func resultsOf(sp spec.Spec, kind record.Kind, trials []record.Trial) []record.TaskResult {
	var out []record.TaskResult
	for _, t := range lastAttempts(trials) {
		if t.Sample >= greedyFrom(sp, kind) || t.Outcome != record.OutcomeCompleted && t.Outcome != record.AgentFailed {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Task != t.Task {
			out = append(out, record.TaskResult{Kind: kind, TaskID: t.TaskID, Step: t.Step, Task: t.Task})
		}
		r := &out[len(out)-1]
		r.Attempts++
		if t.Outcome == record.AgentFailed {
			r.Failed++
		}
		if t.Reward == nil {
			continue
		}
		r.Graded++
		r.Mean += (*t.Reward - r.Mean) / float64(r.Graded)
		if spec.Reaches(*t.Reward, sp.Evaluation.SuccessThreshold()) {
			r.Passed++
		}
	}
	return out
}

// maxCells is how many cells are drawn for a task. With more steps, each cell is several
// steps.
const maxCells = 16

// cells draws how a task came out step by step, the fuller the more attempts passed.
func cells(moments []record.TaskMoment) template.HTML {
	const width, height, shades = 112.0, 12.0, 4
	size := (len(moments) + maxCells - 1) / maxCells
	first, last := moments[0], moments[len(moments)-1]
	unit := "step"
	switch first.Kind {
	case record.Gate, record.Test:
		unit = "version"
	case record.Minibatch, record.Validation:
		unit = "evaluation"
	}
	said := func(m record.TaskMoment) string {
		return fmt.Sprintf("%s %d: %d of %d", unit, m.Step, m.Passed, m.Graded)
	}
	text := said(first)
	if last.Step != first.Step {
		text += ", " + said(last)
	}
	var paths [shades + 1]strings.Builder
	for i := 0; i < len(moments); i += size {
		graded, passed := 0, 0
		for _, m := range moments[i:min(i+size, len(moments))] {
			graded, passed = graded+m.Graded, passed+m.Passed
		}
		x := float64(i/size) * width / maxCells
		fmt.Fprintf(&paths[int(math.Round(shades*float64(passed)/float64(graded)))], "M%.0f 0h6v%.0fh-6z", x, height)
	}
	d := figure.Drawing{}
	d.Add(`<svg class="cells" viewBox="0 0 %g %g" role="img" aria-label="%s"><title>%s</title>`, width, height, text, text)
	for shade := range paths {
		if paths[shade].Len() > 0 {
			d.Add(`<path class="share%d" d="%s"/>`, shade, paths[shade].String())
		}
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // it has numbers alone
}

// splitOf sums up the results of one kind of rollout.
func splitOf(run record.Run, kind record.Kind, results []record.TaskResult) splitTasks {
	out := splitTasks{Kind: kind, Known: run.Splits[kind].Count}
	var rows []taskRow
	graded, passed, sum := 0, 0, 0.0
	counts := make([]int, 11)
	for _, r := range results {
		if r.Kind != kind {
			continue
		}
		out.Tried++
		out.Attempts += r.Attempts
		if r.Graded == 0 {
			continue
		}
		graded, passed, sum = graded+r.Graded, passed+r.Passed, sum+r.Mean*float64(r.Graded)
		share := float64(r.Passed) / float64(r.Graded)
		counts[int(share*10)]++
		switch r.Passed {
		case 0:
			out.Never++
		case r.Graded:
			out.Always++
		}
		rows = append(rows, taskRow{TaskResult: r, Path: fmt.Sprintf("%s/%d", stepPath(run.Name, kind, r.Step), r.Task), Share: share, Bar: tally{Share: share}.Bar()})
	}
	if graded > 0 {
		out.Passed, out.Mean = float64(passed)/float64(graded), sum/float64(graded)
	}
	slices.SortStableFunc(rows, func(a, b taskRow) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Mean, b.Mean), cmp.Compare(b.Attempts, a.Attempts))
	})
	out.rows = rows
	out.Hardest = slices.Clone(rows[:min(len(rows), tasksShown)])
	easiest := slices.Clone(rows[max(len(out.Hardest), len(rows)-tasksShown):])
	slices.Reverse(easiest)
	out.Easiest = easiest
	out.Histogram = histogram(counts)
	out.HistogramSentence = fmt.Sprintf("Of %s, %d never passed and %d always.", readable.Count(len(rows), "task"), out.Never, out.Always)
	return out
}

// histogram draws how many tasks have which pass rate, from none to all, by tenths.
func histogram(counts []int) template.HTML {
	const height, width = 56.0, 22.0
	most := slices.Max(counts)
	d := figure.Drawing{}
	d.Add(`<svg class="histogram" viewBox="0 0 %g %g" aria-hidden="true">`, width*float64(len(counts)), height+14)
	for i, n := range counts {
		x := float64(i) * width
		if h := height * float64(n) / float64(max(1, most)); n > 0 {
			d.Add(`<rect x="%.0f" y="%.1f" width="%.0f" height="%.1f"><title>%s passed in %d %% of the attempts or more</title></rect>`, x+2, height-max(h, 1), width-4, max(h, 1), readable.Count(n, "task"), 10*i)
		}
		if i%5 == 0 {
			anchor := [...]string{"start", "middle", "end"}[i/5]
			d.Text(x+2+float64(i/5)*(width-4)/2, height+12, anchor, fmt.Sprintf("%d %%", i*10))
		}
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // it has numbers alone
}

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
	of := func(kind record.Kind) func(quarantineRow) bool {
		return func(q quarantineRow) bool { return q.Kind == kind }
	}
	return listing.Order[quarantineRow]{
		Prefix: prefix, Anchor: anchor,
		Text: func(q quarantineRow) string {
			return fmt.Sprintf("step %d %s %d task %d of the split: %s", q.Step, q.Kind, q.Task, q.Index, q.Reason)
		},
		Filters: []listing.Filter[quarantineRow]{
			{Text: "all"},
			{Name: string(record.Train), Text: "of the steps", Keep: of(record.Train)},
			{Name: string(record.Reserve), Text: "of the reserve", Keep: of(record.Reserve)},
		},
		Sorts: []listing.Sort[quarantineRow]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b quarantineRow) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task)) }},
			{Name: "task", Text: "task of the split", Compare: func(a, b quarantineRow) int { return cmp.Compare(a.Index, b.Index) }},
			{Name: "reason", Text: "reason", Compare: func(a, b quarantineRow) int { return cmp.Compare(a.Reason, b.Reason) }},
		},
	}
}
