package record

import (
	"errors"
	"fmt"
	"time"
)

// Codes of refused rewards. All other codes are those of refused calls.
const (
	// FinalRewardRefused is the code of a refused final reward, and of a refused post
	// that doesn't say which reward it gives.
	FinalRewardRefused = "final_reward_refused"
	// RewardRefused is the code of a refused reward with another name, or of one call.
	RewardRefused = "reward_refused"
)

// Refusal counts the calls of an attempt that were refused with one code, or the rewards
// that its agent gave and that were refused. A refused call has no reply, so it is not
// among the attempt's calls. Faults of the infrastructure are no refusals: they are asked
// again until they are answered.
type Refusal struct {
	Address `json:"-"`
	// Code is the error's, for example "call_limit" or "context_length_exceeded", or a code
	// of refused rewards.
	Code string `json:"code"`
	// Message is the text of the latest refusal.
	Message string    `json:"message"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// RefusalCount counts the refusals of a run with one code. Its Refusal has the Count and
// the times of all its attempts together; the Address and the Message are those of the
// latest refusal.
type RefusalCount struct {
	Refusal
	// Attempts is how many attempts had such a refusal.
	Attempts int `json:"attempts"`
}

// OfReward reports whether a reward was refused, and not a call.
func (r Refusal) OfReward() bool { return r.Code == FinalRewardRefused || r.Code == RewardRefused }

// String says it in one line, for example "call_limit 3 (the attempt has made all of
// its 8 calls)".
func (r Refusal) String() string { return fmt.Sprintf("%s %d (%s)", r.Code, r.Count, r.Message) }

// These errors refuse an operation on an attempt. A store wraps them; its callers
// distinguish them with errors.Is.
var (
	// ErrNotFound says that no run, attempt, call or version has that name.
	ErrNotFound = errors.New("not found")
	// ErrFenced says that the attempt no longer takes writes: a later attempt
	// has begun, or this one is sealed.
	ErrFenced = errors.New("attempt is fenced")
	// ErrConflict says that the key is taken by something else, for example a
	// reward of the same name with another value.
	ErrConflict = errors.New("conflict")
)

// Divergence says where an attempt's requests began to differ from those of an earlier
// attempt at the same rollout, so that it could no longer be replayed. It is recorded
// with the first call that differs, which has number Seq in the attempt Address.
//
// An agent with several calls in flight may make a call that was lost with an earlier
// attempt before it repeats the others. That is no divergence once all recorded calls
// have been replayed.
type Divergence struct {
	Address `json:"-"`
	Seq     int `json:"-"`
	// Earlier is the attempt of the comparison. EarlierSeq is its call that is most
	// similar among those that were not replayed.
	Earlier    int `json:"earlier"`
	EarlierSeq int `json:"earlier_seq"`
	// Difference describes the first difference between the two requests, with excerpts.
	Difference string `json:"difference"`
}

// Attributes that the receiver adds to a span of a model call that names no reply of
// ours: fingerprints of the dialog, by which the call is found. The receiver replaces any
// values that an agent sends under these names.
const (
	InstructionsFingerprint = "fulgurite.told.instructions" // system messages; absent if there are none
	DialogFingerprint       = "fulgurite.told.dialog"       // the other messages of the request
	ReplyFingerprint        = "fulgurite.told.reply"
)
