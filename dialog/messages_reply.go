package dialog

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/model"
)

// Facts are what a server says about its reply, in addition to the text.
type Facts struct {
	ID     string `json:"id,omitempty"`
	Model  string `json:"model,omitempty"`         // the model that really replied
	Finish string `json:"finish_reason,omitempty"` // in the server's words
	Usage  *Usage `json:"usage,omitempty"`
}

// Speaker writes a server's reply in tokens of Messages while the reply arrives. Its zero
// value is ready for use.
type Speaker struct {
	// Emit, if not nil, gets each token at once.
	Emit func(token int32, logprob float32)

	said     model.Completion
	thinking bool
}

// Think adds reasoning that the server shows.
func (s *Speaker) Think(text string) {
	if text == "" {
		return
	}
	if !s.thinking {
		s.thinking = true
		s.put(thoughtMark, 0)
	}
	s.spell(text, 0)
}

// Say takes text, which may end in the middle of a character.
func (s *Speaker) Say(text []byte) { s.say(text, breakMark, 0) }

// SayToken adds the text of one token of the server, with its log-probability.
func (s *Speaker) SayToken(text []byte, logprob float32) { s.say(text, pieceMark, logprob) }

func (s *Speaker) say(text []byte, end int32, logprob float32) {
	if len(text) == 0 {
		return
	}
	if s.thinking {
		s.thinking = false
		s.put(wordMark, 0)
	}
	s.spell(string(text), 0)
	s.put(end, logprob)
}

// Call adds a complete tool call, after all text. It leaves out the server's id of the
// call, because agents see another one.
func (s *Speaker) Call(f Function) {
	text, _ := json.Marshal(ToolCall{Type: "function", Function: f}) // strings always encode
	s.put(callMark, 0)
	s.spell(string(text), 0)
}

// End returns the whole reply. None of its tokens can be trained.
func (s *Speaker) End(facts Facts) model.Completion {
	note, _ := json.Marshal(facts) // strings and numbers always encode
	s.spell(string(note), noted)
	s.put(endMark, 0)
	s.said.Finish = "stop"
	if facts.Finish == "length" {
		s.said.Finish = facts.Finish
	}
	s.said.Forced = make([]bool, len(s.said.Tokens))
	for i := range s.said.Forced {
		s.said.Forced[i] = true
	}
	return s.said
}

func (s *Speaker) spell(text string, first int32) {
	for _, id := range appendBytes(nil, text, first) {
		s.put(id, 0)
	}
}

func (s *Speaker) put(token int32, logprob float32) {
	s.said.Tokens, s.said.Logprobs = append(s.said.Tokens, token), append(s.said.Logprobs, logprob)
	if s.Emit != nil {
		s.Emit(token, logprob)
	}
}

// Parse implements Codec.
func (messages) Parse(completion []int32, tools []Tool, callID func(k int) string) (Message, string) {
	u, err := parseTurn(completion)
	m := Message{Role: Assistant, Content: u.words, Reasoning: u.thoughts}
	if err == nil {
		err = callable(u.calls, tools)
	}
	if err != nil {
		for _, c := range u.calls {
			m.Content += fmt.Sprintf("%s(%s)", c.Function.Name, c.Function.Arguments)
		}
		return m, err.Error()
	}
	for k, c := range u.calls {
		c.ID = callID(k)
		if c.Function.Arguments == "" {
			c.Function.Arguments = "{}" // servers write absent arguments in different ways
		}
		m.ToolCalls = append(m.ToolCalls, c)
	}
	return m, ""
}

// callable returns an error for the first call that a client could not read.
func callable(calls []ToolCall, tools []Tool) error {
	for k, c := range calls {
		var arguments map[string]json.RawMessage
		switch name := c.Function.Name; {
		case !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == name }):
			return fmt.Errorf("tool call %d: there is no tool %q", k, name)
		case c.Function.Arguments == "":
		case json.Unmarshal([]byte(c.Function.Arguments), &arguments) != nil || arguments == nil:
			return fmt.Errorf("tool call %d: the arguments are not a JSON object", k)
		}
	}
	return nil
}

// Partial implements Codec. It returns the text up to the last whole piece, before any
// call.
func (messages) Partial(completion []int32, tools []Tool) string {
	if slices.Contains(completion, endMark) {
		m, _ := messages{}.Parse(completion, tools, func(int) string { return "" })
		return m.Content
	}
	if n := slices.Index(completion, callMark); n >= 0 {
		completion = completion[:n]
	}
	last := len(completion)
	for last > 0 && completion[last-1] != pieceMark && completion[last-1] != breakMark {
		last--
	}
	words, thinking := []byte(nil), false
	for _, id := range completion[:last] {
		switch {
		case id == thoughtMark || id == wordMark:
			thinking = id == thoughtMark
		case id >= 0 && id < noted && !thinking:
			words = append(words, byte(id))
		}
	}
	return valid(words[:len(words)-unfinished(words)])
}

// unfinished returns how many bytes at the end of text may still become a character.
func unfinished(text []byte) int {
	for n := 1; n <= min(len(text), utf8.UTFMax); n++ {
		if end := text[len(text)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Counted implements Relay.
func (messages) Counted(completion []int32) (Usage, bool) {
	u, err := parseTurn(completion)
	var facts Facts
	if err != nil || json.Unmarshal([]byte(u.note), &facts) != nil || facts.Usage == nil {
		return Usage{}, false
	}
	return *facts.Usage, true
}

// Pieces implements Relay.
func (messages) Pieces(completion []int32, logprobs []float32) []Piece {
	var out []Piece
	var text []byte
	for i, id := range completion {
		switch {
		case id >= 0 && id < noted:
			text = append(text, byte(id))
			continue
		case id == pieceMark:
			out = append(out, Piece{string(text), logprobs[i]})
		}
		text = nil
	}
	return out
}
