package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind says what a rollout is for. Only rollouts of the kinds Train and Reserve are
// trained on.
type Kind string

// The kinds of rollout.
const (
	Train Kind = "train" // feeds a training step
	// Reserve replaces a group of a training step whose task was quarantined, or which
	// would teach nothing.
	Reserve Kind = "reserve"
	Gate    Kind = "gate" // decides about promotion
	Test    Kind = "test" // reported before and after, never used to choose
	Try     Kind = "try"  // made by `fulgurite try`
	// Minibatch is an attempt at a task of the train split for a candidate of a search.
	Minibatch Kind = "minibatch"
	// Validation is an attempt at a task of the validation split for a candidate of a
	// search.
	Validation Kind = "validation"
	// Served is a conversation that a client had with a served version. It is no attempt at
	// a task.
	Served Kind = "served"
)

// Valid reports whether k is one of the kinds above.
func (k Kind) Valid() bool {
	switch k {
	case Train, Reserve, Gate, Test, Try, Minibatch, Validation, Served:
		return true
	}
	return false
}

// Split returns the kind whose name is that of the split that rollouts of kind k read their
// tasks from: Train for those that feed no evaluation, and for minibatches.
func (k Kind) Split() Kind {
	switch k {
	case Reserve, Try, Minibatch:
		return Train
	}
	return k
}

// ErrAddress is wrapped by every error of ParseAddress and CheckRunName.
var ErrAddress = errors.New("bad address")

// RolloutID names one sample of one task: run / kind-step / task / sample.
// Step counts from 0 for evaluations of the start and from 1 for training;
// Task and Sample are ordinals from 0, never a user's text.
type RolloutID struct {
	Run    string `json:"run"`
	Kind   Kind   `json:"kind"`
	Step   int    `json:"step"`
	Task   int    `json:"task"`
	Sample int    `json:"sample"`
}

// String returns the rollout's path, for example "demo/train-3/17/2".
func (r RolloutID) String() string {
	return fmt.Sprintf("%s/%s-%d/%d/%d", r.Run, r.Kind, r.Step, r.Task, r.Sample)
}

// Address names one attempt at a rollout. Attempts count from 1; the store
// allocates them.
type Address struct {
	RolloutID
	Attempt int `json:"attempt"`
}

// String returns the attempt's path, for example "demo/train-3/17/2/1".
func (a Address) String() string { return a.RolloutID.String() + "/" + strconv.Itoa(a.Attempt) }

// ParseAddress reads what Address.String wrote and nothing else.
func ParseAddress(s string) (Address, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 5 {
		return Address{}, fmt.Errorf("%w %q: want run/kind-step/task/sample/attempt", ErrAddress, s)
	}
	kind, step, ok := strings.Cut(parts[1], "-")
	if !ok || !Kind(kind).Valid() {
		return Address{}, fmt.Errorf("%w %q: %q is not kind-step", ErrAddress, s, parts[1])
	}
	var n [4]int
	for i, p := range []string{step, parts[2], parts[3], parts[4]} {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || strconv.Itoa(v) != p {
			return Address{}, fmt.Errorf("%w %q: %q is not an ordinal", ErrAddress, s, p)
		}
		n[i] = v
	}
	a := Address{RolloutID{parts[0], Kind(kind), n[0], n[1], n[2]}, n[3]}
	if a.Attempt < 1 {
		return Address{}, fmt.Errorf("%w %q: attempts count from 1", ErrAddress, s)
	}
	return a, CheckRunName(a.Run)
}

var runName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// CheckRunName reports whether s can name a run: 1 to 63 of a–z, 0–9, dot,
// dash and underscore, with a letter or digit at both ends, because it becomes
// a URL path, a file name and a workflow id.
func CheckRunName(s string) error {
	if !runName.MatchString(s) {
		return fmt.Errorf("%w: run name %q: use 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends", ErrAddress, s)
	}
	return nil
}

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
	// GradedRewards are the names of further rewards of the attempt that the grader gives:
	// those that the agent posts are then refused.
	GradedRewards []string `json:"graded_rewards,omitempty"`
	// RewardLimit is the largest magnitude of an accepted reward; 0 is no limit.
	RewardLimit float64 `json:"reward_limit,omitempty"`
	// Ignore are regular expressions (RE2): the text that they match in a message does
	// not distinguish requests.
	Ignore []string `json:"ignore,omitempty"`
	// Prompts is the digest of the prompts and rules (a prompts.Set) that requests are
	// rewritten with before the policy reads them; empty if there are none.
	Prompts string `json:"prompts,omitempty"`
	// ClientSampling lets each request choose its temperature, top_p and seed, as it is for
	// conversations with served versions.
	ClientSampling bool `json:"client_sampling,omitempty"`
	// Policies says which policy answers which request, if the run has several. Policy is
	// then "main".
	Policies []PolicyRule `json:"policies,omitempty"`
}

