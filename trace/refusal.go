package trace

import (
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
