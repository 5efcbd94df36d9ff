package dialog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/model"
)

// MessagesName is the name of Messages in a spec.
const MessagesName = "messages"

// noted is the token of byte 0 of a note. The vocabulary of Messages has three parts: the
// bytes of texts, the same bytes again for notes, and marks. A note holds facts that are
// not part of the text. The ids are on record and never change.
const noted int32 = 256

const (
	systemMark   int32 = 512 + iota // begins a turn of instructions
	userMark                        // begins a user's turn
	replyMark                       // begins a turn of the assistant
	resultMark                      // begins a tool's result
	toolsMark                       // begins the list of tools, as JSON
	endMark                         // ends a turn, and the list
	callMark                        // begins a tool call, as JSON
	thoughtMark                     // reasoning follows
	wordMark                        // text follows again
	pieceMark                       // ends a token of the server, with its log-probability
	breakMark                       // ends a piece of text whose log-probability is not known
	messagesSize                    // how many there are
)

// Messages returns the codec for servers that take messages, return text, and never show
// the text's tokens:
//
//	dialog = { turn } <tools> JSON <end> <assistant>
//	turn   = ( <system> | <user> | <tool> | <assistant> ) { text | <thoughts> text <words> | <call> JSON } [ note ] <end>
//
// Its tokens are the bytes of the text. Nothing can be trained on them: they exist so
// that calls of such servers are recorded, replayed and continued like all others. The
// list of tools stands right before the reply, because each request sends its own.
func Messages() Relay { return messages{} }

// Relay is a codec of servers that return text. In addition to the text, a completion
// holds the server's token counts and the log-probabilities of the server's own tokens.
type Relay interface {
	Codec
	// Counted returns the server's counts for the completion, and false if the server
	// sent none.
	Counted(completion []int32) (Usage, bool)
	// Pieces returns those tokens of the server for which it sent log-probabilities.
	Pieces(completion []int32, logprobs []float32) []Piece
}

// Usage holds the numbers of tokens that a server counted.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// Piece is a token of an unknown vocabulary: only its text is known.
type Piece struct {
	Text    string
	Logprob float32
}

type messages struct{}

func (messages) Name() string   { return MessagesName }
func (messages) VocabSize() int { return int(messagesSize) }
func (messages) Stop() []int32  { return []int32{endMark} }

// Encode implements Codec.
func (messages) Encode(text string) []int32 { return appendBytes(nil, text, 0) }

// Prompt implements Codec.
func (m messages) Prompt(all []Message, tools []Tool) ([]int32, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no messages", ErrDialog)
	}
	return m.Bridge(all, tools)
}

