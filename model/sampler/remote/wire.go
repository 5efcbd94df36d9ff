package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
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
		{"not_found", http.StatusNotFound, record.ErrNotFound, false},
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

// errBrokenStream is the error of a streamed reply that has no last line, or whose last
// line does not agree with the lines before it.
var errBrokenStream = errors.New("broken stream")

// lineBytes is enough for a few lines of the usual length.
const lineBytes = 512

// line is any line of a streamed reply.
type line struct {
	Token   *int32     `json:"token"`
	Logprob float32    `json:"logprob"`
	Error   *wireError `json:"error"`
	sampleReply
}

// readStream calls emit for each token and returns the whole reply.
func readStream(body io.Reader, emit func(token int32, logprob float32)) (sampleReply, error) {
	lines := bufio.NewReaderSize(io.LimitReader(body, 2*replyBytes), lineBytes) // the stream has all tokens twice
	var received sampleReply
	var l line
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return sampleReply{}, fmt.Errorf("%w: it ends after %d tokens", errBrokenStream, len(received.Tokens))
		}
		if err != nil {
			return sampleReply{}, fmt.Errorf("read stream after %d tokens: %w", len(received.Tokens), err)
		}
		l = line{}
		if err := json.Unmarshal(text, &l); err != nil {
			return sampleReply{}, fmt.Errorf("%w: decode line %d: %w", errBrokenStream, len(received.Tokens)+1, err)
		}
		switch {
		case l.Error != nil:
			return sampleReply{}, errorOf(*l.Error)
		case l.Token != nil:
			received.Tokens, received.Logprobs = append(received.Tokens, *l.Token), append(received.Logprobs, l.Logprob)
			emit(*l.Token, l.Logprob)
		case !slices.Equal(received.Tokens, l.Tokens) || !slices.Equal(received.Logprobs, l.Logprobs):
			return sampleReply{}, fmt.Errorf("%w: its %d tokens are not the %d of the reply", errBrokenStream, len(received.Tokens), len(l.Tokens))
		default:
			_, _ = io.Copy(io.Discard, lines) // there is no more, but a connection is reused only if it was read to its end
			return l.sampleReply, nil
		}
	}
}

// streamType is the content type of streamed replies: one JSON value for each line.
const streamType = "application/x-ndjson"

// flushInterval is the shortest time between two writes of tokens. Tokens that arrive
// sooner are written together, because a write and its read cost more than the tokens in
// it. The end of a stream is written without waiting.
const flushInterval = 20 * time.Millisecond

// tokenWriter writes tokens to a client as they are sampled. Sampling never waits for the
// client: tokens that the client has not taken yet are kept.
type tokenWriter struct {
	w     http.ResponseWriter
	ended chan struct{} // closed when all tokens were put

	mu     sync.Mutex
	tokens []tokenLine   // that were not written yet
	some   chan struct{} // holds a value if there are some
	begun  bool          // a token was put
}

func newTokenWriter(w http.ResponseWriter) *tokenWriter {
	return &tokenWriter{w: w, some: make(chan struct{}, 1), ended: make(chan struct{})}
}

// put adds a token to be written; it does not block.
func (tw *tokenWriter) put(token int32, logprob float32) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	tw.tokens, tw.begun = append(tw.tokens, tokenLine{token, logprob}), true
	select {
	case tw.some <- struct{}{}:
	default:
	}
}

// during runs sample and writes the tokens that are put meanwhile. last writes the rest.
func (tw *tokenWriter) during(sample func() (model.Completion, string, error)) (model.Completion, string, error) {
	var writer sync.WaitGroup
	writer.Go(tw.write)
	defer writer.Wait()
	defer close(tw.ended)
	return sample()
}

func (tw *tokenWriter) write() {
	for sent := (time.Time{}); ; sent = time.Now() {
		select {
		case <-tw.some:
		case <-tw.ended:
			return
		}
		if left := flushInterval - time.Since(sent); left > 0 {
			select {
			case <-time.After(left):
			case <-tw.ended:
				return
			}
		}
		if tw.send(tw.lines()) == nil {
			_ = http.NewResponseController(tw.w).Flush() // a client that has left does not read it
		}
	}
}

// lines removes the tokens that were not written yet, and returns their lines.
func (tw *tokenWriter) lines() []byte {
	tw.mu.Lock()
	tokens := tw.tokens
	tw.tokens = nil
	tw.mu.Unlock()
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, t := range tokens {
		if encoder.Encode(t) != nil {
			break // the number is not finite; the whole reply can't be written either
		}
	}
	return lines.Bytes()
}

// last writes the end of the stream, which the server sends when its handler returns.
func (tw *tokenWriter) last(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		line = []byte(unwritable)
	}
	_ = tw.send(slices.Concat(tw.lines(), line, []byte{'\n'})) // a client that has left does not read it
}

func (tw *tokenWriter) send(lines []byte) error {
	tw.w.Header().Set("Content-Type", streamType) // the first time
	_, err := tw.w.Write(lines)
	return err
}
