package record

import (
	"time"
)

// Trial is a summary of an attempt: its outcome, not its calls.
type Trial struct {
	Address
	TaskID  string
	Outcome Outcome
	Failure string   // in one word, how the agent failed
	Reward  *float64 // from the agent or a grader
	Calls   int
	Tokens  int // sampled ones of its calls, replayed ones too
	// CutOff counts the calls whose reply ended at a limit of tokens, before the model ended
	// it.
	CutOff int
	Begun  time.Time
	// Progress is the time of the attempt's last record. It is set only if a later
	// attempt replaced this one before it had a result.
	Progress time.Time
}

// AttemptState says what became of an attempt.
type AttemptState string

// The states. An attempt with an outcome has the state of that name; the others are those
// of an attempt that has none.
const (
	AttemptCompleted   = AttemptState(OutcomeCompleted)
	AttemptAgentFailed = AttemptState(AgentFailed)
	AttemptInfraFault  = AttemptState(InfraFault)
	AttemptRunning     = AttemptState("running")
	AttemptBegun       = AttemptState("begun")      // it would run, but nothing runs its run at the moment
	AttemptLost        = AttemptState("lost")       // cut off, and a later attempt took its place
	AttemptUnfinished  = AttemptState("unfinished") // the run ended before it
)

// StateOf returns what became of an attempt. Replaced says that a later attempt at the
// same rollout has begun. Every list, count and page uses this definition.
func StateOf(o Outcome, replaced bool, run Run) AttemptState {
	switch {
	case o != OutcomeRunning: // the constant is the empty string
		return AttemptState(o)
	case replaced:
		return AttemptLost
	case run.Status != Running:
		return AttemptUnfinished
	case run.Idle:
		return AttemptBegun
	}
	return AttemptRunning
}

// StatesOf returns what became of attempts. Attempts at the same rollout have to follow
// each other in order, as the store lists them.
func StatesOf(trials []Trial, run Run) []AttemptState {
	out := make([]AttemptState, len(trials))
	for i, t := range trials {
		replaced := i+1 < len(trials) && trials[i+1].RolloutID == t.RolloutID
		out[i] = StateOf(t.Outcome, replaced, run)
	}
	return out
}

// Interruption is an attempt that a fault ended, and that another replaced.
type Interruption struct {
	Address
	Outcome Outcome // InfraFault, or OutcomeRunning for one that was lost
	Error   string
	Begun   time.Time
	Last    time.Time // when it last recorded a call, or began
	Again   time.Time // when the next attempt began
}

// Replayed is how many calls of an attempt were answered from the record of an
// earlier one, and how many tokens did not have to be sampled again.
type Replayed struct {
	Address
	Calls  int
	Tokens int
}

// Usage counts what the attempts of a run have on record so far: all attempts, of every kind,
// those that others replaced too.
type Usage struct {
	Calls       int `json:"calls"`        // model calls, replayed ones too
	Tokens      int `json:"tokens"`       // sampled tokens of these calls
	AgentFailed int `json:"agent_failed"` // attempts whose agent failed
}

// PolicyUsage counts what one of several policies answered.
type PolicyUsage struct {
	Policy string `json:"policy"`
	Calls  int    `json:"calls"`
	Tokens int    `json:"tokens"` // sampled ones of these calls
}

// Spent is what a run has used so far.
type Spent struct {
	Calls  int `json:"calls"`  // requests to models: of attempts, to the judge and to the reflector
	Tokens int `json:"tokens"` // sampled tokens of attempts
}

// TaskResult sums up the attempts at a task that count, over all steps of a kind.
type TaskResult struct {
	Kind     Kind
	TaskID   string
	Attempts int
	Graded   int // with a reward
	// Mean, Min and Max are of the rewards; 0 without any.
	Mean, Min, Max float64
	Passed         int // rewards that are at least the pass mark
	Failed         int // attempts whose agent failed
	// Step and Task name the newest group.
	Step, Task int
}

// TaskMoment sums up the graded attempts at a task in one step. For an evaluation, Step
// is the version.
type TaskMoment struct {
	Kind   Kind
	TaskID string
	Step   int
	Graded int
	Passed int
}

// AttemptTimes says when the parts of an attempt were. Times that are not on record are
// zero.
type AttemptTimes struct {
	Address
	Outcome  Outcome
	Begun    time.Time
	Returned time.Time // the agent had ended
	Ended    time.Time // the attempt was sealed, after the agent's own grading and most others
	Graded   time.Time // a grader command gave its reward, after the seal
	Calls    []CallTimes
}

// CallTimes says when a model call was. ReplayedFrom is the attempt that sampled it, 0 for
// the attempt itself.
type CallTimes struct {
	ReplayedFrom int
	Started      time.Time
	Duration     time.Duration
	Sampling     Sampling
}

// Judgments has a judge's scores of the calls of a step. It is, as JSON, the content of
// the blob that AssignCreditInput.Judgments names.
//
// Scores has one list for each attempt that counts, in the order of the step's groups and
// their samples, which is also the order of the batch's trajectories. Each list has one
// score for each call of the attempt, in the order of Trajectory.History, trained
// or not; it is empty, and never missing, for an attempt without calls. A score is a
// number from 0 (the call did harm or nothing) to 10; credit uses it unchanged.
type Judgments struct {
	Scores [][]float64 `json:"scores"`
}

// Judgment has a judge's scores of the calls of an attempt, in order. The first judgment
// is final, so that a later request, in this run or another, gets the same scores. Key:
// Key.
type Judgment struct {
	Key    string    `json:"key"` // SHA-256 of all that the judge was told, hex
	Model  string    `json:"model"`
	Scores []float64 `json:"scores"`
	// Run, Policy and Step say which step asked for it.
	Run    string    `json:"run"`
	Policy string    `json:"policy"`
	Step   int       `json:"step"`
	At     time.Time `json:"at"`
}

// Nonsense is an answer of a judge that could not be read. Key: Run, Policy, Step,
// Judgment, Try.
type Nonsense struct {
	Run      string `json:"run"`
	Policy   string `json:"policy"`
	Step     int    `json:"step"`
	Judgment string `json:"judgment"` // the key of the judgment asked for
	Try      int    `json:"try"`      // from 1
	// Answer is the beginning of the answer. Reason says why it could not be read.
	Answer string    `json:"answer"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}