// Bridge implements Codec.
func (messages) Bridge(later []Message, tools []Tool) ([]int32, error) {
	var ids []int32
	for i, m := range later {
		var err error
		if ids, err = appendTurn(ids, m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	ids = append(ids, toolsMark)
	if len(tools) > 0 {
		list, err := json.Marshal(tools)
		if err != nil {
			return nil, fmt.Errorf("%w: tools: %w", ErrDialog, err)
		}
		ids = appendBytes(ids, string(list), 0)
	}
	return append(ids, endMark, replyMark), nil
}

// Demonstration implements Codec. It always returns an error, because nothing can be
// trained with this codec.
func (messages) Demonstration(Dialog) ([]int32, []bool, error) {
	return nil, nil, fmt.Errorf("%w: codec %s has no tokens of a model, so nothing can be trained with it", ErrDialog, MessagesName)
}

// Constrain implements Codec. The constraint allows everything: it is the server that
// holds its replies to a form.
func (messages) Constrain(model.Form) (model.Constraint, error) { return unconstrained{}, nil }

type unconstrained struct{}

func (unconstrained) Allowed(model.TokenSet) bool { return false }
func (unconstrained) Accept(int32) bool           { return false }

// Text implements Codec. It leaves notes out.
func (messages) Text(tokens []int32) string {
	names := [...]string{"<system>", "<user>", "<assistant>", "<tool>", "<tools>", "<end>", "<call>", "<thoughts>", "<words>"}
	var b strings.Builder
	for _, id := range tokens {
		switch at := int(id - systemMark); {
		case id >= 0 && id < noted:
			b.WriteByte(byte(id))
		case at >= 0 && at < len(names):
			b.WriteString(names[at])
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// turnNote has the fields of a message that are not words.
type turnNote struct {
	Of   string `json:"tool_call_id,omitempty"`
	Name string `json:"name,omitempty"`
}

func appendTurn(ids []int32, m Message) ([]int32, error) {
	marks := map[Role]int32{System: systemMark, "developer": systemMark, User: userMark, Assistant: replyMark, ToolReply: resultMark}
	mark, ok := marks[m.Role]
	if !ok {
		return nil, fmt.Errorf("%w: role %q", ErrDialog, m.Role)
	}
	ids = append(ids, mark)
	if m.Reasoning != "" {
		ids = append(appendBytes(append(ids, thoughtMark), m.Reasoning, 0), wordMark)
	}
	ids = appendBytes(ids, m.Content, 0)
	for _, c := range m.ToolCalls {
		call, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("%w: tool call %s: %w", ErrDialog, c.ID, err)
		}
		ids = appendBytes(append(ids, callMark), string(call), 0)
	}
	if note := (turnNote{m.ToolCallID, m.Name}); note != (turnNote{}) {
		text, err := json.Marshal(note)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDialog, err)
		}
		ids = appendBytes(ids, string(text), noted)
	}
	return append(ids, endMark), nil
}

// appendBytes appends the bytes of text to ids; byte b becomes the token first + b.
func appendBytes(ids []int32, text string, first int32) []int32 {
	for i := range len(text) {
		ids = append(ids, first+int32(text[i]))
	}
	return ids
}

// Asked is a decoded prompt of Messages: a dialog, or a text to continue.
type Asked struct {
	Dialog
	Text string
}

// ReadPrompt reads a prompt of Messages. The tool calls of recorded replies have no ids,
// so they get the ids that their results name.
func ReadPrompt(prompt []int32) (Asked, error) {
	if len(prompt) == 0 || prompt[0] < noted {
		if slices.ContainsFunc(prompt, func(id int32) bool { return id < 0 || id >= noted }) {
			return Asked{}, fmt.Errorf("%w: the prompt is neither turns nor text", ErrDialog)
		}
		return Asked{Text: messages{}.Text(prompt)}, nil
	}
	if prompt[len(prompt)-1] != replyMark {
		return Asked{}, fmt.Errorf("%w: the prompt does not end where the assistant speaks", ErrDialog)
	}
	var out Asked
	for rest := prompt[:len(prompt)-1]; len(rest) > 0; {
		n := slices.Index(rest, endMark)
		if n < 1 {
			return Asked{}, fmt.Errorf("%w: a turn without an end, or an end without a turn", ErrDialog)
		}
		if err := out.add(rest[0], rest[1:n], n+1 == len(rest)); err != nil {
			return Asked{}, err
		}
		rest = rest[n+1:]
	}
	nameCalls(out.Messages)
	return out, nil
}

// add adds a turn. If the turn is a list of tools, add keeps it only if it is the last
// turn: that list belongs to the request.
func (a *Asked) add(mark int32, said []int32, last bool) error {
	roles := map[int32]Role{systemMark: System, userMark: User, replyMark: Assistant, resultMark: ToolReply}
	role, ok := roles[mark]
	switch {
	case mark == toolsMark && last && len(said) > 0:
		if err := json.Unmarshal([]byte(messages{}.Text(said)), &a.Tools); err != nil {
			return fmt.Errorf("%w: tools: %w", ErrDialog, err)
		}
		return nil
	case mark == toolsMark:
		return nil
	case !ok:
		return fmt.Errorf("%w: token %d begins no turn", ErrDialog, mark)
	}
	u, err := parseTurn(said)
	if err != nil {
		return err
	}
	m := Message{Role: role, Content: u.words, Reasoning: u.thoughts, ToolCalls: u.calls}
	if u.note != "" {
		var note turnNote
		if err := json.Unmarshal([]byte(u.note), &note); err != nil {
			return fmt.Errorf("%w: note of a turn: %w", ErrDialog, err)
		}
		m.ToolCallID, m.Name = note.Of, note.Name
	}
	a.Messages = append(a.Messages, m)
	return nil
}

// turnParts are the parts of a turn.
type turnParts struct {
	words, thoughts string
	calls           []ToolCall
	note            string // JSON
	raw             string // the whole turn but the note, in readable form
}

// parseTurn separates the parts of a turn, up to its end.
func parseTurn(tokens []int32) (turnParts, error) {
	var u turnParts
	var words, thoughts, note, call []byte
	into := &words
	var problem error
	closeCall := func() {
		if into != &call {
			return
		}
		c := ToolCall{Type: "function"}
		if err := json.Unmarshal(call, &c); err != nil && problem == nil {
			problem = fmt.Errorf("%w: tool call %d: %w", ErrDialog, len(u.calls), err)
		}
		u.calls, call = append(u.calls, c), nil
	}
	n := slices.Index(tokens, endMark)
	if n < 0 {
		n = len(tokens)
	}
	for _, id := range tokens[:n] {
		switch {
		case id >= 0 && id < noted:
			*into = append(*into, byte(id))
		case id >= noted && id < 2*noted:
			note = append(note, byte(id-noted))
		case id == callMark:
			closeCall()
			into = &call
		case id == thoughtMark:
			closeCall()
			into = &thoughts
		case id == wordMark:
			closeCall()
			into = &words
		case id == pieceMark || id == breakMark:
		default:
			problem = errors.Join(problem, fmt.Errorf("%w: token %d inside of a turn", ErrDialog, id))
		}
	}
	closeCall()
	u.words, u.thoughts, u.note = valid(words), valid(thoughts), string(note)
	u.raw = messages{}.Text(tokens[:n])
	return u, problem
}

func valid(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// nameCalls gives each tool call without an id the id of its result, or a new id if it
// has no result.
func nameCalls(all []Message) {
	for i := range all {
		var results []string
		for _, m := range all[i+1:] {
			if m.Role != ToolReply {
				break
			}
			results = append(results, m.ToolCallID)
		}
		calls := all[i].ToolCalls
		for k := range calls {
			if calls[k].ID != "" {
				continue
			}
			if calls[k].ID = resultOf(k, len(calls), results); calls[k].ID == "" {
				calls[k].ID = fmt.Sprintf("call_%d_%d", i, k)
			}
		}
	}
}

// resultOf returns the id of the result of call k: the id that ends in the call's number,
// as the gateway's ids do. If no id ends in the number of any call, it returns the id of
// result k, or "" if there is no such result.
func resultOf(k, calls int, results []string) string {
	at := func(k int) int {
		return slices.IndexFunc(results, func(id string) bool { return strings.HasSuffix(id, "_"+strconv.Itoa(k)) })
	}
	if n := at(k); n >= 0 {
		return results[n]
	}
	for other := range calls {
		if at(other) >= 0 {
			return ""
		}
	}
	if k < len(results) {
		return results[k]
	}
	return ""
}

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
