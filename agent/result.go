package agent

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
)

// messageBytes is the most of a message that is kept.
const messageBytes = process.StderrBytes

// Failure says in what way an agent failed by itself; empty means that it didn't.
type Failure string

// The failures.
const (
	Exit        Failure = "exit"                  // a command ended with a code other than 0, or by a signal
	Error       Failure = "error"                 // a function returned an error
	Panic       Failure = "panic"                 // a function panicked
	Timeout     Failure = "timeout"               // Limits.Time went by
	Hang        Failure = "hang"                  // Limits.Idle went by without a sign of life
	OutputLimit Failure = "output_limit"          // a command wrote more than Limits.OutputBytes, or a result is too long
	MemoryLimit Failure = "memory_limit"          // a command took more than Limits.MemoryBytes
	CallLimit   Failure = protocol.CodeCallLimit  // it went on asking after its last call
	TokenLimit  Failure = protocol.CodeTokenLimit // it went on asking after its last token
	Killed      Failure = "killed"                // a command was ended by a signal from outside
	// Retry means that the agent itself says that the attempt has no valid reward, because
	// something other than the model failed, and asks for another attempt.
	Retry Failure = "retry"
)

// ErrRetry is wrapped by the error of a function that asks for another attempt. The text
// of that error says why.
var ErrRetry = errors.New("try again")

// retryCode is the exit code by which a program asks for another attempt: EX_TEMPFAIL of
// sysexits.h.
const retryCode = 75

// Unclear reports whether a failure may be the machine's as well as the agent's, so that
// only another try can tell: an agent hangs or is killed for its own reasons, or
// because of other load on its machine.
func (f Failure) Unclear() bool { return f == Hang || f == Killed }

// Result is the outcome of an attempt.
type Result struct {
	// Text is the agent's return value or answer, or the last line of its standard output
	// that isn't blank. It is complete: a result of more than trace.MaxResultBytes is the
	// failure OutputLimit. Empty when the agent failed.
	Text string
	// Reward is the reward that a function reported through Env.Reward, or that an
	// external agent returned with its result; nil if there is none. Other agents post
	// their rewards, or end their output with one (LastReward).
	Reward *float64
	// RewardError says why the last reward of that kind was refused; empty if it was
	// not.
	RewardError string
	Failure     Failure
	// Message describes the failure for a person; with Panic it ends in the
	// stack. At most 8 KiB.
	Message string
	// Stderr is the end of a command's standard error, at most 8 KiB.
	Stderr string
	// Output is the output of a command, in bounds, however it ended. Attempts that began
	// and ended by a fault have it, too.
	Output trace.Output
	// Note says what went wrong around the attempt without changing its result.
	Note string
	// ExitCode is a command's, 128 plus the number of the signal that ended it.
	ExitCode int
}

// resultOf returns the result with this text of this length, or the failure of an agent
// whose result is too long to be kept as a whole.
func resultOf(text string, length int) Result {
	if length > trace.MaxResultBytes {
		return Result{Failure: OutputLimit, Message: fmt.Sprintf("its result has %d bytes, at most %d are possible", length, trace.MaxResultBytes)}
	}
	return Result{Text: text}
}

// Failed reports whether the agent failed by itself.
func (r Result) Failed() bool { return r.Failure != "" }
