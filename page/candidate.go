package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/tasks"
)

const (
	// scoredPerPage is how many tasks the page of a candidate lists.
	scoredPerPage = 100
	// maxShownTo is how many attempts are named that a reflector was shown. maxChildren is how
	// many candidates are named that were made of one, and maxRefused how many replies are
	// shown that were refused.
	maxShownTo, maxChildren, maxRefused = 24, 60, 10
)

// candidateBody is the page of a candidate.
type candidateBody struct {
	Making  bool
	Unread  string
	Row     candidateRow
	Against []link // candidates that it can be compared with
	Other   string // what it is compared with, or ""
	Texts   []textPair
	// Compared are the tasks on which the search compared it with its parents. Scored are those
	// of the validation split.
	Compared            []scoredTask
	ComparedOn          string
	Merged              bool // it was compared as a merge of two candidates
	Scored              []scoredTask
	TaskSearch          *listing.Form
	Wins, Losses, Ties  int
	Measured            bool // it has validation scores
	Evaluations         []evaluationLink
	Reflections         []reflectionRow
	Refused             []reflectionRow
	RefusedMore         int
	Children            []link
	ChildrenMore        int
	Decided             time.Time
	Previous, Following string
}

// scoredTask is a task with the scores of a candidate and of the one that it is compared with.
type scoredTask struct {
	Place         int
	Task          string
	Before, After *float64
	// BeforePath and AfterPath lead to the attempts.
	BeforePath, AfterPath string
}

// Difference returns what the candidate earned more, or nil if a score is missing.
func (t scoredTask) Difference() *float64 {
	if t.Before == nil || t.After == nil {
		return nil
	}
	d := *t.After - *t.Before
	return &d
}

// Way is the class of the change.
func (t scoredTask) Way() string {
	switch d := t.Difference(); {
	case d == nil || *d == 0:
		return ""
	case *d > 0:
		return "up"
	}
	return "down"
}

// scoredTable is a list of tasks for the template.
type scoredTable struct {
	Other string
	Tasks []scoredTask
}

// ScoredTable returns the tasks of the validation split.
func (b candidateBody) ScoredTable() scoredTable { return scoredTable{b.Other, b.Scored} }

// ComparedTable returns the tasks that decided. They are always compared with the parents.
func (b candidateBody) ComparedTable() scoredTable {
	other := "Its parent"
	if b.Merged {
		other = "The better parent"
	}
	return scoredTable{other, b.Compared}
}

// evaluationLink leads to the attempts with a candidate that the search asked for.
type evaluationLink struct {
	Text, Path string
	Mean       *float64
}

// reflectionRow is a reply of the reflector.
type reflectionRow struct {
	What    string
	Refusal string // why it was refused, or ""
	Text    format.Clipped
	Model   string
	CutOff  bool
	Input   int // tokens
	Output  int
	At      time.Time
	Shown   []scoredTask // that it was shown
	More    int          // attempts that are not named
	Unread  string       // why the reply is not shown
}

func (s *Server) candidate(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	if !searches(run) {
		return view{}, fmt.Errorf("%w: run %s searches for no prompts", record.ErrNotFound, run.Name)
	}
	answer, err := s.searchOf(ctx, run)
	if err != nil {
		return view{}, err
	}
	name := r.PathValue("candidate")
	v := runView("candidate", run, "Prompts", link{Text: "Prompts", Path: promptsPath(run.Name)}, link{Text: "Candidate " + format.FirstLine(name)})
	found := answer.Value
	if found == nil {
		b := candidateBody{Making: answer.Making}
		if answer.Err != nil {
			b.Unread = format.FirstLine(answer.Err.Error())
		}
		v.Body = b
		return v, nil
	}
	c, err := candidateOf(found, name)
	if err != nil {
		return view{}, err
	}
	b, err := s.candidateBody(ctx, r, found, c)
	v.Body = b
	return v, err
}

// candidateOf finds a candidate by its number, or by its id or the beginning of it.
func candidateOf(found *promptsearch.Search, name string) (promptsearch.Candidate, error) {
	if n, err := strconv.Atoi(name); err == nil && strconv.Itoa(n) == name && n >= 0 && n < len(found.Candidates) {
		return found.Candidates[n], nil
	}
	if c, ok := found.Find(name); ok {
		return c, nil
	}
	return promptsearch.Candidate{}, fmt.Errorf("%w: there is no candidate %q", record.ErrNotFound, format.FirstLine(name))
}

