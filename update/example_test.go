package update_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// Two attempts at one task become two rows. GRPO assigns advantages of opposite signs to
// their tokens.
func ExampleNewBatch() {
	attempt := func(sample int, completion []int32, reward float64) assign.Sample {
		return assign.Sample{Trajectory: record.Trajectory{
			Outcome: record.OutcomeCompleted, Reward: &reward,
			Address: record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Sample: sample}, Attempt: 1},
			History: []record.Call{{Prompt: []int32{1, 2}, Completion: completion, Logprobs: []float32{-1, -1}, Temperature: 1}},
		}}
	}
	s := spec.Spec{Algorithm: "grpo"}.WithDefaults()
	groups := [][]assign.Sample{{attempt(0, []int32{3, 4}, 1), attempt(1, []int32{5, 4}, 0)}}
	made, err := update.NewBatch(s, model.Batch{Policy: "main", Step: 1, VocabSize: 8}, nil, groups)
	if err != nil {
		panic(err)
	}
	for _, r := range made.Batch.Rows {
		fmt.Printf("%v %.2f\n", r.Tokens, r.Advantages)
	}
	fmt.Println(made.Metrics["reward/mean"])
	// Output:
	// [1 2 3 4] [0.00 0.00 0.71 0.71]
	// [1 2 5 4] [0.00 0.00 -0.71 -0.71]
	// 0.5
}
