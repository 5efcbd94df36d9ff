package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
)

const (
	// maxChanged is how many tasks are listed of those that became worse, and of those
	// that became better.
	maxChanged = 50
	// maxAnswered is for how many tasks of each list the answers are shown. maxOfAnswer
	// is the maximum size of a shown answer, in bytes.
	maxAnswered = 10
	maxOfAnswer = 600
)

// pairBody compares two evaluations task by task.
type pairBody struct {
	here          string // the run under whose address it is
	A, B          string // references as they were given
	Split         record.Kind
	Splits        []record.Kind
	Problem       string // why there is no comparison
	Result        *evaluation.Comparison
	Sentence      string
	Worse, Better changes
	Between       between
	Texts         []textPair // of two versions of prompts
}

// changes are tasks on which one of the versions earns more.
type changes struct {
	Title, Name string
	Tasks       []pairTask
	More        int // tasks that are not shown
}

// Unread returns the number of listed tasks whose answers are not shown.
func (c changes) Unread() int {
	n := 0
	for _, t := range c.Tasks {
		if !t.Said {
			n++
		}
	}
	return n
}

// pairTask is a task on both sides.
type pairTask struct {
	evaluation.TaskChange
	Before, After string // the groups
	Beside        string // the page with both, side by side
	Question      string
	Said          bool // what the two answered is shown
	SaidA, SaidB  format.Clipped
}

// Way returns the class of the change: "down" if B is worse, else "up".
func (t pairTask) Way() string {
	if t.Difference < 0 {
		return "down"
	}
	return "up"
}

// nameTwo says what a comparison needs.
const nameTwo = "Name two versions: their numbers, or RUN@NUMBER for one of another run."

// pair compares two versions, of this run or of others, as `fulgurite compare` does.
func (s *Server) pair(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	q := r.URL.Query()
	a, b := q.Get("a"), q.Get("b")
	ticked := slices.Compact(slices.Clone(q["v"]))
	if len(ticked) == 2 { // the list has the newer one first
		a, b = ticked[1], ticked[0]
	}
	body := pairBody{here: run.Name, A: reference(run, a), B: reference(run, b), Split: record.Kind(q.Get("split")), Splits: []record.Kind{record.Gate, record.Test, record.Train}}
	v := runView("pair", run, "Versions", link{Text: "Versions", Path: runPath(run.Name) + "/versions"}, link{Text: "Comparison"})
	v.Follow = ""
	switch {
	case a == "" || b == "":
		body.A, body.B = a, b
		body.Problem = nameTwo
		if len(q["v"]) > 0 {
			body.Problem = fmt.Sprintf("%s: tick two, or name them here.", readable.Are(len(ticked), "version", "ticked"))
		}
	default:
		if searches(run) {
			if body.Texts, err = s.pairTexts(ctx, body.A, body.B); err != nil {
				return view{}, err
			}
		} else if err := s.between(ctx, &body); err != nil {
			return view{}, err
		}
		body.Between.Keys, body.Between.KeySearch = narrowKeys(r, body.Between.Keys)
		body.Between.Metrics, body.Between.MetricSearch = listing.Narrow(r, body.Between.Metrics, maxMetrics, metricOrder())
		if err := s.compare(ctx, &body); err != nil {
			if !expected(err) {
				return view{}, err
			}
			body.Problem = format.Shown(err.Error())
		}
	}
	v.Body = body
	return v, nil
}

// metricOrder says how the metrics of two steps can be searched and sorted.
func metricOrder() listing.Order[metricChange] {
	return listing.Order[metricChange]{
		Prefix: "metric_", Anchor: "#metrics", Text: func(m metricChange) string { return m.Name },
		Sorts: []listing.Sort[metricChange]{
			{Text: "name"},
			{Name: "rose", Text: "B − A, largest first", Compare: func(a, b metricChange) int { return compareKnown(a.Difference, b.Difference, -1) }},
			{Name: "fell", Text: "B − A, smallest first", Compare: func(a, b metricChange) int { return compareKnown(a.Difference, b.Difference, 1) }},
		},
	}
}

// expected reports whether an error means that the records for a comparison don't exist
// or don't fit together.
func expected(err error) bool {
	for _, one := range []error{evaluation.ErrIncomparable, evaluation.ErrIncomplete, evaluation.ErrNoEvaluation, record.ErrNotFound} {
		if errors.Is(err, one) {
			return true
		}
	}
	return strings.Contains(err.Error(), "means several evaluations")
}

