package native

import (
	"errors"

	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

// errAbandoned marks a request whose caller has gone.
var errAbandoned = errors.New("abandoned")

// request is one completion in progress. During a step, the thread that computes it may
// touch it too.
type request struct {
	*decode.Request
	scale    float32 // of the logits, for log-probabilities and, unless greedy, for sampling
	cached   int     // tokens whose keys and values are in pages
	feed     int     // tokens that the present step adds
	sampling bool    // the present step samples a token
	pages    []*kvcache.Page
	sought   bool     // whether other requests' pages were searched for a prefix of the prompt
	leader   *request // the request waits until leader has computed the first shared tokens of the prompt; nil if it does not wait
	shared   int
}

func newRequest(q *decode.Request) *request {
	return &request{Request: q, scale: inverseTemperature(q.Temperature)}
}

// remaining returns the number of tokens that are not yet in pages: the rest of the
// prompt, or the token sampled last.
func (q *request) remaining() int { return len(q.Prompt) + len(q.Completion.Tokens) - q.cached }

func (q *request) token(position int) int32 {
	if position < len(q.Prompt) {
		return q.Prompt[position]
	}
	return q.Completion.Tokens[position-len(q.Prompt)]
}
