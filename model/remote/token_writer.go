package remote

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// streamType is the content type of streamed replies: a JSON value a line.
const streamType = "application/x-ndjson"

// tokenWriter writes tokens to a client as they are sampled. Sampling never waits for the
// client: what it has not taken yet is kept.
type tokenWriter struct {
	w     http.ResponseWriter
	begun bool // something was written; not to be read before during has returned

	mu      sync.Mutex
	tokens  []tokenLine
	ended   bool
	changed chan struct{} // holds a token if tokens or ended changed
}

func newTokenWriter(w http.ResponseWriter) *tokenWriter {
	return &tokenWriter{w: w, changed: make(chan struct{}, 1)}
}

// put hands on a token; it does not block.
func (tw *tokenWriter) put(token int32, logprob float32) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	tw.tokens = append(tw.tokens, tokenLine{token, logprob})
	tw.notify()
}

func (tw *tokenWriter) end() {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	tw.ended = true
	tw.notify()
}

func (tw *tokenWriter) notify() {
	select {
	case tw.changed <- struct{}{}:
	default:
	}
}

// during writes what is put while sample runs, and returns when all of it is
// written.
func (tw *tokenWriter) during(sample func() (model.Completion, string, error)) (model.Completion, string, error) {
	var writer sync.WaitGroup
	writer.Go(tw.write)
	defer writer.Wait()
	defer tw.end()
	return sample()
}

func (tw *tokenWriter) write() {
	for {
		tw.mu.Lock()
		tokens, ended := tw.tokens, tw.ended
		tw.tokens = nil
		tw.mu.Unlock()
		switch {
		case len(tokens) > 0:
			var lines bytes.Buffer
			encoder := json.NewEncoder(&lines)
			for _, t := range tokens {
				if encoder.Encode(t) != nil {
					return // not finite; neither can the whole reply be written
				}
			}
			tw.send(lines.Bytes())
		case ended:
			return
		default:
			<-tw.changed
		}
	}
}

// last writes the end of the stream.
func (tw *tokenWriter) last(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		line = []byte(unwritable)
	}
	tw.send(append(line, '\n'))
}

func (tw *tokenWriter) send(lines []byte) {
	if !tw.begun {
		tw.begun = true
		tw.w.Header().Set("Content-Type", streamType)
	}
	if _, err := tw.w.Write(lines); err != nil {
		return // who left does not read it
	}
	_ = http.NewResponseController(tw.w).Flush()
}
