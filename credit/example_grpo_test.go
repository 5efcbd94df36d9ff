package credit_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
)

// GRPO from beginning to end: four attempts at one task with their rewards, and the
// derivative of the loss by the log-probability of every sampled token.
func Example_grpo() {
	rewards := []float64{1, 0, 0, 1}
	sampled := [][]float64{{-0.5, -1.2}, {-0.7, -0.9, -2.1}, {-0.4}, {-1.1, -0.3}} // at the time of sampling
	current := [][]float64{{-0.5, -1.1}, {-0.8, -0.9, -2.6}, {-0.4}, {-0.8, -0.3}} // under the policy that is trained

	// Rewards are compared with those of the same task: A = (R − mean) / (deviation + 1e-6).
	group := make([]credit.Trajectory, len(rewards))
	for i, r := range rewards {
		group[i] = credit.Trajectory{
			Name:    fmt.Sprintf("attempt %d", i),
			Rewards: map[string]float64{credit.Final: r},
			Calls:   []credit.Call{{Tokens: len(sampled[i])}},
		}
	}
	plan := credit.Plan{Normalization: credit.Normalization{Mean: credit.Group, Std: credit.Group}}
	advantages, err := plan.Advantages([][]credit.Trajectory{group})
	if err != nil {
		panic(err)
	}

	// A token weighs 1/(tokens of its trajectory × trajectories).
	denominators := credit.Denominators{}
	for _, tokens := range sampled {
		denominators.Trajectory = append(denominators.Trajectory, len(tokens))
	}

	// L_t = −min(r·A, clip(r, 0.8, 1.2)·A), r the ratio of the probabilities.
	objective := credit.Objective{Surrogate: credit.PPOClip{Low: 0.2, High: 0.2}}
	var stats credit.Stats
	for i := range group {
		tokens := credit.Tokens{Current: current[i], Sampled: sampled[i], Gradient: make([]float64, len(sampled[i]))}
		for range sampled[i] {
			tokens.Advantage = append(tokens.Advantage, advantages.Call[0][i][0])
			tokens.Weight = append(tokens.Weight, denominators.Weight(credit.SequenceMean, i))
		}
		stats.Add(objective.Evaluate(tokens))
		fmt.Printf("%s: advantage %+.3f, gradient %+.4f\n", group[i].Name, advantages.Trajectory[0][i], tokens.Gradient)
	}
	fmt.Printf("loss %.4f, %g of %d tokens clipped\n", stats.Loss, stats.Clipped(), stats.Count)

	// Output:
	// attempt 0: advantage +0.866, gradient [-0.1083 -0.1196]
	// attempt 1: advantage -0.866, gradient [+0.0653 +0.0722 +0.0000]
	// attempt 2: advantage -0.866, gradient [+0.2165]
	// attempt 3: advantage +0.866, gradient [+0.0000 -0.1083]
	// loss -0.0543, 2 of 8 tokens clipped
}