func (s *Server) candidateBody(ctx context.Context, r *http.Request, found *promptsearch.Search, c promptsearch.Candidate) (candidateBody, error) {
	rows := candidateRows(found)
	b := candidateBody{Row: rows[c.Number], Decided: c.Decided}
	if c.Number > 0 {
		b.Previous = rows[c.Number-1].Path
	}
	if c.Number+1 < len(rows) {
		b.Following = rows[c.Number+1].Path
	}
	other := b.against(r, found, c)
	if other == nil {
		b.Texts = besideTexts(nil, c.Prompts)
	} else {
		b.Texts = besideTexts(other.Prompts, c.Prompts)
	}
	for _, row := range rows {
		if !slices.Contains(found.Candidates[row.Number].Parents, c.Number) {
			continue
		}
		if len(b.Children) == maxChildren {
			b.ChildrenMore++
			continue
		}
		b.Children = append(b.Children, link{Text: strconv.Itoa(row.Number), Path: row.Path, Here: row.Good})
	}
	b.evaluations(found, c)
	if err := s.addScores(ctx, r, &b, found, c, other); err != nil {
		return b, err
	}
	for _, asked := range found.Reflections(c) {
		row, err := s.reflection(ctx, found, asked)
		if err != nil {
			return b, err
		}
		b.Reflections = append(b.Reflections, row)
	}
	return b, s.refused(ctx, &b, found, c)
}

// against returns the candidate that another is compared with: the one that the request names,
// otherwise its first parent, or nil for the seed.
func (b *candidateBody) against(r *http.Request, found *promptsearch.Search, c promptsearch.Candidate) *promptsearch.Candidate {
	choice := slices.Clone(c.Parents)
	if c.Number > 0 && !slices.Contains(choice, 0) {
		choice = append(choice, 0)
	}
	if leader, ok := found.Best(); ok && leader.Number != c.Number && !slices.Contains(choice, leader.Number) {
		choice = append(choice, leader.Number)
	}
	with := -1
	if asked, err := strconv.Atoi(r.URL.Query().Get("with")); err == nil && asked >= 0 && asked < len(found.Candidates) && asked != c.Number {
		with = asked
	} else if len(c.Parents) > 0 {
		with = c.Parents[0]
	}
	if with >= 0 && !slices.Contains(choice, with) {
		choice = append(choice, with)
	}
	for _, n := range choice {
		text := fmt.Sprintf("candidate %d", n)
		switch {
		case slices.Contains(c.Parents, n):
			text += ", a parent"
		case n == 0:
			text += ", the spec's prompts"
		}
		b.Against = append(b.Against, link{Text: text, Path: withQuery(b.Row.Path, "with", strconv.Itoa(n)), Here: n == with})
	}
	if with < 0 {
		return nil
	}
	b.Other = fmt.Sprintf("candidate %d", with)
	return &found.Candidates[with]
}

// evaluations adds what the search asked for about the candidate.
func (b *candidateBody) evaluations(found *promptsearch.Search, c promptsearch.Candidate) {
	for _, r := range found.Served {
		if r.Kind != search.Evaluate || r.Candidate.ID != c.ID {
			continue
		}
		var scores []*float64
		for _, one := range r.Answer.Results {
			scores = append(scores, one.Score)
		}
		b.Evaluations = append(b.Evaluations, evaluationLink{
			Text: fmt.Sprintf("evaluation %d: %s of %s", r.Number, readable.Count(len(r.Tasks), "task"), r.Split),
			Path: stepPath(found.Run.Name, kindOf(r), r.Number), Mean: meanOfKnown(scores),
		})
	}
}

// kindOf returns the kind of the attempts that a request asked for.
func kindOf(r optimize.Served) record.Kind {
	if r.Split == search.SplitValidation {
		return record.Validation
	}
	return record.Minibatch
}

// addScores adds the scores by task.
func (s *Server) addScores(ctx context.Context, r *http.Request, b *candidateBody, found *promptsearch.Search, c promptsearch.Candidate, other *promptsearch.Candidate) error {
	validation := s.taskNames(ctx, found.Run, record.Validation)
	mine, theirs := attemptPaths(found, c.ID), map[int]string{}
	var before []*float64
	if other != nil {
		theirs, before = attemptPaths(found, other.ID), other.Scores
	}
	var all []scoredTask
	b.Measured = c.Scores != nil
	for task, score := range c.Scores {
		one := scoredTask{Place: task, Task: validation(task), After: score, AfterPath: mine[task]}
		if task < len(before) {
			one.Before, one.BeforePath = before[task], theirs[task]
		}
		switch one.Way() {
		case "up":
			b.Wins++
		case "down":
			b.Losses++
		default:
			if one.Difference() != nil {
				b.Ties++
			}
		}
		all = append(all, one)
	}
	b.Scored, b.TaskSearch = listing.Narrow(r, all, scoredPerPage, scoreOrder())
	b.compared(found, c, validation, s.taskNames(ctx, found.Run, record.Minibatch))
	return nil
}

