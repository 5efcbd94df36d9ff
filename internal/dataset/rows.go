package dataset

import (
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// Transition is one model call of an attempt that was trained on: state, action and
// what it was worth.
type Transition struct {
	Run     string `json:"run" parquet:"run,dict"`
	Step    int    `json:"step" parquet:"step"`
	Group   int    `json:"group" parquet:"group"`     // ordinal in the step
	Attempt string `json:"attempt" parquet:"attempt"` // its address
	Call    int    `json:"call" parquet:"call"`       // its number in the attempt
	ID      string `json:"id" parquet:"id"`           // of the reply
	API     string `json:"api" parquet:"api,dict"`
	Agent   string `json:"agent" parquet:"agent,dict"`

	Policy      string  `json:"policy" parquet:"policy,dict"`
	Version     int     `json:"version" parquet:"version"` // that sampled
	Weights     string  `json:"weights" parquet:"weights,dict"`
	Temperature float64 `json:"temperature" parquet:"temperature"`

	PromptIDs     []int32   `json:"prompt_ids" parquet:"prompt_ids"`
	CompletionIDs []int32   `json:"completion_ids" parquet:"completion_ids"`
	Logprobs      []float32 `json:"logprobs" parquet:"logprobs"`   // of the completion
	LossMask      []int32   `json:"loss_mask" parquet:"loss_mask"` // of the completion, 1 is trained

	Reward    float64 `json:"reward" parquet:"reward"`       // of the trajectory
	Advantage float64 `json:"advantage" parquet:"advantage"` // of the call
	// Last marks the last call of the trajectory.
	Last bool `json:"last" parquet:"last"`

	Finish     string `json:"finish" parquet:"finish,dict"`
	ParseError string `json:"parse_error" parquet:"parse_error"`
	Request    string `json:"request" parquet:"request"`   // the JSON that the agent sent
	Response   string `json:"response" parquet:"response"` // the JSON that answered it
}

// Sequence is one row of a batch: calls that extend each other, laid end to end.
type Sequence struct {
	Run     string `json:"run" parquet:"run,dict"`
	Step    int    `json:"step" parquet:"step"`
	Group   int    `json:"group" parquet:"group"`
	Attempt string `json:"attempt" parquet:"attempt"`
	Batch   string `json:"batch" parquet:"batch,dict"` // digest of the batch's blob

	Temperature float64 `json:"temperature" parquet:"temperature"`
	// The five have one element for each token.
	InputIDs   []int32   `json:"input_ids" parquet:"input_ids"`
	LossMask   []int32   `json:"loss_mask" parquet:"loss_mask"`
	Logprobs   []float32 `json:"logprobs" parquet:"logprobs"`
	Advantages []float32 `json:"advantages" parquet:"advantages"`
	Calls      []int32   `json:"calls" parquet:"calls"` // that sampled the token, -1 for context

	Reward    float64 `json:"reward" parquet:"reward"`
	Advantage float64 `json:"advantage" parquet:"advantage"` // of the trajectory
}

func sequence(run, digest string, b model.Batch, r model.BatchRow) Sequence {
	t := b.Trajectories[r.Trajectory]
	return Sequence{
		Run: run, Step: b.Step, Group: t.Group, Attempt: t.Attempt, Batch: digest, Temperature: r.Temperature,
		InputIDs: r.Tokens, LossMask: mask(r.Sampled), Logprobs: r.Logprobs, Advantages: r.Advantages, Calls: r.Calls,
		Reward: t.Reward, Advantage: t.Advantage,
	}
}

// transition is a call with the advantage of its trained tokens. One without any
// has that of no token: 0.
func transition(b model.Batch, t model.BatchTrajectory, c trace.Call, advantage float32, last bool) Transition {
	trained := make([]bool, len(c.Completion))
	for i := range trained {
		trained[i] = c.Untrained == nil || !c.Untrained[i]
	}
	api := c.API
	if api == "" {
		api = "chat"
	}
	return Transition{
		Run: c.Run, Step: b.Step, Group: t.Group, Attempt: t.Attempt, Call: c.Seq, ID: c.ID, API: api, Agent: c.Agent,
		Policy: c.Policy, Version: c.Version, Weights: c.Weights, Temperature: c.Temperature,
		PromptIDs: c.Prompt, CompletionIDs: c.Completion, Logprobs: c.Logprobs, LossMask: mask(trained),
		Reward: t.Reward, Advantage: float64(advantage), Last: last,
		Finish: c.Finish, ParseError: c.ParseError, Request: string(c.Request), Response: string(c.Response),
	}
}

func mask(trained []bool) []int32 {
	out := make([]int32, len(trained))
	for i, t := range trained {
		if t {
			out[i] = 1
		}
	}
	return out
}
