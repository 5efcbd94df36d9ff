// Package record holds the vocabulary of runs: a run with its batches, steps, versions'
// moves and evaluations; an attempt with its address, the model calls that it made, its
// rewards and events; the trajectory that these form, and the sequences as which a
// trajectory is trained. Records are plain values and pure functions, with no storage, no
// network and no clock. Package store keeps them, and all other packages read them. Each
// has a natural key, named in its comment; writing a record twice under its key changes
// nothing.
//
// Tokens are ids of the policy's vocabulary; log-probabilities are natural logarithms
// under the distribution that sampled them.
//
// Two guarantees: an [Address] has exactly one textual form, which is at once a URL path,
// a key in the store and the name that people read. A merged [Sequence] carries each
// sampled token exactly once, so a gradient over sequences equals the gradient over the
// calls they were merged from.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
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
	Name        string          `json:"name"`
	WorkflowID  string          `json:"workflow_id"`
	ExecutionID string          `json:"execution_id"` // the first of its chain
	SpecDigest  string          `json:"spec_digest"`
	Spec        json.RawMessage `json:"spec"` // with defaults, paths absolute
	Splits      map[Kind]Split  `json:"splits"`
	Status      Status          `json:"status"`
	Result      json.RawMessage `json:"result,omitempty"`
	Created     time.Time       `json:"created"`
	Finished    time.Time       `json:"finished,omitzero"`
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
	Kind     Kind    `json:"kind"`
	Version  int     `json:"version"`
	Tasks    int     `json:"tasks"`
	Rollouts int     `json:"rollouts"`
	Mean     float64 `json:"mean"`
	StdError float64 `json:"std_error"`
	// Greedy is the mean at temperature 0, nil if it was not asked for.
	Greedy *float64 `json:"greedy,omitempty"`
}

// Role is the service that a process of a fleet provides.
type Role string

// The roles that others look for.
const (
	Gateway Role = "gateway" // one at a time
	Sampler Role = "sampler" // any number
)

// Archiver is the role of a process that archives the histories of a run: one at a time for
// each run, whose name is that of the lease. Nobody looks for it, so it has no URL.
const Archiver Role = "archiver"

// ErrLeaseLost is wrapped when a lease no longer belongs to its holder, because another
// process took the name or the role.
var ErrLeaseLost = errors.New("lease lost")

// ErrLeaseHeld is wrapped when a lease is not given, because another process has it.
var ErrLeaseHeld = errors.New("lease held by another process")

// Lease says that a process has a role, and at which URL it serves it, until Expires unless it is
// renewed. The lease with the greater Epoch was taken later; epochs
// of a role are never used twice. Key: Role, Name.
type Lease struct {
	Role    Role      `json:"role"`
	Name    string    `json:"name"`
	URL     string    `json:"url"`
	Epoch   int64     `json:"epoch"`
	Expires time.Time `json:"expires"` // by the database's clock
}

// Score is the reward of one sample of a task, by the attempt that counts.
type Score struct {
	Task    int     `json:"task"`
	Sample  int     `json:"sample"`
	Attempt int     `json:"attempt"`
	Reward  float64 `json:"reward"`
}

// Stop is a request to end a run after the steps that have begun, by a person or by the run's
// budget.
type Stop struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	After  int    `json:"after"` // the last step
	Of     int    `json:"of"`    // the number of steps that the spec asks for
}

// Text says who asked for the stop and why.
func (s Stop) Text() string {
	if s.Reason == "" {
		return "asked by " + s.By
	}
	return fmt.Sprintf("asked by %s: %s", s.By, s.Reason)
}

// Stop returns the request that ended a run. It is nil unless the run was stopped.
func (r Run) Stop() *Stop {
	var result struct {
		Stopped *Stop `json:"stopped"`
	}
	if r.Status != Stopped || json.Unmarshal(r.Result, &result) != nil {
		return nil
	}
	return result.Stopped
}

// Failure is the result of a run that did not complete.
type Failure struct {
	// Error says why, in words for people.
	Error string `json:"error"`
	// Detail is the error as Temporal has it, if that says more.
	Detail string `json:"detail,omitempty"`
	// Final is true if a retry would meet the same error again.
	Final bool `json:"final,omitempty"`
	// By is the identity of whoever terminated the run, as Temporal has it.
	By string `json:"by,omitempty"`
}

// Failure returns why a run did not complete. It is empty for a run that completed, was
// stopped, or is under way.
func (r Run) Failure() Failure {
	var f Failure
	if r.Status == Running || r.Status == Completed || r.Status == Stopped || json.Unmarshal(r.Result, &f) != nil {
		return Failure{}
	}
	return f
}

