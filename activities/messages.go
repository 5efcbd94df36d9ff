package activities

import (
	"encoding/json"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrTypeInvalid is the type of the application errors that trying again cannot mend.
const ErrTypeInvalid = "Invalid"

// PrepareRunInput is the spec as it was given, and who asks.
type PrepareRunInput struct {
	Spec        json.RawMessage `json:"spec"`
	Run         string          `json:"run"`
	WorkflowID  string          `json:"workflow_id"`
	ExecutionID string          `json:"execution_id"` // of the first execution of the chain
}

// PrepareRunResult is the run as everything later reads it.
type PrepareRunResult struct {
	Spec   spec.Spec                   `json:"spec"` // with defaults, paths absolute
	Splits map[trace.Kind]record.Split `json:"splits"`
	// SearchAttributes is false where the cluster has not registered ours.
	SearchAttributes bool `json:"search_attributes"`
}

// InitPolicyInput asks for version 0.
type InitPolicyInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
}

// VersionResult names a version that now exists.
type VersionResult struct {
	Number  int                `json:"number"`
	Weights string             `json:"weights"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// RunAgentInput asks for one attempt at a rollout.
type RunAgentInput struct {
	Rollout trace.RolloutID `json:"rollout"`
	Index   int             `json:"index"` // of the task in its split
	Policy  string          `json:"policy"`
	Version int             `json:"version"`
	Greedy  bool            `json:"greedy,omitempty"` // temperature 0 instead of the spec's
}

// RunAgentResult is the attempt that counts.
type RunAgentResult struct {
	Attempt int           `json:"attempt"`
	Outcome trace.Outcome `json:"outcome"`
	// Reward is nil when a grader of its own has yet to decide.
	Reward *float64 `json:"reward,omitempty"`
	Calls  int      `json:"calls"`
	Tokens int      `json:"tokens"`
}

// GradeRolloutInput asks the spec's grader command for the reward of an attempt.
type GradeRolloutInput struct {
	Address trace.Address `json:"address"`
	Index   int           `json:"index"`
}

// GradeRolloutResult is that reward.
type GradeRolloutResult struct {
	Reward float64 `json:"reward"`
}

// Group is what the samples of one task came to. Slices have one entry a sample.
type Group struct {
	Task     int       `json:"task"`
	Attempts []int     `json:"attempts"`
	Rewards  []float64 `json:"rewards"`
}

// AssignCreditInput asks for the batch of a step.
type AssignCreditInput struct {
	Run    string  `json:"run"`
	Policy string  `json:"policy"`
	Step   int     `json:"step"`
	Groups []Group `json:"groups"`
}

// AssignCreditResult names the batch and says what is in it.
type AssignCreditResult struct {
	Batch   string             `json:"batch"`
	Metrics map[string]float64 `json:"metrics"`
}

// TrainStepInput asks for one optimizer update: version Step−1 into version Step.
type TrainStepInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Step   int    `json:"step"`
	Batch  string `json:"batch"`
}

// RecordStepInput puts a finished step on record.
type RecordStepInput struct {
	Run     string             `json:"run"`
	Policy  string             `json:"policy"`
	Step    int                `json:"step"`
	Batch   string             `json:"batch"`
	Metrics map[string]float64 `json:"metrics"`
}

// Evaluation is the mean reward of a version on a split.
type Evaluation struct {
	Kind     trace.Kind `json:"kind"`
	Version  int        `json:"version"`
	Tasks    int        `json:"tasks"`
	Rollouts int        `json:"rollouts"`
	Mean     float64    `json:"mean"`
	StdError float64    `json:"std_error"`
	// Greedy is the mean at temperature 0, where asked for.
	Greedy *float64 `json:"greedy,omitempty"`
}

// RecordEvaluationInput puts an evaluation on record.
type RecordEvaluationInput struct {
	Run        string     `json:"run"`
	Policy     string     `json:"policy"`
	Evaluation Evaluation `json:"evaluation"`
}

// PromoteVersionInput moves the promoted pointer from Previous (-1: none) to Version.
type PromoteVersionInput struct {
	Run        string         `json:"run"`
	Policy     string         `json:"policy"`
	DecisionID string         `json:"decision_id"`
	Version    int            `json:"version"`
	Previous   int            `json:"previous"`
	Decision   model.Decision `json:"decision"`
}

// FinishRunInput ends the record of a run, if it is that of the execution given.
type FinishRunInput struct {
	Run         string          `json:"run"`
	ExecutionID string          `json:"execution_id"`
	Status      record.Status   `json:"status"`
	Result      json.RawMessage `json:"result,omitempty"`
}

// normalization reads the spec's choice into the terms of package credit.
func normalization(c spec.Credit) credit.Normalization {
	return credit.Normalization{Mean: credit.Level(c.Mean), Std: credit.Level(c.Std), LeaveOneOut: c.LeaveOneOut}
}