func scoreOrder() listing.Order[scoredTask] {
	return listing.Order[scoredTask]{
		Anchor: "#scores", Text: func(t scoredTask) string { return t.Task },
		Filters: []listing.Filter[scoredTask]{
			{Text: "all"},
			{Name: "won", Text: "better than the other", Keep: func(t scoredTask) bool { return t.Way() == "up" }},
			{Name: "lost", Text: "worse than the other", Keep: func(t scoredTask) bool { return t.Way() == "down" }},
			{Name: "missing", Text: "without a score", Keep: func(t scoredTask) bool { return t.After == nil }},
		},
		Sorts: []listing.Sort[scoredTask]{
			{Text: "the split"},
			{Name: "lost", Text: "lost most", Compare: func(a, b scoredTask) int { return compareKnown(a.Difference(), b.Difference(), 1) }},
			{Name: "won", Text: "won most", Compare: func(a, b scoredTask) int { return compareKnown(a.Difference(), b.Difference(), -1) }},
			{Name: "score", Text: "score, lowest first", Compare: func(a, b scoredTask) int { return compareKnown(a.After, b.After, 1) }},
		},
	}
}

// attemptPaths returns the pages of a candidate's attempts at the validation tasks.
func attemptPaths(found *promptsearch.Search, id string) map[int]string {
	out := map[int]string{}
	for _, r := range found.Served {
		if r.Kind == search.Evaluate && r.Split == search.SplitValidation && r.Candidate.ID == id {
			for _, one := range r.Answer.Results {
				out[one.Task] = resultPath(found.Run.Name, one)
			}
		}
	}
	return out
}

// resultPath returns the page of the attempt at a task, or of all samples if there are several;
// "" if it has none in this run.
func resultPath(run string, r search.Result) string {
	if len(r.Attempts) == 0 {
		return ""
	}
	a, err := record.ParseAddress(r.Attempts[0].Trace)
	switch {
	case err != nil || a.Run != run:
		return ""
	case a.Attempt == 0: // it never began
		return ""
	case len(r.Attempts) > 1:
		return groupPath(a.RolloutID)
	}
	return attemptPath(a)
}

// compared adds the tasks on which the search compared the candidate with its parents.
func (b *candidateBody) compared(found *promptsearch.Search, c promptsearch.Candidate, validation, train func(int) string) {
	last := comparisons(found)[c.ID]
	if last == nil {
		return
	}
	if b.Merged = last.Merge; b.Merged {
		b.comparedMerge(found, c, last, validation)
		return
	}
	name := train
	b.ComparedOn = search.SplitTrain
	mine, split := resultsOn(found, c.ID, last)
	if split == search.SplitValidation {
		name, b.ComparedOn = validation, split
	}
	var theirs []search.Result
	if len(last.Parents) == 1 {
		theirs, _ = resultsOn(found, last.Parents[0], last)
	}
	for i, task := range last.Tasks[:min(len(last.Tasks), scoredPerPage)] {
		one := scoredTask{Place: task, Task: name(task)}
		if i < len(last.Before) {
			one.Before = last.Before[i]
		}
		if i < len(last.After) {
			one.After = last.After[i]
		}
		if i < len(mine) {
			one.AfterPath = resultPath(found.Run.Name, mine[i])
		}
		if i < len(theirs) {
			one.BeforePath = resultPath(found.Run.Name, theirs[i])
		}
		b.Compared = append(b.Compared, one)
	}
}

// comparedMerge adds the validation tasks on which a merge was compared with the better of its
// parents.
func (b *candidateBody) comparedMerge(found *promptsearch.Search, c promptsearch.Candidate, d *optimize.Decision, validation func(int) string) {
	b.ComparedOn = search.SplitValidation
	mine, _ := resultsOn(found, c.ID, d)
	var parent promptsearch.Candidate
	if i := betterParent(d); i >= 0 && i < len(d.Parents) {
		parent, _ = found.Find(d.Parents[i])
	}
	theirs := attemptPaths(found, parent.ID)
	for i, task := range d.Tasks {
		one := scoredTask{Place: task, Task: validation(task), BeforePath: theirs[task]}
		if task < len(parent.Scores) {
			one.Before = parent.Scores[task]
		}
		if i < len(d.After) {
			one.After = d.After[i]
		}
		if i < len(mine) {
			one.AfterPath = resultPath(found.Run.Name, mine[i])
		}
		b.Compared = append(b.Compared, one)
	}
}

