package wire

// completionsScript tells a reply of Completions.
type completionsScript struct {
	request *Request
	head    Reply
	offsets []int // where the next token of each choice begins
}

func (s *completionsScript) add(e *events, piece completionsChoice) {
	chunk := completionsHead(s.head)
	chunk.Choices = append(chunk.Choices, piece)
	e.add("", chunk)
}

func (s *completionsScript) begin(*events) {}

// reason tells nothing: a completion is text.
func (s *completionsScript) reason(*events, int, string) {}

func (s *completionsScript) say(e *events, choice int, text string, logprobs []Token) {
	if text == "" && len(logprobs) == 0 {
		return
	}
	piece := completionsChoice{Index: choice, Text: text}
	if s.request.Logprobs {
		piece.Logprobs, s.offsets[choice] = textLogprobsOf(logprobs, s.offsets[choice])
	}
	s.add(e, piece)
}

func (s *completionsScript) end(e *events, reply Reply) {
	for i, c := range reply.Choices {
		s.add(e, completionsChoice{Index: i, FinishReason: new(c.finish())})
	}
	if s.request.Usage {
		chunk := completionsHead(s.head)
		chunk.Usage = new(reply.usage())
		e.add("", chunk)
	}
	e.done()
}

func (s *completionsScript) alive(e *events) { e.comment("keepalive") }

func (s *completionsScript) fail(e *events, f *Failure) { e.add("", f.openBody()) }