// PolicyRule says which requests a policy answers.
type PolicyRule struct {
	Policy string `json:"policy"`
	// Match lists the requests: those that agree with one of its elements. Nil is all
	// requests that no other rule answers.
	Match []PolicyMatch `json:"match,omitempty"`
	// Version is the number of the policy's version. Nil is the version of the terms.
	Version *int `json:"version,omitempty"`
}

// PolicyMatch finds requests. All fields that are given have to agree.
type PolicyMatch struct {
	// Agent is the agent's name in the base URL of the request; empty is any.
	Agent string `json:"agent,omitempty"`
	// Model is the model that the request asks for; empty is any.
	Model string `json:"model,omitempty"`
	// Role is the role of a message whose text is Exact, or begins with Prefix. Position is
	// the number of that message, from 0; nil is any. Without Exact and Prefix the texts do
	// not matter.
	Role     string `json:"role,omitempty"`
	Position *int   `json:"position,omitempty"`
	Exact    string `json:"exact,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
}

// Grades reports whether the grader gives the reward of a name to the whole attempt.
func (t Terms) Grades(name string) bool {
	return t.Graded && (name == finalReward || slices.Contains(t.GradedRewards, name))
}

// finalReward is the name of an attempt's final reward.
const finalReward = "final"

// VersionOf returns the number of the version that answers the requests of a policy.
func (t Terms) VersionOf(policy string) int {
	for _, rule := range t.Policies {
		if rule.Policy == policy && rule.Version != nil {
			return *rule.Version
		}
	}
	return t.Version
}

// Versions returns the version of each policy by its name, if the run has several.
func (t Terms) Versions() map[string]int {
	if len(t.Policies) == 0 {
		return nil
	}
	out := make(map[string]int, len(t.Policies))
	for _, rule := range t.Policies {
		out[rule.Policy] = t.VersionOf(rule.Policy)
	}
	return out
}

// SamePolicies reports whether both terms have the same policies under the same rules, with
// the same versions where rules name them. It does not compare Version.
func (t Terms) SamePolicies(o Terms) bool {
	return t.Policy == o.Policy && slices.EqualFunc(t.Policies, o.Policies, func(a, b PolicyRule) bool {
		return a.Policy == b.Policy && sameNumber(a.Version, b.Version) && slices.EqualFunc(a.Match, b.Match, PolicyMatch.equal)
	})
}

func sameNumber(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

func (m PolicyMatch) equal(o PolicyMatch) bool {
	if m.Position != nil && o.Position != nil && *m.Position == *o.Position {
		o.Position = m.Position
	}
	return m == o
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

// The outcomes. OutcomeCompleted and AgentFailed end a rollout; InfraFault never
// yields a reward and is tried again.
const (
	OutcomeRunning   Outcome = ""
	OutcomeCompleted Outcome = "completed"    // the agent ran to its end
	AgentFailed      Outcome = "agent_failed" // the agent's own failure: exit code, exception, a limit
	InfraFault       Outcome = "infra_fault"  // the agent could have seen a fault of ours
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

// Call is one model request and its reply, token by token. The HTTP bodies are in its
// Exchange.
type Call struct {
	Address
	// Seq numbers the calls of an attempt from 0 in the order they were recorded.
	Seq int `json:"seq"`
	// ID is the id in the reply ("chatcmpl-…"). It derives from the call's seed,
	// so an attempt that repeats a call repeats its id. That of a conversation's call is random.
	ID string `json:"id"`
	// Parent is the Seq of the call whose prompt and completion begin this prompt, or -1.
	// The store keeps only the tokens after them.
	Parent int `json:"parent"`
	// API is the protocol that the request came by: "completions", "responses" or
	// "messages"; empty is chat completions.
	API string `json:"api,omitempty"`
	// Agent names the agent or graph node that made the call, when known.
	Agent   string `json:"agent,omitempty"`
	Policy  string `json:"policy"`
	Version int    `json:"version"`
	// Weights is the SHA-256 of the weights that sampled, hex.
	Weights string `json:"weights"`
	// Server is the external server that sampled, as HOST:PORT with the path of its
	// address; empty for the built-in sampler.
	Server string `json:"server,omitempty"`
	// Key is the SHA-256 of the canonical request, hex; Occurrence counts, from
	// 0, how often the attempt made that same request before.
	Key        string `json:"key"`
	Occurrence int    `json:"occurrence"`

	Prompt     []int32   `json:"prompt"`
	Completion []int32   `json:"completion"`
	Logprobs   []float32 `json:"logprobs"` // one for each completion token
	// Untrained marks completion tokens that had no alternative when sampled (loss mask
	// 0). Nil marks none.
	Untrained []bool `json:"untrained,omitempty"`
	// Form is the form to which the reply was held (a model.Form), if the request asked
	// for one: the sampling distribution can be rebuilt from it. Nil is free.
	Form json.RawMessage `json:"form,omitempty"`
	// Drift says that the dialog continues a recorded call, but that its text, rendered
	// and tokenized again, does not begin with that call's tokens.
	Drift bool `json:"drift,omitempty"`

	Seed        uint64  `json:"seed"`
	Temperature float64 `json:"temperature"`
	// TopP is the share of probability that the request let be sampled from; 0 is all. Calls
	// of attempts at tasks have none.
	TopP   float64 `json:"top_p,omitempty"`
	Finish string  `json:"finish"` // "stop", or FinishLength
	// PartlyRead says that the agent closed the stream of the reply after it had read a
	// part of it. The call has the whole reply.
	PartlyRead bool   `json:"partly_read,omitempty"`
	ParseError string `json:"parse_error,omitempty"` // why the reply's tool call was not one

	// ReplayedFrom is the attempt that sampled the call, if this one was answered
	// from its record; 0 for a call that this attempt sampled itself.
	ReplayedFrom int `json:"replayed_from,omitempty"`
	// Divergence is set on an attempt's first call that no earlier attempt had made, if
	// calls of earlier attempts were left to replay.
	Divergence *Divergence `json:"divergence,omitempty"`
	// RequestName names the one request of the agent that the call answers, however often
	// the request was repeated on the way; empty if the client does not say.
	RequestName string `json:"exchange,omitempty"`

	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration"`
	// Sampling says what the built-in sampler did in this time; zero for other servers, and
	// for a replayed call.
	Sampling Sampling `json:"sampling,omitzero"`
	// Recorded is when the store began to commit the call, by the clock of the
	// process that wrote it. The store sets it.
	Recorded time.Time `json:"recorded,omitzero"`
}

