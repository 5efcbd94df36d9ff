package record

import (
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// Trial is a summary of an attempt: its outcome, not its calls.
type Trial struct {
	trace.Address
	TaskID  string
	Outcome trace.Outcome
	Failure string   // in one word, how the agent failed
	Reward  *float64 // from the agent or a grader
	Calls   int
	Tokens  int // sampled ones of its calls, replayed ones too
	Begun   time.Time
	// Progress is the time of the attempt's last record. It is set only if a later
	// attempt replaced this one before it had a result.
	Progress time.Time
}

// Interruption is an attempt that a fault ended, and that another replaced.
type Interruption struct {
	trace.Address
	Outcome trace.Outcome // trace.InfraFault, or trace.Running for one that was lost
	Error   string
	Begun   time.Time
	Last    time.Time // when it last recorded a call, or began
	Again   time.Time // when the next attempt began
}

// Replayed is how many calls of an attempt were answered from the record of an
// earlier one, and how many tokens did not have to be sampled again.
type Replayed struct {
	trace.Address
	Calls  int
	Tokens int
}

// TaskResult sums up the attempts at a task that count, over all steps of a kind.
type TaskResult struct {
	Kind     trace.Kind
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
	Kind   trace.Kind
	TaskID string
	Step   int
	Graded int
	Passed int
}
