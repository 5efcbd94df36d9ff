package inflight

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/gateway/conversation"
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
// request wants its whole reply at once, since passing on each token has a cost and no
// use. A request that joins such a call and wants a stream gets the tokens at the end.
func (f *feed) emitFor(r *conversation.Request) func(int32, float32) {
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
