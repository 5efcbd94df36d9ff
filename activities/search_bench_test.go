package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
)

// answered is a ledger that has the answers of a search in memory.
type answered struct {
	activities.Ledger
	answers []record.SearchAnswer
}

func (a *answered) SearchAnswers(_ context.Context, _ string, from int) ([]record.SearchAnswer, error) {
	return a.answers[min(from, len(a.answers)):], nil
}

// Each iteration of "whole" reads a search of 1,000 candidates, each measured on 50
// validation tasks, as a worker does that has not seen it. An iteration of "next" is the
// step of a worker that has.
func BenchmarkStepSearch(b *testing.B) {
	const candidates, validation = 1000, 50
	w := newTestEnv(b)
	s := optimizing(w)
	s.Tasks.Train, s.Tasks.Validation = "arithmetic:train:40", fmt.Sprintf("arithmetic:test:%d", validation)
	s.Optimizer.Budget.Minibatch, s.Optimizer.Budget.Validation, s.Optimizer.Budget.Reflections = 6*candidates+6, validation*(candidates+2), candidates+2
	w.prepare(s)
	run, err := w.store.Run(b.Context(), "demo")
	require.NoError(b, err)
	whole := s.WithDefaults()
	history, err := optimize.Begin(whole, run.Splits[record.Train].Count, run.Splits[record.Validation].Count)
	require.NoError(b, err)
	ledger := &answered{Ledger: w.store}
	for measured := 0; measured <= candidates; {
		open, done := history.Open()
		require.Nil(b, done)
		for _, r := range open {
			a := answerTo(r)
			if r.Split == search.SplitValidation {
				measured++
			}
			data, err := json.Marshal(a)
			require.NoError(b, err)
			ledger.answers = append(ledger.answers, record.SearchAnswer{Run: "demo", Number: len(ledger.answers), Request: r.ID, Answer: data})
			require.NoError(b, history.Take(a))
		}
	}
	coordinator := func() *activities.Coordinator {
		return &activities.Coordinator{
			Runs: w.store, Ledger: ledger, Attempts: w.store, Blobs: w.blobs, Cluster: cluster(true), Codecs: w.coordinator.Codecs, Directory: w.dir,
		}
	}
	step := func(b *testing.B, c *activities.Coordinator) {
		b.Helper()
		out, err := do[activities.StepSearchResult](b, c.StepSearch, activities.StepSearchInput{Run: "demo"})
		require.NoError(b, err)
		require.Equal(b, candidates+1, out.Progress.Candidates)
	}
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			step(b, coordinator())
		}
		b.ReportMetric(float64(len(ledger.answers)), "answers")
	})
	b.Run("next", func(b *testing.B) {
		b.ReportAllocs()
		warm := coordinator()
		step(b, warm)
		for b.Loop() {
			step(b, warm)
		}
	})
}

// answerTo returns an answer with which every proposal becomes a candidate, and many of them
// are the best on a task.
func answerTo(r optimize.Request) search.Answer {
	a := search.Answer{Request: r.ID}
	if r.Kind != search.Evaluate {
		a.Text = fmt.Sprintf("Compute. This is text %d of a search for a better one.", r.Number)
		return a
	}
	text, _ := r.Candidate.Text("solver")
	n := 0
	_, _ = fmt.Sscanf(text, "Compute. This is text %d", &n) // the first text is 0
	kind := record.Minibatch
	if r.Split == search.SplitValidation {
		kind = record.Validation
	}
	for place, task := range r.Tasks {
		score := float64(n) / 1e6
		if kind == record.Validation {
			score = float64((n+1)*(task+7)*2654435761%1000) / 1001
		}
		address := record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: kind, Step: r.Number, Task: place}, Attempt: 1}
		a.Results = append(a.Results, search.Result{Task: task, Score: &score, Attempts: []search.Attempt{{Trace: address.String(), Reward: &score}}})
	}
	return a
}