// reference returns a reference to a version in the form that `fulgurite compare` takes.
// A number alone is a version of this run.
func reference(run record.Run, text string) string {
	text = strings.TrimSpace(text)
	if _, err := strconv.Atoi(text); err == nil {
		return run.Name + "@" + text
	}
	return format.FirstLine(text)
}

// sets reads both evaluations. Without a split it takes the first that both versions were
// evaluated on.
func (s *Server) sets(ctx context.Context, b *pairBody) (sets [2]evaluation.Set, err error) {
	splits := []record.Kind{b.Split}
	if b.Split == "" {
		splits = []record.Kind{record.Gate, record.Test, ""}
	}
	for _, split := range splits {
		var found [2]record.Evaluation
		for i, reference := range []string{b.A, b.B} {
			if found[i], err = evaluation.Find(ctx, s.Records, reference, split); err != nil {
				break
			}
		}
		if err != nil {
			continue
		}
		for i := range found {
			if sets[i], err = evaluation.Load(ctx, s.Records, s.Blobs, found[i], false); err != nil {
				return sets, err
			}
		}
		return sets, nil
	}
	return sets, err
}

func (s *Server) compare(ctx context.Context, b *pairBody) error {
	sets, err := s.sets(ctx, b)
	if err != nil {
		return err
	}
	c, err := evaluation.Compare(sets[0], sets[1], "")
	if err != nil {
		return err
	}
	b.Result, b.Split = &c, c.A.Split
	b.Sentence = sentence(c, "A", "B")
	for i, text := range c.Remarks {
		c.Remarks[i] = format.Reason(text)
	}
	places := map[string]int{}
	for i, t := range sets[0].Tasks {
		places[t.ID] = i
	}
	b.Worse, b.Better = changes{Title: "Tasks on which B is worse", Name: "worse"}, changes{Title: "Tasks on which B is better", Name: "better"}
	for _, t := range c.ByTask { // those that changed most come first
		list := &b.Better
		switch {
		case t.Difference == 0:
			continue
		case t.Difference < 0:
			list = &b.Worse
		}
		if len(list.Tasks) == maxChanged {
			list.More++
			continue
		}
		place := places[t.ID]
		at := func(set evaluation.Set) record.RolloutID {
			return record.RolloutID{Run: set.Run, Kind: set.Kind, Step: set.Version, Task: set.Spec.FirstTask(set.Policy, set.Evaluation.Tasks) + place}
		}
		one := pairTask{TaskChange: t, Before: groupPath(at(sets[0])), After: groupPath(at(sets[1])), Beside: besidePath(b.here, b.A, b.B, b.Split, place), Question: format.FirstLine(sets[0].Tasks[place].Input)}
		one.ID = format.FirstLine(t.ID)
		if one.Said = len(list.Tasks) < maxAnswered; one.Said {
			if one.SaidA, err = s.answer(ctx, at(sets[0])); err != nil {
				return err
			}
			if one.SaidB, err = s.answer(ctx, at(sets[1])); err != nil {
				return err
			}
		}
		list.Tasks = append(list.Tasks, one)
	}
	return nil
}

// answer returns the result of the newest attempt at a rollout, or a text that says why
// there is none.
func (s *Server) answer(ctx context.Context, id record.RolloutID) (format.Clipped, error) {
	trials, err := s.Records.TrialsOfGroup(ctx, id.Run, id.Kind, id.Step, id.Task)
	if err != nil {
		return format.Clipped{}, err
	}
	address := record.Address{RolloutID: id}
	for _, t := range trials {
		if t.Sample == id.Sample {
			address.Attempt = max(address.Attempt, t.Attempt)
		}
	}
	attempt, err := s.Records.Attempt(ctx, address)
	if errors.Is(err, record.ErrNotFound) {
		return format.Clipped{Text: "(not on record)"}, nil
	}
	if err != nil {
		return format.Clipped{}, err
	}
	text := attempt.Result
	if text == "" {
		text = "(nothing)"
		if attempt.Outcome == record.AgentFailed {
			text = "(failed: " + strings.TrimSpace(attempt.Failure) + ")"
		}
	}
	return format.Clip(text, maxOfAnswer), nil
}