// Sampling says how long the parts of sampling a call took, in nanoseconds as JSON. While a
// request is in a sampler's batch, the others of the batch advance at the same time.
type Sampling struct {
	Queued  time.Duration `json:"queued"`  // until the request joined the batch
	Prefill time.Duration `json:"prefill"` // from then to the first token
	Decode  time.Duration `json:"decode"`  // from the first token to the last
	// Shared is how many tokens of the prompt were taken over from other requests instead of
	// being computed.
	Shared int `json:"shared"`
}

// FinishLength is the Finish of a call whose reply ended at a limit of tokens: the limit of
// its request, of sampling.max_tokens, of the attempt's budget, or of the model's positions.
const FinishLength = "length"

// CutOff reports whether a limit of tokens ended the reply, and not the model.
func (c Call) CutOff() bool { return c.Finish == FinishLength }

// Exchange is a call with the HTTP bodies, byte by byte. Bodies are long and each repeats
// the ones before it, so they are read apart from tokens, one attempt at a time, by code
// that needs the text.
type Exchange struct {
	Call
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
	// Served is for the record of the conversation, if the call is one of a Served attempt.
	// It is written with the call, and not read.
	Served *ServedCall `json:"-"`
}

// Calls returns the calls of exchanges, without their bodies.
func Calls(exchanges []Exchange) []Call {
	out := make([]Call, len(exchanges))
	for i, x := range exchanges {
		out[i] = x.Call
	}
	return out
}

// Trajectory is the calls of the attempt that counts, in order, and its reward.
type Trajectory struct {
	Attempt
	History []Call
	Rewards []Reward
}

// Output is the printed output of an agent that is a program, in bounds: the beginning
// and the end of each stream, with a line between them that says how many bytes are left
// out. It explains an attempt and has no effect on its outcome.
type Output struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// LinesBefore is how many lines that aren't blank stood on standard output before
	// the last one, which alone is the result.
	LinesBefore int `json:"lines_before,omitempty"`
}

// SpanKind is the kind of operation that a span describes.
type SpanKind string

// The kinds of span.
const (
	ModelSpan SpanKind = "model" // a model call
	ToolSpan  SpanKind = "tool"  // a tool that ran
	AgentSpan SpanKind = "agent" // an agent, or a step of a graph
	OtherSpan SpanKind = "other"
)

// Span is an OpenTelemetry span that an agent sent about its attempt. An agent can send
// anything: spans explain a trajectory and are no part of it.
type Span struct {
	Address `json:"-"`
	// Trace, ID and Parent are the ids that the agent gave, hex. Parent is empty for a
	// root. Trace and ID identify a span within an attempt: a span that is sent again
	// changes nothing.
	Trace  string `json:"trace"`
	ID     string `json:"id"`
	Parent string `json:"parent,omitempty"`

	Kind    SpanKind  `json:"kind"`
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Failed says that the span ended in an error; Message says which.
	Failed  bool   `json:"failed,omitempty"`
	Message string `json:"message,omitempty"`

	// CallID is the id of the reply of the call that the span describes.
	CallID string `json:"call_id,omitempty"`
	// Agent names the agent or graph node that the span describes.
	Agent string `json:"agent,omitempty"`
	// Tool names the tool that ran; ToolCallID is the id of the tool call that asked
	// for it.
	Tool       string `json:"tool,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`

	// Attributes are further attributes of the span, as far as they fit.
	Attributes map[string]any `json:"attributes,omitempty"`
}
