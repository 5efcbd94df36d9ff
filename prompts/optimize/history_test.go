package optimize_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/spec"
)

func start(t *testing.T, algorithm string) *optimize.History {
	t.Helper()
	s := spec.Spec{Optimizer: &spec.PromptOptimizer{
		Algorithm: algorithm, Budget: spec.OptimizerBudget{Minibatch: 600, Validation: 200, Reflections: 100},
	}}.WithDefaults()
	made, err := optimize.New(*s.Optimizer, 3, []search.Prompt{{Name: "a", Text: "x"}, {Name: "b", Text: "y"}}, 20, 8)
	require.NoError(t, err)
	return optimize.NewHistory(made)
}

// answer depends on the request alone.
func answer(r optimize.Request) search.Answer {
	a := search.Answer{Request: r.ID}
	if r.Kind == search.Evaluate {
		for i, task := range r.Tasks {
			reward := float64((len(r.Candidate.ID)+int(r.Candidate.ID[8])*(i+1)+task)%7) / 7
			a.Results = append(a.Results, search.Result{Task: task, Score: &reward})
		}
		return a
	}
	a.Text = fmt.Sprintf("%s of request %d", r.Kind, r.Number) // so that a change of numbers changes texts
	return a
}

func TestTheOrderOfAnswersChangesNothing(t *testing.T) {
	for _, algorithm := range []string{spec.AlgorithmGEPA, spec.AlgorithmAPO} {
		var first *optimize.History
		for try := range 4 {
			draws := rand.New(rand.NewPCG(1, uint64(try)))
			h := start(t, algorithm)
			together := 0
			for open, done := h.Open(); done == nil; open, done = h.Open() {
				together = max(together, len(open))
				require.NotEmpty(t, open)
				if try == 0 {
					require.NoError(t, h.Take(answer(open[0])))
				} else {
					require.NoError(t, h.Take(answer(open[draws.IntN(len(open))])))
				}
			}
			for i, s := range h.Served() {
				require.Equal(t, i, s.Number)
			}
			require.Equal(t, algorithm == spec.AlgorithmAPO, together > 1)
			if first == nil {
				first = h
				require.Greater(t, len(h.Decisions()), 5)
				continue
			}
			require.Equal(t, first.Served(), h.Served())
			require.Equal(t, first.Decisions(), h.Decisions())
			require.Equal(t, first.Account(), h.Account())
		}
	}
}

func TestAnswersThatAHistoryHasChangeNothing(t *testing.T) {
	h := start(t, spec.AlgorithmAPO)
	var given []search.Answer
	for range 12 {
		open, done := h.Open()
		require.Nil(t, done)
		given = append(given, answer(open[len(open)-1]))
		require.NoError(t, h.Take(given[len(given)-1]))
	}
	before, _ := h.Open()
	for _, a := range given {
		a.Text, a.Results = "another", nil
		require.NoError(t, h.Take(a))
	}
	after, _ := h.Open()
	require.Equal(t, before, after)
	require.ErrorIs(t, h.Take(search.Answer{Request: "nobody.asked"}), search.ErrNotOpen)
}
