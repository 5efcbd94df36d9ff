package promptsearch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
)

// kept is the record of a search in memory.
type kept struct {
	run     record.Run
	answers []record.SearchAnswer
}

func (k kept) Run(context.Context, string) (record.Run, error) { return k.run, nil }

func (k kept) SearchAnswers(_ context.Context, _ string, from int) ([]record.SearchAnswer, error) {
	return k.answers[from:], nil
}

func (k kept) Reflection(context.Context, string) (record.Reflection, error) {
	return record.Reflection{}, record.ErrNotFound
}

func (k kept) PromptVersions(context.Context, string) ([]record.PromptVersion, error) {
	return nil, nil
}

func (k kept) Promoted(context.Context, string, string) (record.Promotion, error) {
	return record.Promotion{}, record.ErrNotFound
}

// searchOf returns the record of a search of candidates that were each measured on the
// validation tasks.
func searchOf(t testing.TB, algorithm string, candidates, validation int) kept {
	t.Helper()
	s := spec.Spec{
		Prompts: &spec.Prompts{Texts: []spec.PromptText{{Name: "solver", Text: "Compute."}}},
		Optimizer: &spec.PromptOptimizer{
			Algorithm: algorithm, Budget: spec.OptimizerBudget{Minibatch: 1e6, Validation: 1e6, Reflections: 1e6},
			Reflector: spec.Reflector{Type: spec.ReflectorOpenAI, URL: "http://127.0.0.1:1/v1", Model: "m"},
		},
	}
	if algorithm == spec.AlgorithmAPO {
		s.Optimizer.APO = &spec.APO{Rounds: 500}
	}
	s = s.WithDefaults()
	data, err := json.Marshal(s)
	require.NoError(t, err)
	k := kept{run: record.Run{Name: "demo", Spec: data, Splits: map[record.Kind]record.Split{
		record.Train: {Count: 40}, record.Validation: {Count: validation},
	}}}
	history, err := optimize.Begin(s, 40, validation)
	require.NoError(t, err)
	known := map[string]bool{}
	for len(known) < candidates {
		open, done := history.Open()
		require.Nil(t, done)
		for _, r := range open {
			if r.Split == search.SplitValidation {
				known[r.Candidate.ID] = true
			}
			a := answerTo(r)
			data, err := json.Marshal(a)
			require.NoError(t, err)
			k.answers = append(k.answers, record.SearchAnswer{Run: "demo", Number: len(k.answers), Request: r.ID, Answer: data})
			require.NoError(t, history.Take(a))
		}
	}
	return k
}

// answerTo returns an answer with which every proposal becomes a candidate, and many of them
// are the best on a task.
func answerTo(r optimize.Request) search.Answer {
	a := search.Answer{Request: r.ID}
	switch r.Kind {
	case search.Evaluate:
	case search.Critique:
		a.Text = fmt.Sprintf("Critique %d.", r.Number)
		return a
	default:
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
			score = float64((n+1)*(task+7)*2654435761/64%2) * 0.9
		}
		address := record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: kind, Step: r.Number, Task: place}, Attempt: 1}
		a.Results = append(a.Results, search.Result{Task: task, Score: &score, Attempts: []search.Attempt{{Trace: address.String(), Reward: &score}}})
	}
	return a
}

// Each iteration reads a search of 1,000 candidates on 50 validation tasks; with APO, most
// candidates are compared on a batch only. "reflections" finds who wrote each of them.
func BenchmarkRead(b *testing.B) {
	for _, algorithm := range []string{spec.AlgorithmGEPA, spec.AlgorithmAPO} {
		from := searchOf(b, algorithm, 1000, 50)
		b.Run(algorithm, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := promptsearch.Read(b.Context(), from, "demo")
				require.NoError(b, err)
				require.Greater(b, len(s.Candidates), 900)
			}
			b.ReportMetric(float64(len(from.answers)), "answers")
		})
		b.Run(algorithm+"/reflections", func(b *testing.B) {
			b.ReportAllocs()
			s, err := promptsearch.Read(b.Context(), from, "demo")
			require.NoError(b, err)
			for b.Loop() {
				for _, c := range s.Candidates {
					s.Reflections(c)
				}
			}
		})
	}
}