// sentence describes the result of a comparison, under the names of its sides.
func sentence(c evaluation.Comparison, a, b string) string {
	verdict := "The difference may be chance"
	if c.PValue < 1-c.Level {
		verdict = a + " is better"
		if c.Difference.Mean > 0 {
			verdict = b + " is better"
		}
	}
	return fmt.Sprintf("%s: %s is better on %d of %s, worse on %d, equal on %d.", verdict, b, c.Wins, readable.Count(c.Tasks, "task"), c.Losses, c.Ties)
}

// versionOf reads a reference to a version by its number.
func versionOf(reference string) (model.VersionID, bool) {
	run, number, ok := strings.Cut(reference, "@")
	n, err := strconv.Atoi(number)
	return model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: n}, ok && err == nil && n >= 0
}

// maxBeside is how many samples of each version are shown next to each other.
const maxBeside = 8

// besideBody is the page of a task under two versions, with the conversations of both.
type besideBody struct {
	Name    string
	Sides   []besideSide
	Problem string // why there is nothing to show
	Input   format.Clipped
	Answer  format.Clipped
	// Samples are those of both versions: the first of A, the first of B, the second of A and
	// so on, because a reader compares those that stand beside each other.
	Samples []sampleCard
	// Shared are the messages with which all of them begin.
	Shared     []messageBlock
	SharedMore int
	Pair       string // the comparison of the two versions
}

// besideSide is the task under one of the versions.
type besideSide struct {
	cards
	Name string // the version, as RUN@NUMBER
	Path string // its group
	Left int    // samples that are not shown here
	run  record.Run
}

// taskBeside shows what training changed for a task: its samples of two versions.
func (s *Server) taskBeside(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	q := r.URL.Query()
	split := record.Kind(q.Get("split"))
	place, err := strconv.Atoi(q.Get("task"))
	if err != nil || place < 0 {
		return view{}, fmt.Errorf("%w: task %q is not the position of a task", record.ErrNotFound, q.Get("task"))
	}
	references := []string{reference(run, q.Get("a")), reference(run, q.Get("b"))}
	b := besideBody{Name: taskName("", place), Pair: betweenPath(run.Name, references[0], references[1], split)}
	if references[0] == "" || references[1] == "" {
		b.Problem, references = nameTwo, nil
	}
	for i, reference := range references {
		side, err := s.sideOf(ctx, reference, split, place, [...]string{"one", "other"}[i])
		if err != nil && !expected(err) {
			return view{}, err
		}
		if err != nil {
			b.Problem = format.Shown(err.Error())
			break
		}
		b.Sides = append(b.Sides, side)
	}
	if b.Problem == "" {
		if err := s.putBeside(ctx, &b); err != nil {
			return view{}, err
		}
	}
	v := runView("beside", run, "Versions", link{Text: "Versions", Path: runPath(run.Name) + "/versions"}, link{Text: "Comparison", Path: b.Pair}, link{Text: b.Name})
	v.Follow = ""
	v.Body = b
	return v, nil
}

// sideOf reads the samples of a task in the evaluation that a reference names.
// class is that of its column.
func (s *Server) sideOf(ctx context.Context, reference string, split record.Kind, place int, class string) (besideSide, error) {
	out := besideSide{Name: reference}
	e, err := evaluation.Find(ctx, s.Records, reference, split)
	if err != nil {
		return out, err
	}
	out.Name = referenceOf(e)
	if out.run, err = s.Records.Run(ctx, e.Run); err != nil {
		return out, err
	}
	at := record.RolloutID{Run: e.Run, Kind: e.Kind, Step: e.Version, Task: specOf(out.run).FirstTask(e.Policy, e.Tasks) + place}
	out.Path = groupPath(at)
	trials, err := s.Records.TrialsOfGroup(ctx, at.Run, at.Kind, at.Step, at.Task)
	if err != nil {
		return out, err
	}
	if len(trials) == 0 {
		return out, fmt.Errorf("%w: %s has no attempt at task %d of %s", record.ErrNotFound, out.Name, place, split)
	}
	if out.cards, err = s.cardsOf(ctx, out.run, trials, nil); err != nil {
		return out, err
	}
	if out.Left = len(out.Samples) - maxBeside; out.Left > 0 {
		out.Samples = out.Samples[:maxBeside]
	}
	out.Left = max(0, out.Left) + out.Hidden
	for i := range out.Samples {
		out.Samples[i].Of, out.Samples[i].Side = out.Name, class
	}
	return out, nil
}

