package trace

import (
	"encoding/json"
	"time"
)

// Call is one model request and its reply, token by token. The HTTP bodies are in its
// Exchange.
type Call struct {
	Address
	// Seq numbers the calls of an attempt from 0 in the order they were recorded.
	Seq int `json:"seq"`
	// ID is the id in the reply ("chatcmpl-…"). It derives from the call's seed,
	// so an attempt that repeats a call repeats its id.
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
	Finish      string  `json:"finish"` // "stop", or FinishLength
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
