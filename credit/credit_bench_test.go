package credit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fulgurite/fulgurite/credit"
)

const (
	benchGroups  = 1250
	benchSamples = 8
	benchCalls   = 20
	benchTokens  = 500
)

// benchBatch returns 10,000 trajectories of 20 calls of 500 tokens. Some states occur
// several times. All calls share one slice of values, which credit only reads.
func benchBatch() [][]credit.Trajectory {
	r := rand.New(rand.NewPCG(1, 1))
	values := make([]float64, benchTokens)
	for i := range values {
		values[i] = r.Float64()
	}
	groups := make([][]credit.Trajectory, benchGroups)
	for g := range groups {
		for i := range benchSamples {
			calls := make([]credit.Call, benchCalls)
			for k := range calls {
				calls[k] = credit.Call{
					Agent: "solver", State: fmt.Sprintf("state-%d", r.IntN(40)), Reward: float64(r.IntN(2)) / 10, Tokens: benchTokens, Values: values,
					Before: r.Float64(), Judged: r.Float64(),
				}
			}
			groups[g] = append(groups[g], credit.Trajectory{
				Name: fmt.Sprintf("bench/train-1/%d/%d/1", g, i), Rewards: map[string]float64{"final": float64(r.IntN(2))}, Calls: calls,
			})
		}
	}
	return groups
}

// BenchmarkAdvantages gives credit to 10,000 trajectories of 20 calls.
func BenchmarkAdvantages(b *testing.B) {
	groups := benchBatch()
	for _, c := range []struct {
		name string
		plan credit.Plan
	}{
		{"grpo", credit.Plan{Normalization: grpo}},
		{"whitened", credit.Plan{Normalization: credit.Normalization{Mean: credit.Group}, Whiten: true}},
		{"discounted", credit.Plan{Normalization: grpo, Assignment: credit.Discounted, Discount: 0.95}},
		{"gigpo", credit.Plan{Normalization: grpo, Assignment: credit.GiGPO, Discount: 0.95, StepWeight: 1}},
		{"judge", credit.Plan{Normalization: grpo, Assignment: credit.Judge}},
		{"value_difference", credit.Plan{Assignment: credit.ValueDifference}},
		{"turn_gae", credit.Plan{Assignment: credit.TurnGAE, Discount: 0.99, Lambda: 0.95, Whiten: true}},
		{"gae", credit.Plan{Tokens: credit.GAE, Discount: 1, Lambda: 0.95, Whiten: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.plan.Advantages(groups); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFitValues learns from 200,000 calls of 50 features. One feature in five occurs
// in the whole batch.
func BenchmarkFitValues(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	groups := make([][]credit.Example, benchGroups)
	for g := range groups {
		for range benchSamples * benchCalls {
			e := credit.Example{Outcome: float64(r.IntN(2))}
			for f := range 50 {
				if f%5 == 0 {
					e.Features = append(e.Features, r.Uint64N(2000))
				} else {
					e.Features = append(e.Features, uint64(g)<<32+r.Uint64N(500))
				}
			}
			groups[g] = append(groups[g], e)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := credit.FitValues(groups); err != nil {
			b.Fatal(err)
		}
	}
}
