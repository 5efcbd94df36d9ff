package spec_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/spec"
)

const smallSpec = `
name: capitals
agent:
  command: [python3, agent.py]
tasks:
  train: tasks.jsonl
grader:
  type: exact
training:
  steps: 50
algorithm: dapo
`

// A spec file is short. Defaults and the algorithm fill in the rest.
func ExampleParse() {
	s, err := spec.Parse([]byte(smallSpec), "spec.yaml")
	if err != nil {
		panic(err)
	}
	s = s.WithDefaults()
	fmt.Println(s.Training.SamplesPerTask, "attempts at a task, on", s.Agent.Queue)
	fmt.Println(s.Loss.Type, s.Loss.ClipLow, s.Loss.ClipHigh, s.Loss.Aggregation)
	fmt.Println(s.Credit.Mean, s.Credit.Std, s.Credit.Assignment)
	// Output:
	// 8 attempts at a task, on rollout-cpu
	// ppo_clip 0.2 0.28 token_mean
	// group group identical
}

// Parse reports all faults of a file at once, each with its key, its line and what to do.
func ExampleFaults() {
	_, err := spec.Parse([]byte(smallSpec+`
loss:
  clip_hihg: 0.3
  aggregation: tokens_mean
credit:
  std: 0
`), "spec.yaml")
	fmt.Println(err)
	// Output:
	// spec.yaml: 3 faults
	//   loss.clip_hihg (line 14): unknown key; did you mean clip_high?
	//   credit.std (line 17): a number where text is expected; put quotes around it
	//   loss.aggregation: unknown name "tokens_mean"; did you mean token_mean? There are token_mean, sequence_mean, constant
}

// Two files that mean the same have the same digest.
func ExampleDigest() {
	short, err := spec.Parse([]byte(smallSpec), "spec.yaml")
	if err != nil {
		panic(err)
	}
	fmt.Println(spec.Digest(short) == spec.Digest(short.WithDefaults()))
	// Output:
	// true
}

// Some numbers may change while a run is under way.
func ExampleSpec_Set() {
	s, err := spec.Parse([]byte(smallSpec), "spec.yaml")
	if err != nil {
		panic(err)
	}
	s, err = s.Set(map[string]float64{"loss.clip_high": 0.2})
	fmt.Println(s.Loss.ClipHigh, err)
	_, err = s.Set(map[string]float64{"training.samples_per_task": 10})
	fmt.Printf("%.70s…\n", err)
	// Output:
	// 0.2 <nil>
	// spec: training.samples_per_task: can't be set while this run is under …
}
