package record_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/record"
)

// The second call's prompt begins with all tokens of the first, so both become one
// sequence; the third started over.
func ExampleMerge() {
	sequences := record.Merge([]record.Call{
		{Prompt: []int32{1, 2}, Completion: []int32{3, 4}, Logprobs: []float32{-0.1, -0.2}},
		{Prompt: []int32{1, 2, 3, 4, 5}, Completion: []int32{6}, Logprobs: []float32{-0.3}},
		{Prompt: []int32{9}, Completion: []int32{7}, Logprobs: []float32{-0.4}},
	})
	for _, s := range sequences {
		fmt.Println(s.Tokens, "of call", s.Call, s.Trained(), "trained")
	}
	// Output:
	// [9 7] of call [-1 2] 1 trained
	// [1 2 3 4 5 6] of call [-1 -1 0 0 -1 1] 3 trained
}

// An address names one attempt: run, kind and step, task, sample, attempt.
func ExampleParseAddress() {
	a, err := record.ParseAddress("demo/train-3/12/0/2")
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Kind, "step", a.Step, "task", a.Task, "sample", a.Sample, "attempt", a.Attempt)
	// Output:
	// train step 3 task 12 sample 0 attempt 2
}