// resultsOn returns the results of a candidate on the tasks of a decision, and their split.
func resultsOn(found *promptsearch.Search, id string, d *optimize.Decision) (results []search.Result, split string) {
	for _, r := range found.Served {
		if r.Number <= d.Request && r.Kind == search.Evaluate && r.Candidate.ID == id && slices.Equal(r.Tasks, d.Tasks) {
			results, split = r.Answer.Results, r.Split
		}
	}
	return results, split
}

// reflection returns a reply of the reflector.
func (s *Server) reflection(ctx context.Context, found *promptsearch.Search, r optimize.Served) (reflectionRow, error) {
	row := reflectionRow{What: askedFor(found, r), Text: format.Clip(r.Answer.Text, format.MaxOfMessage), At: found.Answered(r.ID)}
	if r.Answer.Refusal != "" {
		row.Refusal = refusalText(r.Answer.Refusal)
	}
	reply, err := found.Reply(ctx, s.Records, r.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		row.Unread = "the reply is not on record"
	case err != nil:
		return row, err
	default:
		row.Text, row.Model, row.CutOff = format.Clip(reply.Reply.Text, format.MaxOfMessage), format.FirstLine(reply.Reply.Model), reply.Reply.CutOff
		row.Input, row.Output = reply.Reply.InputTokens, reply.Reply.OutputTokens
	}
	names := s.taskNames(ctx, found.Run, record.Minibatch)
	row.More = max(0, len(r.Shown)-maxShownTo)
	for _, one := range r.Shown[:min(len(r.Shown), maxShownTo)] {
		row.Shown = append(row.Shown, scoredTask{Place: one.Task, Task: names(one.Task), After: one.Score, AfterPath: resultPath(found.Run.Name, one)})
	}
	return row, nil
}

// askedFor says what the reflector was asked for.
func askedFor(found *promptsearch.Search, r optimize.Served) string {
	of := "a candidate"
	if c, ok := found.Find(r.Candidate.ID); ok {
		of = fmt.Sprintf("candidate %d", c.Number)
	}
	name := format.FirstLine(r.Prompt)
	switch r.Kind {
	case search.Critique:
		return fmt.Sprintf("What is wrong with %s of %s", name, of)
	case search.Edit:
		return fmt.Sprintf("A text of %s of %s that follows the critique", name, of)
	case search.Evaluate, search.Reflect:
	}
	return fmt.Sprintf("A better text of %s of %s", name, of)
}

// refused adds the replies about the candidate that were refused, the newest first.
func (s *Server) refused(ctx context.Context, b *candidateBody, found *promptsearch.Search, c promptsearch.Candidate) error {
	for _, d := range slices.Backward(found.Decisions) {
		if d.Verdict != search.Refused || len(d.Parents) == 0 || d.Parents[0] != c.ID || d.Request >= len(found.Served) {
			continue
		}
		if len(b.Refused) == maxRefused {
			b.RefusedMore++
			continue
		}
		row, err := s.reflection(ctx, found, found.Served[d.Request])
		if err != nil {
			return err
		}
		row.Refusal = refusalText(d.Refusal)
		row.Text = format.Clip(row.Text.Text, format.MaxOfResult)
		b.Refused = append(b.Refused, row)
	}
	return nil
}

// taskNames returns a function that gives the names of the tasks of a kind of attempts, by
// their places in the split.
func (s *Server) taskNames(ctx context.Context, run record.Run, kind record.Kind) func(int) string {
	all := s.splitOf(ctx, run, kind)
	return func(i int) string {
		if i < 0 || i >= len(all) {
			return fmt.Sprintf("task %d", i)
		}
		return cmp.Or(format.FirstLine(all[i].ID), fmt.Sprintf("task %d", i))
	}
}

// splitOf returns the tasks of a split in order; nil if they can't be read.
func (s *Server) splitOf(ctx context.Context, run record.Run, kind record.Kind) []tasks.Task {
	split := run.Splits[kind.Split()]
	if split.Digest == "" {
		return nil
	}
	all, err := s.ordered.Of(ctx, split.Digest, func(ctx context.Context) ([]tasks.Task, error) {
		data, err := s.Blobs.Get(ctx, split.Digest)
		if err != nil {
			return nil, err
		}
		return tasks.Decode(data)
	})
	if err != nil {
		return nil
	}
	return all
}
