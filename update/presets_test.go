package update_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// goldenPresets is ../credit/testdata/presets.json, which presets.py writes.
type goldenPresets struct {
	Length  int
	Batches []goldenBatch
}

type goldenBatch struct {
	Name     string
	Weights  map[string]float64
	Groups   []int
	Rewards  []map[string]float64
	Values   [][]float32
	Current  [][]float64
	Gradient map[string][][]float64
}

func readPresets(t *testing.T) goldenPresets {
	t.Helper()
	data, err := os.ReadFile("../credit/testdata/presets.json")
	require.NoError(t, err)
	var out goldenPresets
	require.NoError(t, json.Unmarshal(data, &out))
	return out
}

// samples returns the attempts of the batch, each with one reply.
func (g goldenBatch) samples() [][]assign.Sample {
	var out [][]assign.Sample
	i := 0
	for number, size := range g.Groups {
		var group []assign.Sample
		for sample := range size {
			a := record.Address{RolloutID: record.RolloutID{Run: "golden", Kind: record.Train, Step: 1, Task: number, Sample: sample}, Attempt: 1}
			final := g.Rewards[i]["final"]
			one := assign.Sample{Calls: []signals.Call{{}}, Values: [][]float32{g.Values[i]}}
			one.Address, one.Outcome, one.Reward = a, record.OutcomeCompleted, &final
			one.History = []record.Call{{Address: a, Completion: make([]int32, len(g.Current[i]))}}
			one.Rewards = []record.Reward{{Name: "style", Value: g.Rewards[i]["style"]}}
			group = append(group, one)
			i++
		}
		out = append(out, group)
	}
	return out
}

// gradient returns the gradient that s gives for the batch, by attempt and token.
func (g goldenBatch) gradient(t *testing.T, s spec.Spec) [][]float64 {
	t.Helper()
	groups := g.samples()
	_, given, err := assign.Advantages(s, nil, groups)
	require.NoError(t, err)
	objective, err := s.Loss.Objective()
	require.NoError(t, err)
	d := credit.Denominators{Length: s.Loss.Length}
	for _, c := range g.Current {
		d.Trajectory = append(d.Trajectory, len(c))
	}
	var out [][]float64
	for group, samples := range groups {
		for i := range samples {
			current := g.Current[len(out)]
			n := len(current)
			tokens := credit.Tokens{
				Current: current, Sampled: make([]float64, n), Advantage: make([]float64, n), Weight: make([]float64, n),
				Gradient: make([]float64, n), EntropyGradient: make([]float64, n),
			}
			for k := range n {
				tokens.Sampled[k], tokens.Advantage[k] = -1, given.Call[group][i][0]
				tokens.Weight[k] = d.Weight(s.Loss.Aggregation, len(out))
				if given.Token != nil {
					tokens.Advantage[k] = given.Token[group][i][0][k]
				}
			}
			objective.Evaluate(tokens)
			out = append(out, tokens.Gradient)
		}
	}
	return out
}

// preset returns a spec that names an algorithm and sets nothing else of it.
func (g goldenBatch) preset(name string) spec.Spec {
	s := spec.Spec{
		Algorithm: name, Agent: spec.Agent{Func: "agent"}, Tasks: spec.Tasks{Train: "tasks.jsonl"}, Grader: spec.Grader{Type: "exact"},
		Training: spec.Training{Steps: 1, TasksPerStep: 2, SamplesPerTask: 2},
	}
	if name == "gdpo" {
		s.Credit.Rewards = g.Weights
	}
	return s.WithDefaults()
}

// Each algorithm is tested from rewards to the derivative by each token's
// log-probability. The result is compared with the formula of its paper, for attempts of
// unequal length.
func TestEveryAlgorithmGivesTokensTheGradientOfItsPaper(t *testing.T) {
	t.Parallel()
	golden := readPresets(t)
	for _, b := range golden.Batches {
		require.Len(t, b.Gradient, len(spec.Algorithms()), "every preset has a golden gradient")
		for _, name := range spec.Algorithms() {
			t.Run(name+" "+b.Name, func(t *testing.T) {
				t.Parallel()
				s := b.preset(name)
				require.NoError(t, s.Validate())
				if s.Loss.Length > 0 {
					require.Equal(t, golden.Length, s.Loss.Length)
				}
				got := b.gradient(t, s)
				for i, want := range b.Gradient[name] {
					require.InDeltaSlice(t, want, got[i], 1e-9, "attempt %d", i)
				}
			})
		}
	}
}

// Leave-one-out REINFORCE takes a whole reply as one action: the derivative by each
// of its tokens is A over the number of replies, however long they are, times a
// constant that is the same for all.
func TestRLOODoesNotDivideByTheLengthOfAnAttempt(t *testing.T) {
	t.Parallel()
	b := readPresets(t).Batches[0]
	s := b.preset("rloo")
	got := b.gradient(t, s)
	require.Len(t, got[0], 2)
	require.Len(t, got[1], 20)
	for i, want := range []float64{-0.5, 0.5} { // advantages of 1 and −1
		for _, g := range got[i] {
			require.InDelta(t, want, g*float64(s.Loss.Length), 1e-12)
		}
	}
}
