package gateway

import (
	"strings"

	"github.com/fulgurite/fulgurite/wire"
)

// replacement stands for bytes that are no character, perhaps not yet.
const replacement = "\uFFFD"

// transcript is the text of a completion while it is being sampled, as far as it is
// certain. What it says, and at which token, is a function of the tokens alone, so
// that whoever reads along hears the same.
type transcript struct {
	order  *order
	tokens []int32
	said   int  // bytes of the text that were said
	next   int  // how many tokens there have to be before it is worth to look again
	ended  bool // by a stop text
	// The first settled tokens of a Completions call are this text, whatever comes.
	settled int
	text    strings.Builder
	longest int // of the stop texts
}

func newTranscript(o *order) *transcript {
	t := &transcript{order: o}
	for _, s := range o.stops() {
		t.longest = max(t.longest, len(s))
	}
	return t
}

// add takes a token and returns what has become certain with it.
func (t *transcript) add(token int32) string {
	t.tokens = append(t.tokens, token)
	n := len(t.tokens)
	if t.ended || n < t.next {
		return ""
	}
	var text string
	if t.order.bareText() {
		text = t.bare()
	} else {
		// A codec reads a completion from its beginning. Looking less often as it
		// grows keeps the cost in proportion to its length.
		t.next = n + 1 + n/512
		text = t.order.codec.Partial(t.tokens, t.order.tools)
	}
	text = t.certain(text)
	if len(text) <= t.said {
		return ""
	}
	news := text[t.said:]
	t.said = len(text)
	return news
}

// thoughts are those before the text, which is what begins once they are complete.
func (t *transcript) thoughts() string {
	if t.order.request.API == wire.Completions {
		return ""
	}
	m, _ := t.order.codec.Parse(t.tokens, t.order.tools, toolCallIDs(""))
	return m.Reasoning
}

// bare is the text of all tokens, less a character at its end that is not complete.
func (t *transcript) bare() string {
	n := t.order.length(t.tokens)
	rest := t.order.codec.Text(t.tokens[t.settled:n])
	whole := strings.TrimRight(rest, replacement)
	if whole == rest {
		t.text.WriteString(rest)
		t.settled = n
		return t.text.String()
	}
	return t.text.String() + whole
}

// certain is text up to a stop text, or up to what may become one.
func (t *transcript) certain(text string) string {
	from := max(0, t.said-t.longest) // before that, none begins
	if at, _ := firstOf(text[min(from, len(text)):], t.order.stops()); at >= 0 {
		t.ended = true
		return text[:from+at]
	}
	for n := max(from, len(text)-t.longest+1); n < len(text); n++ {
		for _, s := range t.order.stops() {
			if strings.HasPrefix(s, text[n:]) {
				return text[:n]
			}
		}
	}
	return text
}
