package trace

import "time"

// Terms are the conditions under which an attempt's model calls are answered.
// They are written once, when the attempt begins, so that any gateway can serve
// the attempt from the store alone.
type Terms struct {
	Policy  string `json:"policy"`
	Version int    `json:"version"`
	// RunSeed is the run's seed; a call's own seed is derived from it and the
	// rollout's address without the run's name, so that equal runs under other
	// names sample the same.
	RunSeed     uint64  `json:"run_seed"`
	Codec       string  `json:"codec"`                  // how dialogs become tokens, for example "compact"
	History     string  `json:"history,omitempty"`      // how a dialog is continued: HistoryAppend, also if empty, or HistoryTemplate
	Temperature float64 `json:"temperature"`            // forced on every call of the attempt; 0 is greedy
	MaxTokens   int     `json:"max_tokens"`             // most tokens of one reply
	MaxCalls    int     `json:"max_calls"`              // most calls of the attempt; 0 is no limit
	TokenBudget int     `json:"token_budget,omitempty"` // most sampled tokens of the attempt; 0 is no limit
	// Graded is true when a grader decides the reward: rewards that the agent
	// posts are then refused.
	Graded bool `json:"graded"`
	// RewardLimit is the largest magnitude of an accepted reward; 0 is no limit.
	RewardLimit float64 `json:"reward_limit,omitempty"`
	// Ignore are regular expressions (RE2): the text that they match in a message does
	// not distinguish requests.
	Ignore []string `json:"ignore,omitempty"`
}

// How the tokens of a continued dialog are made.
const (
	// HistoryAppend keeps the tokens of earlier calls and appends the new turns.
	HistoryAppend = "append"
	// HistoryTemplate renders the whole dialog as a plain server would, which may leave
	// out parts of earlier turns, such as reasoning.
	HistoryTemplate = "template"
)

// Outcome says how an attempt ended.
type Outcome string

// The outcomes. Completed and AgentFailed end a rollout; InfraFault never
// yields a reward and is tried again.
const (
	Running     Outcome = ""
	Completed   Outcome = "completed"    // the agent ran to its end
	AgentFailed Outcome = "agent_failed" // the agent's own failure: exit code, exception, a limit
	InfraFault  Outcome = "infra_fault"  // the agent could have seen a fault of ours
)

// FailureTruncated is the Failure of an attempt that failed because credit.truncated is
// "fail" and a limit of tokens cut off one of its replies.
const FailureTruncated = "truncated"

// MaxResultBytes is the longest result of an agent. A longer one is never cut: a part of
// an answer could be graded as if it were the answer, so the agent has failed.
const MaxResultBytes = 1 << 20

// Attempt is the record of one try at a rollout.
type Attempt struct {
	Address
	Terms   Terms   `json:"terms"`
	KeyHash string  `json:"-"` // hex SHA-256 of the attempt's API key
	TaskID  string  `json:"task_id"`
	Outcome Outcome `json:"outcome"`
	// Reward is the reward used in training; nil until graded.
	Reward *float64 `json:"reward,omitempty"`
	Result string   `json:"result,omitempty"` // returned by the agent, never cut
	// Verdict is what the grader says of the result, in words, if that does not follow from
	// the result and the task's answer. It has no values of the answer.
	Verdict string `json:"verdict,omitempty"`
	// Failure says in one word how the agent failed, for example "timeout". Error says it
	// in words for people. An InfraFault has a Failure only if the agent may have caused
	// it, "hang" or "killed", or asked for another attempt, "retry".
	Failure string `json:"failure,omitempty"`
	Error   string `json:"error,omitempty"`
	// Output is the agent's output. It is written with the seal, and read separately.
	Output Output `json:"output,omitzero"`
	// PartlyRead names the requests whose streamed reply the agent closed after it had
	// begun to read it. They are written to their calls with the seal, and not read.
	PartlyRead []string  `json:"-"`
	Calls      int       `json:"calls"`
	Tokens     int       `json:"tokens"` // sampled tokens
	Begun      time.Time `json:"begun"`
	// Returned is when the agent had ended, so that grading could begin; zero if it did not
	// end by itself. It is written with the seal, and read separately.
	Returned time.Time `json:"-"`
	Ended    time.Time `json:"ended,omitzero"`
}

// Progress is how far an attempt came: how many calls it recorded, and which was the
// last. Two attempts at a rollout with the same progress did the same.
type Progress struct {
	Attempt    int
	Failure    string
	Calls      int
	Key        string // of the last call; empty without one
	Occurrence int
}

// Same reports whether two attempts came equally far.
func (p Progress) Same(q Progress) bool {
	return p.Calls == q.Calls && p.Key == q.Key && p.Occurrence == q.Occurrence
}

// Reward is one number given to an attempt or to one of its calls. Name is unique for
// each of them: posting the same name and value again changes nothing, another value is
// an error. The attempt's final reward has the name "final" and no call.
type Reward struct {
	Address `json:"-"`
	Name    string  `json:"name"` // "final" unless said otherwise
	Value   float64 `json:"value"`
	CallID  string  `json:"call_id,omitempty"` // the call it judges; empty is the whole attempt
	Source  string  `json:"source"`            // "agent" or "grader"
	// Emitted is when an agent gave a reward of which the last counts; zero for a reward of
	// which the first does.
	Emitted time.Time `json:"emitted,omitzero"`
}

// Event is a fact that an agent reported about its attempt.
type Event struct {
	Address `json:"-"`
	Seq     int            `json:"seq"` // from 0, allocated by the store
	Name    string         `json:"name"`
	Fields  map[string]any `json:"fields,omitempty"`
	At      time.Time      `json:"at"`
}
