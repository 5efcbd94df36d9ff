package remote

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

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
