// Package record holds the records of a run, except those of its attempts: the run
// itself, its batches, steps, evaluations and quarantined tasks, and the moves of its
// promoted pointer. Package trace has the records of an attempt. Records are plain values
// that package store keeps and all other packages read. Each has a natural key, named in
// its comment; writing a record twice under its key changes nothing.
package record

import (
	"encoding/json"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// Status is the status of a run.
type Status string

// The statuses. All but Running mean that the run has ended.
const (
	Running   Status = "running"
	Completed Status = "completed"
	// Stopped is a run that a person ended before its last step. It did everything that
	// follows the last step, as a completed one does.
	Stopped   Status = "stopped"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	// Refused is a run that never began: its spec was refused. Its name is free.
	Refused Status = "refused"
	// Terminated, TimedOut and Deleted are ends that a workflow can't record itself. A
	// process that sees them in Temporal records them.
	Terminated Status = "terminated"
	TimedOut   Status = "timed_out"
	Deleted    Status = "deleted" // its workflow is not in Temporal any more
)

// Run is one training. Key: Name.
type Run struct {
	Name        string               `json:"name"`
	WorkflowID  string               `json:"workflow_id"`
	ExecutionID string               `json:"execution_id"` // the first of its chain
	SpecDigest  string               `json:"spec_digest"`
	Spec        json.RawMessage      `json:"spec"` // with defaults, paths absolute
	Splits      map[trace.Kind]Split `json:"splits"`
	Status      Status               `json:"status"`
	Result      json.RawMessage      `json:"result,omitempty"`
	Created     time.Time            `json:"created"`
	Finished    time.Time            `json:"finished,omitzero"`
	// Idle is true if the run has not ended, but nothing runs it at the moment: there is no
	// Temporal. It is not on record; whoever asks Temporal sets it.
	Idle bool `json:"-"`
}

// RunOrder is an order of runs.
type RunOrder string

// The orders of runs.
const (
	NewestRuns  RunOrder = ""
	OldestRuns  RunOrder = "oldest"
	RunsByName  RunOrder = "name"
	LongestRuns RunOrder = "took" // what is under way counts until now
)

// RunQuery selects runs.
type RunQuery struct {
	Word      string // that the name contains, in small or capital letters; "" selects all
	Status    Status // "" selects all
	Otherwise bool   // only runs that have ended, and not completed
	Order     RunOrder
	From      int // runs that are skipped
	Most      int
}

// Split is a snapshot of tasks: a blob and how many tasks are in it.
type Split struct {
	Digest string `json:"digest"`
	Count  int    `json:"count"`
	// Parts is how many tasks come from each source, where there are several.
	Parts []int `json:"parts,omitempty"`
}

// Batch is the batch that a step trains on. Key: Run, Policy, Step.
type Batch struct {
	Run       string             `json:"run"`
	Policy    string             `json:"policy"`
	Step      int                `json:"step"`
	Digest    string             `json:"digest"`
	Sequences int                `json:"sequences"`
	Tokens    int                `json:"tokens"`
	Trained   int                `json:"trained"` // tokens that the loss sees
	Metrics   map[string]float64 `json:"metrics,omitempty"`
	// Begun is when the process that made the batch began, At when it was recorded.
	Begun time.Time `json:"begun,omitzero"`
	At    time.Time `json:"at,omitzero"`
}

// Step is a finished step. Key: Run, Policy, Step.
type Step struct {
	Run     string             `json:"run"`
	Policy  string             `json:"policy"`
	Step    int                `json:"step"`
	Batch   string             `json:"batch"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	At      time.Time          `json:"at"`
}

// AllRollouts is the metric of a step with the mean reward over all its rollouts, those of
// replaced groups too. Only steps with replaced groups have it.
const AllRollouts = "reward/all_rollouts"

// Reward returns the reward of the step: the mean over all its rollouts. Without the
// groups that dynamic sampling replaced, it would not say how good the policy is.
func (s Step) Reward() (mean float64, ok bool) {
	if mean, ok = s.Metrics[AllRollouts]; !ok {
		mean, ok = s.Metrics["reward/mean"]
	}
	return mean, ok
}

// Evaluation is an evaluation on record. Key: Run, Policy, Kind, Version.
type Evaluation struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	EvaluationResult
	At time.Time `json:"at"`
}

// EvaluationResult is the mean reward of a version on a split.
type EvaluationResult struct {
	Kind     trace.Kind `json:"kind"`
	Version  int        `json:"version"`
	Tasks    int        `json:"tasks"`
	Rollouts int        `json:"rollouts"`
	Mean     float64    `json:"mean"`
	StdError float64    `json:"std_error"`
	// Greedy is the mean at temperature 0, nil if it was not asked for.
	Greedy *float64 `json:"greedy,omitempty"`
}