// putBeside arranges the samples of both sides, and adds their dialogs and the task.
func (s *Server) putBeside(ctx context.Context, b *besideBody) error {
	one, other := b.Sides[0], b.Sides[1]
	if one.TaskID != other.TaskID {
		b.Problem = format.Shown(fmt.Sprintf("Task %d of %s is %s, and of %s it is %s.", one.Samples[0].Task, one.Name, one.TaskID, other.Name, other.TaskID))
		return nil
	}
	b.Name = taskName(one.TaskID, one.Samples[0].Task)
	for _, side := range b.Sides {
		task, known := s.task(ctx, side.run, side.Samples[0].Kind, side.TaskID)
		side.judge(specOf(side.run), task)
		if known {
			b.Input, b.Answer = format.Clip(task.Input, format.MaxOfMessage), format.Clip(task.Answer, format.MaxOfResult)
		}
	}
	for i := range max(len(one.Samples), len(other.Samples)) {
		for _, side := range b.Sides {
			if i < len(side.Samples) {
				b.Samples = append(b.Samples, side.Samples[i])
			}
		}
	}
	var err error
	b.Shared, b.SharedMore, err = s.compared(ctx, b.Samples)
	return err
}

// betterRun says which of two runs is better and how certain that is: the paired comparison
// of the versions that were evaluated last on a split of both.
type betterRun struct {
	A, B   string // versions, as RUN@NUMBER
	Split  record.Kind
	Text   string // the answer, or why there is none
	Result *evaluation.Comparison
	Path   string // the comparison task by task; empty if there is none
}

// better compares each run with the first one.
func (s *Server) better(ctx context.Context, runs []record.Run) ([]betterRun, error) {
	var out []betterRun
	for _, run := range runs[min(1, len(runs)):] {
		one, err := s.betterOf(ctx, runs[0], run)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (s *Server) betterOf(ctx context.Context, a, b record.Run) (betterRun, error) {
	out := betterRun{A: a.Name, B: b.Name}
	for _, split := range []record.Kind{record.Test, record.Gate, record.Train} {
		lastA, err := s.lastEvaluated(ctx, a, split)
		if err != nil {
			return out, err
		}
		lastB, err := s.lastEvaluated(ctx, b, split)
		if err != nil {
			return out, err
		}
		if lastA == nil || lastB == nil {
			continue
		}
		out.A, out.B, out.Split = referenceOf(*lastA), referenceOf(*lastB), split
		body := pairBody{A: out.A, B: out.B, Split: split}
		sets, err := s.sets(ctx, &body)
		if err == nil {
			var c evaluation.Comparison
			if c, err = evaluation.Compare(sets[0], sets[1], ""); err == nil {
				out.Result, out.Text = &c, sentence(c, out.A, out.B)
				out.Path = betweenPath(a.Name, out.A, out.B, split)
				return out, nil
			}
		}
		if !expected(err) {
			return out, err
		}
		out.Text = format.Shown(err.Error())
	}
	if out.Text == "" {
		out.Text = "No split was evaluated in both runs, so nothing says which is better."
	}
	return out, nil
}

// lastEvaluated returns the evaluation of a run's newest version that was evaluated on a
// split, or nil if there is none. Of a run that promotes policies alone only that on the test
// split is of what is promoted: on others, the newest may be of one that was refused.
func (s *Server) lastEvaluated(ctx context.Context, run record.Run, split record.Kind) (*record.Evaluation, error) {
	j, err := s.judged(ctx, run)
	if err != nil {
		return nil, err
	}
	if specOf(run).Promotion.Alone && split != record.Test {
		return nil, nil
	}
	for _, e := range slices.Backward(j.evaluations) {
		if e.Kind == split {
			return &e, nil
		}
	}
	return nil, nil
}

// otherTasks returns the splits whose tasks differ between runs, so that their curves on
// these splits are not about the same thing.
func otherTasks(runs []record.Run) []record.Kind {
	var out []record.Kind
	for _, split := range []record.Kind{record.Train, record.Gate, record.Test} {
		digests := map[string]bool{}
		for _, run := range runs {
			if digest := run.Splits[split].Digest; digest != "" {
				digests[digest] = true
			}
		}
		if len(digests) > 1 {
			out = append(out, split)
		}
	}
	return out
}
