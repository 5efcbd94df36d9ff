package dialog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// CompactName is the name of Compact in a spec.
const CompactName = "compact"

// ErrDialog is wrapped by errors about a dialog that can't be laid out.
var ErrDialog = errors.New("bad dialog")

// Compact lays a dialog out in as few tokens of tokenizer.Bytes as are unambiguous, so
// that a call of a tool and its result fit a model with a context of 64 tokens:
//
//	dialog    = [ <tools> name { <arg> name } <end> ] { turn } <assistant>
//	turn      = ( <system> | <user> | <tool> ) text <end>
//	          | <assistant> [ text ] { <call> call } <end>
//	call      = [ name <arg> ] argument
//
// The list of tools is written only when several tools are offered. When exactly one is
// offered, calls leave out its name. The argument is the JSON object of the parameters.
// If the tool's only parameter is a required string, the argument is that string. Results
// of tools follow in the order of the messages.
func Compact() Codec { return compact{} }

type compact struct{ vocabulary tokenizer.Bytes }

func (compact) Name() string     { return CompactName }
func (c compact) VocabSize() int { return c.vocabulary.VocabSize() }
func (compact) Stop() []int32    { return []int32{tokenizer.End} }

// Encode implements Codec.
func (c compact) Encode(text string) []int32 { return c.vocabulary.Encode(text) }

func (c compact) Prompt(messages []Message, tools []Tool) ([]int32, error) {
	if len(messages) == 0 {
		return nil, fmt.Errorf("%w: no messages", ErrDialog)
	}
	return c.untilReply(c.offer(tools), messages, tools)
}

func (c compact) Bridge(later []Message, tools []Tool) ([]int32, error) {
	return c.untilReply(nil, later, tools)
}

// Demonstration returns an error for a dialog in which there is nothing to learn, and for
// tool calls that Parse would not read back.
func (c compact) Demonstration(d Dialog) ([]int32, []bool, error) {
	ids := c.offer(d.Tools)
	trained := make([]bool, len(ids))
	learned := false
	for i, m := range d.Messages {
		begin := len(ids)
		var err error
		if ids, err = c.turn(ids, m, d.Tools); err != nil {
			return nil, nil, fmt.Errorf("demonstration message %d: %w", i, err)
		}
		learn := m.Role == Assistant && (m.Weight == nil || *m.Weight != 0)
		if learn {
			if err := c.readable(ids[begin+1:], m, d.Tools); err != nil {
				return nil, nil, fmt.Errorf("demonstration message %d: %w", i, err)
			}
		}
		trained = append(trained, false) // the role's token belongs to the prompt
		for range len(ids) - begin - 1 {
			trained = append(trained, learn)
		}
		learned = learned || learn
	}
	if !learned {
		return nil, nil, fmt.Errorf("%w: demonstration without an assistant message to learn", ErrDialog)
	}
	return ids, trained, nil
}

func (c compact) Text(tokens []int32) string {
	var b strings.Builder
	plain := 0
	for i, id := range tokens {
		if known := id >= 0 && int(id) < c.VocabSize(); known && !c.vocabulary.Special(id) {
			continue
		}
		b.WriteString(c.plain(tokens[plain:i]))
		b.WriteString(c.vocabulary.Name(id))
		plain = i + 1
	}
	b.WriteString(c.plain(tokens[plain:]))
	return b.String()
}

// plain returns the text of ids as valid UTF-8, which JSON can hold.
func (c compact) plain(ids []int32) string {
	return strings.ToValidUTF8(c.vocabulary.Decode(ids), "\uFFFD")
}

// Bytes implements Speller.
func (c compact) Bytes(token int32) []byte {
	if token < 0 || int(token) >= c.VocabSize() || c.vocabulary.Special(token) {
		return []byte(c.vocabulary.Name(token))
	}
	return []byte(c.vocabulary.Decode([]int32{token}))
}

// readable returns an error unless Parse reads completion as m.
func (c compact) readable(completion []int32, m Message, tools []Tool) error {
	got, problem := c.Parse(completion, tools, func(int) string { return "" })
	if problem != "" {
		return fmt.Errorf("%w: %s", ErrDialog, problem)
	}
	return sameCalls(got.ToolCalls, m.ToolCalls)
}

// sameCalls returns an error if the calls that were read differ from those that were
// meant.
func sameCalls(got, meant []ToolCall) error {
	for k := range meant {
		if want := meant[k].Function; got[k].Function.Name != want.Name || !equalJSON(got[k].Function.Arguments, want.Arguments) {
			return fmt.Errorf("%w: tool call %d does not fit the parameters of %q", ErrDialog, k, want.Name)
		}
	}
	return nil
}

func (c compact) offer(tools []Tool) []int32 {
	if len(tools) < 2 {
		return nil
	}
	ids := []int32{tokenizer.Tools}
	for i, t := range tools {
		if i > 0 {
			ids = append(ids, tokenizer.Argument)
		}
		ids = append(ids, c.vocabulary.Encode(t.Name)...)
	}
	return append(ids, tokenizer.End)
}

func (c compact) untilReply(ids []int32, messages []Message, tools []Tool) ([]int32, error) {
	for i, m := range messages {
		var err error
		if ids, err = c.turn(ids, m, tools); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return append(ids, tokenizer.Assistant), nil
}

func (c compact) turn(ids []int32, m Message, tools []Tool) ([]int32, error) {
	switch m.Role {
	case System, "developer":
		ids = append(ids, tokenizer.System)
	case User:
		ids = append(ids, tokenizer.User)
	case ToolReply:
		ids = append(ids, tokenizer.ToolReply)
	case Assistant:
		ids = append(ids, tokenizer.Assistant)
	default:
		return nil, fmt.Errorf("%w: role %q", ErrDialog, m.Role)
	}
	if m.Role != Assistant && len(m.ToolCalls) > 0 {
		return nil, fmt.Errorf("%w: tool calls in a turn of role %q", ErrDialog, m.Role)
	}
	ids = append(ids, c.vocabulary.Encode(m.Content)...)
	for _, call := range m.ToolCalls {
		ids = append(ids, tokenizer.ToolCall)
		ids = append(ids, c.call(call.Function, tools)...)
	}
	return append(ids, tokenizer.End), nil
}
