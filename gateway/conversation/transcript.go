package conversation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// feed passes the tokens of a call in flight from the sampler to any number of readers,
// each at its own pace. The zero value is empty.
type feed struct {
	mu       sync.Mutex
	tokens   []int32
	logprobs []float32
	more     chan struct{} // closed with the next token; nil if no reader waits
}

// emitFor returns the function that receives tokens from a sampler. It is nil if the
// request wants its whole reply at once, because passing on each token has a cost and no
// use. A request that joins such a call and wants a stream gets the tokens at the end.
func (f *feed) emitFor(r *Request) func(int32, float32) {
	if !r.Stream {
		return nil
	}
	return f.add
}

// add takes a token from the sampler. It does not wait for readers.
func (f *feed) add(token int32, logprob float32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens, f.logprobs = append(f.tokens, token), append(f.logprobs, logprob)
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
}

// since returns the tokens after the first n, and a channel that is closed when there are
// more.
func (f *feed) since(n int) (tokens []int32, logprobs []float32, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more == nil {
		f.more = make(chan struct{})
	}
	return f.tokens[n:], f.logprobs[n:], f.more
}

// check verifies that the sampled completion begins with the emitted tokens, and that it
// has a log-probability and, if any are forced, a mark for each token.
func (f *feed) check(sampled model.Completion) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch n, all := len(f.tokens), len(sampled.Tokens); {
	case len(sampled.Logprobs) != all:
		return fmt.Errorf("%d log-probabilities for %d tokens", len(sampled.Logprobs), all)
	case sampled.Forced != nil && len(sampled.Forced) != all:
		return fmt.Errorf("%d marks for %d tokens", len(sampled.Forced), all)
	case n > all || !slices.Equal(f.tokens, sampled.Tokens[:n]):
		return errors.New("the completion is not what was sampled")
	}
	return nil
}

// replacement is the text of bytes that do not form a character, or not yet.
const replacement = "\uFFFD"

// Transcript is the text of a completion while it is being sampled, as far as it is
// certain. Its text after each token is a function of the tokens alone, so that every
// reader gets the same.
type Transcript struct {
	request *Request
	tokens  []int32
	written int  // bytes of the text that were returned
	next    int  // how many tokens there must be before the next decoding
	ended   bool // by a stop text
	// text is the text of the first decoded tokens of a Completions call. No token that
	// follows can change it.
	decoded int
	text    strings.Builder
	longest int // bytes of the longest stop text
}

// NewTranscript returns the transcript of a completion that answers the request.
func NewTranscript(r *Request) *Transcript {
	t := &Transcript{request: r}
	for _, s := range r.stops() {
		t.longest = max(t.longest, len(s))
	}
	return t
}

// Tokens returns the added tokens.
func (t *Transcript) Tokens() []int32 { return t.tokens }

// Add adds a token and returns the text that has become certain with it.
func (t *Transcript) Add(token int32) string {
	t.tokens = append(t.tokens, token)
	n := len(t.tokens)
	if t.ended || n < t.next {
		return ""
	}
	var text string
	if t.request.bareText() {
		text = t.bare()
	} else {
		// A codec reads a completion from its beginning. Looking less often as it
		// grows keeps the cost in proportion to its length.
		t.next = n + 1 + n/512
		text = t.request.partial(t.tokens)
	}
	text = t.certain(text)
	if len(text) <= t.written {
		return ""
	}
	added := text[t.written:]
	t.written = len(text)
	return added
}

// Reasoning returns the reasoning before the text. The text begins once the reasoning is
// complete.
func (t *Transcript) Reasoning() string { return t.request.reasoning(t.tokens) }

// bare returns the text of all tokens, without an incomplete character at its end.
func (t *Transcript) bare() string {
	n := t.request.Length(t.tokens)
	rest := t.request.Codec.Text(t.tokens[t.decoded:n])
	whole := strings.TrimRight(rest, replacement)
	if whole == rest {
		t.text.WriteString(rest)
		t.decoded = n
		return t.text.String()
	}
	return t.text.String() + whole
}

// certain returns the text up to a stop text, or up to what may become one.
func (t *Transcript) certain(text string) string {
	from := max(0, t.written-t.longest) // no stop text begins before that
	if at, _ := firstOf(text[min(from, len(text)):], t.request.stops()); at >= 0 {
		t.ended = true
		return text[:from+at]
	}
	for n := max(from, len(text)-t.longest+1); n < len(text); n++ {
		for _, s := range t.request.stops() {
			if strings.HasPrefix(s, text[n:]) {
				return text[:n]
			}
		}
	}
	return text
}