// CanRetry reports whether a retry can help a run that ended without completing. A run
// that was refused can only be started again, with another spec.
func (r Run) CanRetry() bool {
	switch r.Status {
	case Failed, Cancelled, Terminated, TimedOut:
		return !r.Failure().Final
	}
	return false
}

// Result returns f as the result of a run.
func (f Failure) Result() json.RawMessage {
	text, err := json.Marshal(f)
	if err != nil {
		return nil // strings always encode
	}
	return text
}

// untaughtSteps is the number of steps in a row without an advantage after which that is
// worth a warning. One or two such steps are nothing unusual.
const untaughtSteps = 3

// Untaught describes steps in a row that taught nothing: none of their tokens got an
// advantage other than 0. The zero value describes no step. All counts are sums over the
// steps.
type Untaught struct {
	From     int     `json:"from"` // the first of the steps; 0 if there is none
	To       int     `json:"to"`
	Idle     bool    `json:"idle,omitempty"` // the last step had no token to train
	Attempts float64 `json:"attempts"`
	Failed   float64 `json:"failed"`   // attempts whose agent failed
	Silent   float64 `json:"silent"`   // attempts without a model call
	Calls    float64 `json:"calls"`    // replies of the model
	CutOff   float64 `json:"cut_off"`  // replies that reached the limit of tokens
	Unparsed float64 `json:"unparsed"` // replies that could not be parsed
	Least    float64 `json:"least"`    // reward
	Greatest float64 `json:"greatest"` // reward
}

// UntaughtBy returns the last steps that taught nothing, of steps in their order.
func UntaughtBy(steps []Step) Untaught {
	var u Untaught
	for _, s := range steps {
		u.Add(s.Step, s.Metrics)
	}
	return u
}

// Add takes in a step with the metrics of its batch. A step that taught something ends
// the row.
func (u *Untaught) Add(step int, metrics map[string]float64) {
	trained, known := metrics["batch/trained_tokens"]
	if !known || trained > 0 && (metrics["advantage/min"] != 0 || metrics["advantage/max"] != 0) {
		*u = Untaught{}
		return
	}
	if u.From == 0 {
		*u = Untaught{From: step, Least: metrics["reward/min"], Greatest: metrics["reward/max"]}
	}
	u.To, u.Idle = step, trained == 0
	u.Attempts += metrics["batch/rollouts"]
	u.Failed += metrics["batch/failed"]
	u.Silent += metrics["batch/silent"]
	u.Calls += metrics["batch/calls"]
	u.CutOff += metrics["batch/cut_off"]
	u.Unparsed += metrics["batch/unparsed"]
	u.Least, u.Greatest = min(u.Least, metrics["reward/min"]), max(u.Greatest, metrics["reward/max"])
}

// Text returns a warning with what the attempts have in common, or "" if there is nothing
// to warn of: a step without a token to train is worth a warning at once, steps without an
// advantage only after the third.
func (u Untaught) Text() string {
	n := u.To - u.From + 1
	if u.From == 0 || n < untaughtSteps && !u.Idle {
		return ""
	}
	var b strings.Builder
	switch {
	case n < untaughtSteps:
		fmt.Fprintf(&b, "step %d had no token to train, so its version is the one before without an update", u.To)
	case u.Idle:
		fmt.Fprintf(&b, "the last %d steps (%d to %d) taught nothing, and the last one had no token to train", n, u.From, u.To)
	default:
		fmt.Fprintf(&b, "the last %d steps (%d to %d) taught nothing: no token got an advantage", n, u.From, u.To)
	}
	fmt.Fprintf(&b, ". Of %s", counted(u.Attempts, "attempt"))
	var reasons []string
	if u.Failed > 0 {
		reasons = append(reasons, fmt.Sprintf("the agent failed in %.0f", u.Failed))
	}
	if u.Silent > 0 {
		reasons = append(reasons, fmt.Sprintf("%.0f made no model call (do they use OPENAI_BASE_URL?)", u.Silent))
	}
	if u.CutOff > 0 {
		reasons = append(reasons, fmt.Sprintf("%.0f of %s were cut off (raise sampling.max_tokens)", u.CutOff, counted(u.Calls, "reply")))
	}
	if u.Unparsed > 0 {
		reasons = append(reasons, fmt.Sprintf("%.0f of %s could not be parsed", u.Unparsed, counted(u.Calls, "reply")))
	}
	if u.Least == u.Greatest {
		reasons = append(reasons, fmt.Sprintf("every reward was %g (does the grader find what the agent returns?)", u.Least))
	} else {
		reasons = append(reasons, fmt.Sprintf("the rewards went from %g to %g, but did not differ within a group", u.Least, u.Greatest))
	}
	b.WriteString(": " + strings.Join(reasons, "; "))
	return b.String()
}

func counted(n float64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%.0f %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%.0f %ss", n, noun)
}
