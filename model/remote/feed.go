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

// feed writes tokens to a client as they are sampled. Sampling never waits for the
// client: what it has not taken yet is kept.
type feed struct {
	w     http.ResponseWriter
	begun bool // something was written; not to be read before during has returned

	mu      sync.Mutex
	tokens  []tokenLine
	ended   bool
	changed chan struct{} // holds a token if tokens or ended changed
}

func newFeed(w http.ResponseWriter) *feed { return &feed{w: w, changed: make(chan struct{}, 1)} }

// put hands on a token; it does not block.
func (f *feed) put(token int32, logprob float32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = append(f.tokens, tokenLine{token, logprob})
	f.notify()
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.notify()
}

func (f *feed) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// during writes what is put while sample runs, and returns when all of it is
// written.
func (f *feed) during(sample func() (model.Completion, string, error)) (model.Completion, string, error) {
	var writer sync.WaitGroup
	writer.Go(f.write)
	defer writer.Wait()
	defer f.end()
	return sample()
}

func (f *feed) write() {
	for {
		f.mu.Lock()
		tokens, ended := f.tokens, f.ended
		f.tokens = nil
		f.mu.Unlock()
		switch {
		case len(tokens) > 0:
			var lines bytes.Buffer
			encoder := json.NewEncoder(&lines)
			for _, t := range tokens {
				if encoder.Encode(t) != nil {
					return // not finite; neither can the whole reply be written
				}
			}
			f.send(lines.Bytes())
		case ended:
			return
		default:
			<-f.changed
		}
	}
}

// last writes the end of the stream.
func (f *feed) last(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		line = []byte(unwritable)
	}
	f.send(append(line, '\n'))
}

func (f *feed) send(lines []byte) {
	if !f.begun {
		f.begun = true
		f.w.Header().Set("Content-Type", streamType)
	}
	if _, err := f.w.Write(lines); err != nil {
		return // who left does not read it
	}
	_ = http.NewResponseController(f.w).Flush()
}
