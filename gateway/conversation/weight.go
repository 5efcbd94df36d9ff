package conversation

// Approximate bytes that an object takes in memory, not counting its tokens, texts and
// bodies.
const (
	attemptWeight = 4 << 10
	callWeight    = 2 << 10 // with its entries in the attempt's maps
	messageWeight = 256     // twice: in the request, and in the reply
)

// Weight returns about how many bytes the attempt takes in memory. It takes no lock.
func (a *Attempt) Weight() int64 { return a.weight.Load() }

// weigh brings the weight up to date. The caller holds the lock.
func (a *Attempt) weigh() {
	weight := attemptWeight + a.bytes
	if a.earlier != nil {
		weight += a.earlier.bytes
	}
	a.weight.Store(int64(weight))
}

// shareTokens stores the tokens of a call after those of the call that it continues. The
// first such call shares the array of its parent, so memory grows only with the new
// tokens of a dialog. No other goroutine may have the call yet. The caller holds the
// lock.
func (a *Attempt) shareTokens(c *Call) {
	n, all := len(c.Prompt), len(c.Prompt)+len(c.Completion)
	room, before := all, []int32(nil)
	if c.Parent >= 0 && c.Parent < len(a.calls) && a.calls[c.Parent].begins(c.Prompt) {
		if parent := a.calls[c.Parent]; !parent.continued {
			parent.continued = true
			// Twice the room, so that the arrays that a dialog has outgrown take no more
			// memory than the last one.
			room, before = 2*all, parent.sequence
		}
	}
	if cap(before) < all {
		before = make([]int32, 0, room)
		c.bytes += 4 * room
	}
	c.sequence = append(append(before, c.Prompt[len(before):]...), c.Completion...)
	c.Prompt, c.Completion = c.sequence[:n:n], c.sequence[n:all:all]
	c.bytes += callWeight + 4*cap(c.Logprobs) + cap(c.Untrained) + cap(c.Form) + cap(c.Response)
	for _, text := range []string{c.Message.Content, c.Message.Reasoning, c.ParseError, c.Problem} {
		c.bytes += len(text)
	}
	for _, tc := range c.Message.ToolCalls {
		c.bytes += messageWeight + len(tc.Function.Arguments)
	}
	if c.request != nil { // the body, and the texts that were decoded from it
		c.bytes += 2*cap(c.request.Body) + messageWeight*len(c.dialog)
	}
}
