package page

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/trace"
)

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
	split := trace.Kind(q.Get("split"))
	place, err := strconv.Atoi(q.Get("task"))
	if err != nil || place < 0 {
		return view{}, fmt.Errorf("%w: task %q is not the position of a task", trace.ErrNotFound, q.Get("task"))
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
func (s *Server) sideOf(ctx context.Context, reference string, split trace.Kind, place int, class string) (besideSide, error) {
	out := besideSide{Name: reference}
	e, err := evaluation.Find(ctx, s.Records, reference, split)
	if err != nil {
		return out, err
	}
	out.Name = fmt.Sprintf("%s@%d", e.Run, e.Version)
	if out.run, err = s.Records.Run(ctx, e.Run); err != nil {
		return out, err
	}
	at := trace.RolloutID{Run: e.Run, Kind: e.Kind, Step: e.Version, Task: place}
	out.Path = groupPath(at)
	trials, err := s.Records.TrialsOfGroup(ctx, at.Run, at.Kind, at.Step, at.Task)
	if err != nil {
		return out, err
	}
	if len(trials) == 0 {
		return out, fmt.Errorf("%w: %s has no attempt at task %d of %s", trace.ErrNotFound, out.Name, place, split)
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
