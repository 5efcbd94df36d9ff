package inflight

import (
	"strings"

	"github.com/fulgurite/fulgurite/gateway/conversation"
)

// replacement is the text of bytes that do not form a character, or not yet.
const replacement = "\uFFFD"

// Transcript is the text of a completion while it is being sampled, as far as it is
// certain. Its text after each token is a function of the tokens alone, so that every
// reader gets the same.
type Transcript struct {
	request *conversation.Request
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
func NewTranscript(r *conversation.Request) *Transcript {
	t := &Transcript{request: r}
	for _, s := range r.Stops() {
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
	if t.request.BareText() {
		text = t.bare()
	} else {
		// A codec reads a completion from its beginning. Looking less often as it
		// grows keeps the cost in proportion to its length.
		t.next = n + 1 + n/512
		text = t.request.Partial(t.tokens)
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
func (t *Transcript) Reasoning() string { return t.request.Reasoning(t.tokens) }

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
	if at, _ := conversation.FirstOf(text[min(from, len(text)):], t.request.Stops()); at >= 0 {
		t.ended = true
		return text[:from+at]
	}
	for n := max(from, len(text)-t.longest+1); n < len(text); n++ {
		for _, s := range t.request.Stops() {
			if strings.HasPrefix(s, text[n:]) {
				return text[:n]
			}
		}
	}
	return text
}
