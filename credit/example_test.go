package credit_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
)

// The advantages of one group under the estimators of GRPO, Dr. GRPO, RLOO and MaxRL.
func ExampleNormalization() {
	rewards := [][]float64{{1, 0, 0, 0}}
	for _, n := range []credit.Normalization{
		{Mean: credit.Group, Std: credit.Group},
		{Mean: credit.Group},
		{Mean: credit.Group, LeaveOneOut: true},
		{Mean: credit.Group, Std: credit.ByMean},
	} {
		advantages, err := n.Advantages(rewards)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%+.3f\n", advantages[0])
	}
	// Output:
	// [+1.500 -0.500 -0.500 -0.500]
	// [+0.750 -0.250 -0.250 -0.250]
	// [+1.000 -0.333 -0.333 -0.333]
	// [+3.000 -1.000 -1.000 -1.000]
}

// The advantage of an attempt is 1, and it made three calls.
func ExampleAssignment_Calls() {
	for _, a := range []credit.Assignment{credit.Identical, credit.Discounted, credit.LastCall} {
		calls, err := a.Calls(1, 3, 0.9)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%-10s %.2f\n", a, calls)
	}
	// Output:
	// identical  [1.00 1.00 1.00]
	// discounted [0.81 0.90 1.00]
	// last_call  [0.00 0.00 1.00]
}

// Two attempts reach the same fork. Each makes a call there. GiGPO adds to that call how
// well it did compared with the other one. The states after the fork occur once and add
// nothing.
func ExamplePlan_Advantages_gigpo() {
	attempt := func(name string, reward float64, states ...string) credit.Trajectory {
		t := credit.Trajectory{Name: name, Rewards: map[string]float64{credit.Final: reward}}
		for _, s := range states {
			t.Calls = append(t.Calls, credit.Call{State: s, Tokens: 4})
		}
		return t
	}
	plan := credit.Plan{
		Normalization: credit.Normalization{Mean: credit.Group},
		Assignment:    credit.GiGPO, Discount: 1, StepWeight: 1,
	}
	got, err := plan.Advantages([][]credit.Trajectory{{
		attempt("left", 1, "fork", "door"), attempt("right", 0, "fork", "wall"),
	}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("left %+.1f\nright %+.1f\n", got.Call[0][0], got.Call[0][1])
	// Output:
	// left [+1.0 +0.5]
	// right [-1.0 -0.5]
}

// PPO: a critic's values before each token, generalized advantage estimation over
// the tokens, and the returns that the critic learns.
func ExamplePlan_Advantages_gae() {
	plan := credit.Plan{Tokens: credit.GAE, Discount: 1, Lambda: 0.5}
	got, err := plan.Advantages([][]credit.Trajectory{{{
		Name: "one", Rewards: map[string]float64{credit.Final: 1},
		Calls: []credit.Call{{Tokens: 3, Values: []float64{0.2, 0.4, 0.8}}},
	}}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("advantages %.3f\nreturns %.3f\n", got.Token[0][0][0], got.Returns[0][0][0])
	// Output:
	// advantages [0.450 0.500 0.200]
	// returns [0.650 0.900 1.000]
}

// REINFORCE++ takes no baseline of a group; the advantages of the batch's tokens get
// mean 0 and deviation 1.
func ExamplePlan_Advantages_whiten() {
	attempt := func(reward float64, tokens int) credit.Trajectory {
		return credit.Trajectory{Rewards: map[string]float64{credit.Final: reward}, Calls: []credit.Call{{Tokens: tokens}}}
	}
	got, err := credit.Plan{Whiten: true}.Advantages([][]credit.Trajectory{{attempt(1, 1), attempt(0, 3)}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%+.2f %+.2f\n", got.Call[0][0][0], got.Call[0][1][0])
	// Output:
	// +1.50 -0.50
}

// The update has made a token with a positive advantage more likely, by a factor of
// e^0.5.
func ExampleLossType_Surrogate() {
	for _, name := range credit.LossTypes() {
		tokens := credit.Tokens{
			Current: []float64{-0.5}, Sampled: []float64{-1}, Advantage: []float64{1}, Weight: []float64{1}, Gradient: []float64{0},
		}
		stats := credit.Objective{Surrogate: name.Surrogate(0.2, 0.2, 0)}.Evaluate(tokens)
		fmt.Printf("%-19s loss %+.3f, gradient %+.3f\n", name, stats.Loss, tokens.Gradient[0])
	}
	// Output:
	// ppo_clip            loss -1.200, gradient +0.000
	// gspo                loss -1.200, gradient +0.000
	// cispo               loss +0.600, gradient -1.200
	// dppo_tv             loss +0.000, gradient +0.000
	// importance_sampling loss -1.649, gradient -1.649
	// cross_entropy       loss +0.500, gradient -1.000
}

// With a lag the sampler is older than the policy that the update starts from. The
// weight between the two is truncated, or leaves the token out.
func ExampleCorrection() {
	for _, kind := range credit.Corrections() {
		tokens := credit.Tokens{
			Sampled: []float64{-2}, Proximal: []float64{-1}, Current: []float64{-1},
			Advantage: []float64{1}, Weight: []float64{1}, Gradient: []float64{0},
		}
		objective := credit.Objective{Surrogate: credit.ImportanceSampling{}, Correction: credit.Correction{Kind: kind, Floor: 0.5, Cap: 2}}
		objective.Evaluate(tokens)
		fmt.Printf("%-9s gradient %+.2f\n", kind, tokens.Gradient[0])
	}
	// Output:
	// none      gradient -2.72
	// decoupled gradient -2.00
	// mis       gradient +0.00
	// sequence  gradient -2.00
	// geometric gradient +0.00
	// k3        gradient -1.00
}

// Three estimates of the divergence from the reference at one token.
func ExampleKL_Estimate() {
	for _, e := range []credit.Estimator{credit.KL1, credit.KL2, credit.KL3} {
		fmt.Printf("%s %.3f\n", e, credit.KL{Estimator: e}.Estimate(-1, -1.5))
	}
	// Output:
	// k1 0.500
	// k2 0.125
	// k3 0.107
}

// DAPO's soft limit: an attempt loses more the closer it comes to 100 tokens.
func ExampleOverlong_Shape() {
	limit := credit.Overlong{Tokens: 100, Buffer: 20, Penalty: 1}
	fmt.Println(limit.Shape(80), limit.Shape(90), limit.Shape(200))
	// Output:
	// 0 -0.5 -1
}

// A critic's value moved from 0.2 to 0.9, while the return is 1.
func ExampleValueLoss_Evaluate() {
	loss, gradient := credit.ValueLoss{}.Evaluate(0.9, 0.2, 1)
	fmt.Printf("free    %.3f %+.1f\n", loss, gradient)
	loss, gradient = credit.ValueLoss{Clip: 0.5}.Evaluate(0.9, 0.2, 1)
	fmt.Printf("clipped %.3f %+.1f\n", loss, gradient)
	// Output:
	// free    0.005 -0.1
	// clipped 0.045 +0.0
}
