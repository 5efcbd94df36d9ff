package remote

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/trace"
)

// The paths of a sampler.
const (
	samplePath  = "/sample"
	publishPath = "/publish"
	loadedPath  = "/loaded"
)

// loadedReply is the body of GET /loaded.
type loadedReply struct {
	Versions []model.VersionID `json:"versions"`
}

// sampleRequest is the body of POST /sample.
type sampleRequest struct {
	Version     model.VersionID `json:"version"`
	Prompt      []int32         `json:"prompt"`
	MaxTokens   int             `json:"max_tokens"`
	Temperature float64         `json:"temperature"`
	Stop        []int32         `json:"stop,omitempty"`
	Seed        uint64          `json:"seed,string"` // a string, because not every language can read 64 bits from a number
	TopP        float64         `json:"top_p,omitempty"`
	Form        *model.Form     `json:"form,omitempty"`
	Stream      bool            `json:"stream,omitempty"`
}

func newSampleRequest(v model.VersionID, r model.DecodeRequest) sampleRequest {
	in := sampleRequest{
		Version: v, Prompt: r.Prompt, MaxTokens: r.MaxTokens, Temperature: r.Temperature, Stop: r.Stop, Seed: r.Seed,
		TopP: r.TopP, Form: r.Form, Stream: r.Emit != nil,
	}
	if r.TopP == 1 {
		in.TopP = 0 // 0 means the same
	}
	return in
}

func (in sampleRequest) decodeRequest() model.DecodeRequest {
	return model.DecodeRequest{
		Prompt: in.Prompt, MaxTokens: in.MaxTokens, Temperature: in.Temperature, Stop: in.Stop, Seed: in.Seed,
		TopP: in.TopP, Form: in.Form,
	}
}

// sampleReply is the answer to POST /sample, or the last line of that answer if a stream
// was asked for.
type sampleReply struct {
	Tokens   []int32   `json:"tokens"`
	Logprobs []float32 `json:"logprobs"`
	Finish   string    `json:"finish"`
	Weights  string    `json:"weights"`
	Forced   []bool    `json:"forced,omitempty"`
	// Timing is missing if the sampler does not know it.
	Timing *model.Timing `json:"timing,omitempty"`
}

func newSampleReply(c model.Completion, weights string, timing model.Timing) sampleReply {
	out := sampleReply{Tokens: c.Tokens, Logprobs: c.Logprobs, Finish: c.Finish, Weights: weights, Forced: c.Forced}
	if timing != (model.Timing{}) {
		out.Timing = &timing
	}
	return out
}

// completion returns the completion of the reply, if the reply is complete.
func (r sampleReply) completion() (model.Completion, error) {
	n := len(r.Tokens)
	if n == 0 || len(r.Logprobs) != n || r.Weights == "" || (r.Forced != nil && len(r.Forced) != n) {
		return model.Completion{}, fmt.Errorf("the reply has %d tokens, %d log-probabilities, %d marks of forced ones, weights %q",
			n, len(r.Logprobs), len(r.Forced), r.Weights)
	}
	return model.Completion{Tokens: r.Tokens, Logprobs: r.Logprobs, Finish: r.Finish, Forced: r.Forced}, nil
}

// tokenLine is any line of a streamed reply except the last.
type tokenLine struct {
	Token   int32   `json:"token"`
	Logprob float32 `json:"logprob"`
}

// publishRequest is the body of POST /publish, which is answered with {}.
type publishRequest struct {
	Version model.VersionID `json:"version"`
}

// errorReply is the body of every reply that is not 200.
type errorReply struct {
	Error wireError `json:"error"`
}

type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// The numbers of model.PromptTooLong.
	Tokens    int `json:"tokens,omitempty"`
	Positions int `json:"positions,omitempty"`
}

// codeFault is the code of every error that is a fault of the machinery and has no other
// code.
const codeFault = "fault"

// kind is a kind of error that keeps its meaning when it is sent to a client.
type kind struct {
	code   string
	status int
	err    error
	fault  bool // of the machinery
}

func kinds() []kind {
	return []kind{
		{"prompt_too_long", http.StatusBadRequest, model.ErrPromptTooLong, false},
		{"bad_row", http.StatusBadRequest, model.ErrRow, false},
		{"unsupported_form", http.StatusBadRequest, model.ErrForm, false},
		{"not_found", http.StatusNotFound, trace.ErrNotFound, false},
		{"wrong_weights", http.StatusServiceUnavailable, model.ErrWrongWeights, true},
		{"corrupt", http.StatusServiceUnavailable, checkpoint.ErrCorrupt, true},
	}
}

// IsFault reports whether err is about the machinery rather than about the request, so
// that another sampler, or the same one later, may be able to answer.
func IsFault(err error) bool { return err != nil && classify(err).fault }

// classify returns the kind of err, which decides how it is sent.
func classify(err error) kind {
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			return k
		}
	}
	return kind{codeFault, http.StatusServiceUnavailable, err, true}
}

// errorOf returns the error that a reply describes. It wraps the error of its kind.
func errorOf(e wireError) error {
	for _, k := range kinds() {
		switch {
		case e.Code == k.code && e.Positions > 0:
			return &peerError{e.Message, &model.PromptTooLong{Tokens: e.Tokens, Positions: e.Positions}}
		case e.Code == k.code:
			return &peerError{e.Message, k.err}
		}
	}
	return fmt.Errorf("sampler: %s", e.Message)
}

// peerError holds the peer's own message and wraps cause.
type peerError struct {
	message string
	cause   error
}

func (e *peerError) Error() string { return e.message }
func (e *peerError) Unwrap() error { return e.cause }
