package dialog

import (
	"encoding/json"
	"fmt"
	"strings"

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
