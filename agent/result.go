package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
)

// messageBytes is the most of a message that is kept.
const messageBytes = process.StderrBytes

// Failure says in what way an agent failed by itself; empty means that it didn't.
type Failure string

// The failures.
const (
	Exit         Failure = "exit"                  // a command ended with a code other than 0, or by a signal
	Error        Failure = "error"                 // a function returned an error
	Panic        Failure = "panic"                 // a function panicked
	Timeout      Failure = "timeout"               // Limits.Time went by
	Hang         Failure = "hang"                  // Limits.Idle went by without a sign of life
	OutputLimit  Failure = "output_limit"          // a command wrote more than Limits.OutputBytes, or a result is too long
	MemoryLimit  Failure = "memory_limit"          // a command took more than Limits.MemoryBytes
	ProcessLimit Failure = "process_limit"         // an isolated command had more processes than Limits.Processes
	CPULimit     Failure = "cpu_limit"             // an isolated command took more processor time than Limits.CPU
	CallLimit    Failure = protocol.CodeCallLimit  // it went on asking after its last call
	TokenLimit   Failure = protocol.CodeTokenLimit // it went on asking after its last token
	Killed       Failure = "killed"                // a command was ended by a signal from outside
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
	// that isn't blank. It is complete: a result of more than record.MaxResultBytes is the
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
	Output record.Output
	// Note says what went wrong around the attempt without changing its result.
	Note string
	// ExitCode is a command's, 128 plus the number of the signal that ended it.
	ExitCode int
}

// resultOf returns the result with this text of this length, or the failure of an agent
// whose result is too long to be kept as a whole.
func resultOf(text string, length int) Result {
	if length > record.MaxResultBytes {
		return Result{Failure: OutputLimit, Message: fmt.Sprintf("its result has %d bytes, at most %d are possible", length, record.MaxResultBytes)}
	}
	return Result{Text: text}
}

// Failed reports whether the agent failed by itself.
func (r Result) Failed() bool { return r.Failure != "" }

// ReadReply reads the result of an external agent: an object with a result and perhaps a
// reward, any other JSON, or plain text. An object {"retry": "why"} asks for another
// attempt. A reward that is not a number, or beyond limit
// (0 is no limit), is reported in Result.RewardError. A result that is too long is the
// agent's failure.
func ReadReply(body []byte, limit float64) Result {
	body = bytes.TrimSpace(body)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(withoutNaN(body), &fields); err != nil || fields == nil {
		return whole(plain(body))
	}
	if reason, ok := retryOf(fields); ok {
		return Result{Failure: Retry, Message: truncate.Head(reason, messageBytes)}
	}
	result, given := fields["result"]
	reward, rewarded := fields["reward"]
	if !given && !rewarded {
		return whole(plain(body))
	}
	out := whole(plain(result))
	if rewarded && !out.Failed() {
		out.Reward, out.RewardError = readReward(reward, limit)
	}
	return out
}

// retryOf returns the reason of a reply that asks for another attempt. It has a text that is
// not empty under "retry", and no keys but those of a result beside it.
func retryOf(fields map[string]json.RawMessage) (reason string, ok bool) {
	if json.Unmarshal(fields["retry"], &reason) != nil || strings.TrimSpace(reason) == "" {
		return "", false
	}
	for key := range fields {
		if key != "retry" && key != "result" && key != "reward" {
			return "", false
		}
	}
	return reason, true
}

func whole(text string) Result { return resultOf(text, len(text)) }

// withoutNaN puts quotes around NaN and Infinity, which Python's JSON encoder writes but
// JSON does not have. Valid JSON is returned unchanged.
func withoutNaN(body []byte) []byte {
	if json.Valid(body) {
		return body
	}
	return notFinite.ReplaceAllFunc(body, func(part []byte) []byte {
		if part[0] == '"' {
			return part
		}
		return slices.Concat([]byte{'"'}, part, []byte{'"'})
	})
}

// notFinite matches the texts of JSON, and the numbers outside them that are not finite.
var notFinite = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\bNaN\b|-?\bInfinity\b`)

// plain returns the text of a JSON string, nothing for null, and other JSON unchanged.
func plain(value []byte) string {
	if string(value) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return strings.ToValidUTF8(string(value), "\uFFFD")
}

// LastReward returns the reward that the last line of a result claims: JSON
// {"reward": number}, or a bare number if bare is true. Most bare numbers are answers, so
// the caller decides whether they count. A refusal says why a claim does not count.
func LastReward(text string, limit float64, bare bool) (reward *float64, refusal string) {
	line := lastLine(text)
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) == nil {
		if value, ok := fields["reward"]; ok {
			return readReward(value, limit)
		}
		return nil, ""
	}
	if bare && isNumber(line) {
		return readReward(line, limit)
	}
	return nil, ""
}

// EndsWithNumber reports whether the last line of a result is a bare number.
func EndsWithNumber(text string) bool { return isNumber(lastLine(text)) }

func lastLine(text string) []byte {
	text = strings.TrimSpace(text)
	return []byte(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
}

func isNumber(line []byte) bool {
	var number json.Number
	return len(line) > 0 && line[0] != '"' && line[0] != 'n' && json.Unmarshal(line, &number) == nil
}

// readReward reads a number within the limit. Null is no reward.
func readReward(value json.RawMessage, limit float64) (reward *float64, refusal string) {
	if string(value) == "null" {
		return nil, ""
	}
	var number float64
	if err := json.Unmarshal(value, &number); err != nil {
		return nil, fmt.Sprintf("report reward: %s is not a number", truncate.Head(string(value), 80))
	}
	r := rewardReport{limit: limit}
	_ = r.set(number) // last returns the refusal again
	return r.last()
}
