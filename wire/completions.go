package wire

import (
	"encoding/json"
)

// completionsRequest is the JSON of a request of Completions, as far as it matters.
type completionsRequest struct {
	settings
	Prompt        json.RawMessage `json:"prompt"`
	Suffix        *string         `json:"suffix"`
	Echo          *bool           `json:"echo"`
	N             *float64        `json:"n"`
	BestOf        *float64        `json:"best_of"`
	MaxTokens     *float64        `json:"max_tokens"`
	Stop          json.RawMessage `json:"stop"`
	Logprobs      *float64        `json:"logprobs"`
	StreamOptions *streamOptions  `json:"stream_options"`
}

func (r *Request) decodeCompletions(body []byte) error {
	var w completionsRequest
	if err := Unmarshal(body, &w); err != nil {
		return err
	}
	r.readSettings(w.settings)
	r.Logprobs = w.Logprobs != nil
	r.Usage = w.StreamOptions != nil && w.StreamOptions.IncludeUsage
	switch {
	case w.Suffix != nil && *w.Suffix != "":
		return Invalid("suffix", "suffix is not supported: the model continues a text and fills no gaps")
	case w.Echo != nil && *w.Echo:
		return Invalid("echo", "echo is not supported: a reply holds only what was sampled")
	}
	if err := r.readN(w.N); err != nil {
		return err
	}
	if err := r.bestOf(w.BestOf); err != nil {
		return err
	}
	if err := r.readLimit("max_tokens", w.MaxTokens); err != nil {
		return err
	}
	if err := r.readStops("stop", w.Stop); err != nil {
		return err
	}
	if err := r.readAlternatives("logprobs", w.Logprobs); err != nil {
		return err
	}
	return r.readPrompt(w.Prompt)
}

// bestOf refuses to choose among replies.
func (r *Request) bestOf(most *float64) error {
	if most != nil && *most != float64(r.N) {
		return Invalid("best_of", "best_of is %v and n is %d: every reply that is sampled is given", *most, r.N)
	}
	return nil
}

// readPrompt reads one prompt: a text, token ids, or a list of one of these.
func (r *Request) readPrompt(raw json.RawMessage) error {
	const field = "prompt"
	var prompts []json.RawMessage
	switch {
	case !given(raw):
		return Invalid(field, "prompt is missing")
	case r.promptOf(raw):
	case json.Unmarshal(raw, &prompts) != nil:
		return Invalid(field, "prompt is neither text nor a list of token ids")
	case len(prompts) > 1:
		return Invalid(field, "prompt is not one text or one list of token ids: ask once for each prompt")
	case !r.promptOf(prompts[0]):
		return Invalid(field, "prompt holds neither text nor token ids")
	}
	if r.Text == "" && len(r.Tokens) == 0 {
		return Invalid(field, "prompt is empty")
	}
	return nil
}

// promptOf sets the prompt if raw is a text or a list of token ids, and reports whether
// it is.
func (r *Request) promptOf(raw json.RawMessage) bool {
	if raw[0] == '"' {
		r.Text = stringOf(raw)
		return true
	}
	var ids []*int32
	if json.Unmarshal(raw, &ids) != nil {
		return false
	}
	r.Tokens = nil
	for _, id := range ids {
		if id == nil || *id < 0 {
			return false
		}
		r.Tokens = append(r.Tokens, *id)
	}
	return true
}

// completionsReply is the JSON of a completion, whole or a piece of it.
type completionsReply struct {
	ID      string              `json:"id"`
	Object  string              `json:"object"`
	Created int64               `json:"created"`
	Model   string              `json:"model"`
	Choices []completionsChoice `json:"choices"`
	Usage   *openUsage          `json:"usage"`
}

type completionsChoice struct {
	Index        int           `json:"index"`
	Text         string        `json:"text"`
	Logprobs     *textLogprobs `json:"logprobs"`
	FinishReason *Finish       `json:"finish_reason"`
}

func (r *Request) completionsReply(reply Reply) completionsReply {
	body := completionsHead(reply)
	usage := reply.usage()
	body.Usage = &usage
	for i, c := range reply.Choices {
		finish := c.finish()
		choice := completionsChoice{Index: i, Text: c.Message.Content, FinishReason: &finish}
		if r.Logprobs {
			choice.Logprobs, _ = textLogprobsOf(c.Logprobs, 0)
		}
		body.Choices = append(body.Choices, choice)
	}
	return body
}

func completionsHead(head Reply) completionsReply {
	return completionsReply{
		ID: Completions.ReplyID(head.ID), Object: "text_completion", Created: head.Created.Unix(), Model: head.Model,
		Choices: []completionsChoice{},
	}
}

// completionsWriter streams a reply of Completions.
type completionsWriter struct {
	request *Request
	head    Reply
	offsets []int // where the next token of each choice begins
}

func (s *completionsWriter) add(e *events, piece completionsChoice) {
	chunk := completionsHead(s.head)
	chunk.Choices = append(chunk.Choices, piece)
	e.add("", chunk)
}

func (s *completionsWriter) begin(*events) {}

// reasoning writes nothing: a completion is text.
func (s *completionsWriter) reasoning(*events, int, string) {}

func (s *completionsWriter) content(e *events, choice int, text string, logprobs []Token) {
	if text == "" && len(logprobs) == 0 {
		return
	}
	piece := completionsChoice{Index: choice, Text: text}
	if s.request.Logprobs {
		piece.Logprobs, s.offsets[choice] = textLogprobsOf(logprobs, s.offsets[choice])
	}
	s.add(e, piece)
}

func (s *completionsWriter) end(e *events, reply Reply) {
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

func (s *completionsWriter) keepalive(e *events) { e.comment("keepalive") }

func (s *completionsWriter) fail(e *events, f *Failure) { e.add("", f.openBody()) }
