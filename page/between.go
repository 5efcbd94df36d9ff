package page

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// mostBetween are the settings, keys and metrics that are listed of each.
const mostBetween = 60

// between is what happened from one version to the other.
type between struct {
	Sentence string
	// First and Last are the pages of the first and the last step, where both versions are of
	// one run.
	First, Last link
	Settings    []string // that a person changed
	Keys        []keyRow // of the specs, where the versions are of two runs
	MoreKeys    int
	Runs        string // the page that compares their runs
	Metrics     []metricChange
}

// metricChange is a metric of the steps that made two versions.
type metricChange struct {
	Name       string
	A, B       float64
	Difference *float64
}

// between fills in what lies between two versions. What is not on record is left out.
func (s *Server) between(ctx context.Context, b *pairBody) error {
	a, okA := versionOf(b.A)
	z, okB := versionOf(b.B)
	if !okA || !okB {
		return nil
	}
	var runs []record.Run
	for _, id := range []model.VersionID{a, z} {
		run, err := s.Records.Run(ctx, id.Run)
		if errors.Is(err, trace.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	if a.Run == z.Run {
		if err := s.steppedBetween(ctx, &b.Between, a.Run, a.Number, z.Number); err != nil {
			return err
		}
	} else {
		var c compareBody
		c.specs(runs)
		b.Between.Sentence = fmt.Sprintf("The versions are of two runs, of whose specs %d keys differ.", len(c.Keys)+c.More)
		b.Between.Keys, b.Between.MoreKeys = c.Keys[:min(len(c.Keys), mostBetween)], c.More+max(0, len(c.Keys)-mostBetween)
		b.Between.Runs = comparePath(a.Run, z.Run)
	}
	return s.metricsBetween(ctx, &b.Between, runs, a.Number, z.Number)
}

// steppedBetween says which steps of a run lie between two of its versions, and what a
// person changed meanwhile.
func (s *Server) steppedBetween(ctx context.Context, b *between, run string, a, z int) error {
	low, high, later := a, z, "B"
	if a > z {
		low, high, later = z, a, "A"
	}
	switch high - low {
	case 0:
		b.Sentence = "Both are the same version."
		return nil
	case 1:
		b.Sentence = fmt.Sprintf("%s was made of the other by one step.", later)
	default:
		b.Sentence = fmt.Sprintf("%s is %d steps further than the other.", later, high-low)
	}
	b.First = link{Text: fmt.Sprintf("step %d", low+1), Path: stepPath(run, trace.Train, low+1)}
	if high > low+1 {
		b.Last = link{Text: fmt.Sprintf("step %d", high), Path: stepPath(run, trace.Train, high)}
	}
	acted, err := s.Records.Actions(ctx, run, curves.MostMarks)
	if err != nil {
		return err
	}
	for _, m := range curves.Settings(acted) {
		if int(m.X) > low && int(m.X) <= high && len(b.Settings) < mostBetween {
			b.Settings = append(b.Settings, m.Text)
		}
	}
	slices.Reverse(b.Settings) // the first one first
	return nil
}

// metricsBetween lays the metrics of the steps beside each other that made the versions.
func (s *Server) metricsBetween(ctx context.Context, b *between, runs []record.Run, a, z int) error {
	var metrics [2]map[string]float64
	for i, number := range []int{a, z} {
		steps, err := s.history(ctx, runs[i])
		if err != nil {
			return err
		}
		at, ok := slices.BinarySearchFunc(steps, number, func(one record.Step, step int) int { return one.Step - step })
		if !ok {
			return nil // version 0, or one of a step that is not finished
		}
		metrics[i] = steps[at].Metrics
	}
	for _, name := range slices.Sorted(maps.Keys(metrics[0])) {
		after, ok := metrics[1][name]
		if before := metrics[0][name]; ok && len(b.Metrics) < mostBetween {
			d := after - before
			b.Metrics = append(b.Metrics, metricChange{format.FirstLine(name), before, after, &d})
		}
	}
	return nil
}
