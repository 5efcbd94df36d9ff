package dialog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
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

// call encodes a tool call. A call that does not fit the offered tools, as in a history
// that another model wrote, is encoded with its name and its arguments unchanged.
func (c compact) call(f Function, tools []Tool) []int32 {
	var ids []int32
	if len(tools) != 1 || tools[0].Name != f.Name {
		ids = append(c.vocabulary.Encode(f.Name), tokenizer.Argument)
	}
	argument := f.Arguments
	if i := find(tools, f.Name); i >= 0 {
		if p, ok := soleText(tools[i]); ok {
			argument = textArgument(f.Arguments, p)
		}
	}
	return append(ids, c.vocabulary.Encode(argument)...)
}

func (c compact) Parse(completion []int32, tools []Tool, callID func(k int) string) (Message, string) {
	body := completion
	end := slices.Index(completion, tokenizer.End)
	if end >= 0 {
		body = completion[:end]
	}
	parts := split(body, tokenizer.ToolCall)
	reply := Message{Role: Assistant, Content: c.plain(parts[0])}
	problem := c.misplaced(parts[0])
	if problem == "" && len(parts) > 1 && end < 0 {
		problem = "tool call cut off before its end"
	}
	for k, part := range parts[1:] {
		if problem != "" {
			break
		}
		var f Function
		if f, problem = c.parseCall(part, tools); problem == "" {
			reply.ToolCalls = append(reply.ToolCalls, ToolCall{ID: callID(k), Type: "function", Function: f})
		}
	}
	if problem != "" {
		return Message{Role: Assistant, Content: c.Text(body)}, problem
	}
	return reply, ""
}

func (c compact) parseCall(part []int32, tools []Tool) (Function, string) {
	var tool Tool
	argument := part
	switch at := slices.Index(part, tokenizer.Argument); {
	case len(tools) == 0:
		return Function{}, "tool call, but no tool is offered"
	case at >= 0:
		i := find(tools, c.plain(part[:at]))
		if i < 0 {
			return Function{}, fmt.Sprintf("call of the unknown tool %q", c.Text(part[:at]))
		}
		if problem := c.misplaced(part[:at]); problem != "" {
			return Function{}, problem
		}
		tool, argument = tools[i], part[at+1:]
	case len(tools) == 1:
		tool = tools[0]
	default:
		return Function{}, "tool call without the tool's name"
	}
	if problem := c.misplaced(argument); problem != "" {
		return Function{}, problem
	}
	text := c.plain(argument)
	if p, ok := soleText(tool); ok {
		return Function{tool.Name, objectOf(p, text)}, ""
	}
	if !isObject(text) {
		return Function{}, fmt.Sprintf("arguments of %q are not a JSON object", tool.Name)
	}
	return Function{tool.Name, text}, ""
}

// misplaced names the first token of ids that is not text.
func (c compact) misplaced(ids []int32) string {
	for _, id := range ids {
		if c.vocabulary.Special(id) || id < 0 || int(id) >= c.VocabSize() {
			return c.vocabulary.Name(id) + " out of place"
		}
	}
	return ""
}

// Partial implements Codec. It leaves out an incomplete character at the end. It also
// leaves out everything from the first token on that is not text, because only the end of
// the reply decides whether that is a call or content.
func (c compact) Partial(completion []int32, tools []Tool) string {
	if slices.Contains(completion, tokenizer.End) {
		reply, _ := c.Parse(completion, tools, func(int) string { return "" })
		return reply.Content
	}
	for i := range completion {
		if c.misplaced(completion[i:i+1]) != "" {
			return c.plain(completion[:i])
		}
	}
	return c.plain(completion[:len(completion)-c.half(completion)])
}

// half returns how many tokens at the end of ids may still become a character.
func (c compact) half(ids []int32) int {
	end := c.vocabulary.Decode(ids[max(0, len(ids)-utf8.UTFMax):])
	for n := 1; n <= len(end); n++ {
		if b := end[len(end)-n:]; utf8.RuneStart(b[0]) {
			if utf8.FullRuneInString(b) {
				return 0
			}
			return n
		}
	}
	return 0
}

func find(tools []Tool, name string) int {
	return slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
}

// split cuts ids at each separator, which it drops; there is at least one part.
func split(ids []int32, separator int32) [][]int32 {
	var parts [][]int32
	for {
		i := slices.Index(ids, separator)
		if i < 0 {
			return append(parts, ids)
		}
		parts, ids = append(parts, ids[:i]), ids[i+1:]
	}
}

// soleText returns the name of a tool's parameter if the tool takes exactly one and that
// is a required string.
func soleText(t Tool) (parameter string, ok bool) {
	var schema struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal(t.Parameters, &schema) != nil || len(schema.Properties) != 1 {
		return "", false
	}
	for name, p := range schema.Properties {
		parameter, ok = name, p.Type == "string" && slices.Contains(schema.Required, name)
	}
	return parameter, ok
}

// textArgument returns the string that arguments hold for the parameter, or arguments
// unchanged if they are not an object of that one string.
func textArgument(arguments, parameter string) string {
	var object map[string]any
	if json.Unmarshal([]byte(arguments), &object) == nil && len(object) == 1 {
		if text, ok := object[parameter].(string); ok {
			return text
		}
	}
	return arguments
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && json.Valid([]byte(text))
}

func equalJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// objectOf returns a JSON object of one string. It does not escape characters for HTML,
// which would make expressions unreadable.
func objectOf(name, text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]string{name: text}) // strings always encode
	return strings.TrimSuffix(b.String(), "\n")
}

// WholeCalls implements Cutter.
func (c compact) WholeCalls(completion []int32) []int32 {
	if slices.Contains(completion, tokenizer.End) {
		return nil
	}
	last := len(completion) - 1
	for last >= 0 && completion[last] != tokenizer.ToolCall {
		last--
	}
	if last < 0 || !slices.Contains(completion[:last], tokenizer.ToolCall) {
		return nil
	}
	return append(slices.Clone(completion[:last]), tokenizer.End)
}

// maxCalls is the largest number of tool calls in a reply that is held to a form.
const maxCalls = 16

// Constrain implements Codec. A form that masks allows each character in one spelling
// only, the one that Encode writes. A stop text ends a reply in its content, not in the
// arguments of a call.
func (c compact) Constrain(form model.Form) (model.Constraint, error) {
	grammar := func(b *schema.Builder) (schema.Expression, error) {
		said, err := replies(b, form, func() (schema.Expression, error) { return c.calls(b, form) })
		return b.Sequence(said, b.Special(tokenizer.End)), err
	}
	calling := false
	return constrain(form, grammar, c.canonical, func(token int32) string {
		if calling = !form.Bare && (calling || token == tokenizer.ToolCall); calling {
			return ""
		}
		return c.vocabulary.Decode([]int32{token})
	})
}

// calls returns the grammar of calls of the form's tools. If a tool's schema is not
// supported and the form does not require a call, the tool takes any arguments: such a
// form does not promise valid ones.
func (c compact) calls(b *schema.Builder, form model.Form) (schema.Expression, error) {
	if len(form.Tools) == 0 {
		return schema.Expression{}, errors.New("a tool call without tools")
	}
	var options []schema.Expression
	for i, t := range form.Tools {
		argument, err := c.argument(b, t)
		if err != nil && !form.Call {
			t.Parameters = json.RawMessage(`{}`)
			argument, err = c.argument(b, t)
		}
		if err != nil {
			return schema.Expression{}, fmt.Errorf("parameters of tool %d, %q: %w", i, t.Name, err)
		}
		if len(form.Tools) > 1 {
			argument = b.Sequence(b.Literal(t.Name), b.Special(tokenizer.Argument), argument)
		}
		options = append(options, b.Sequence(b.Special(tokenizer.ToolCall), argument))
	}
	return b.Repeat(b.Choice(options...), 1, maxCalls), nil
}

// argument returns the grammar of the texts that Parse reads as arguments that are valid
// by the tool's schema.
func (c compact) argument(b *schema.Builder, t model.FormTool) (schema.Expression, error) {
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return b.Literal("{}"), nil
	}
	if p, ok := soleText(Tool{Name: t.Name, Parameters: t.Parameters}); ok {
		return b.Property(t.Parameters, p)
	}
	return b.Object(t.Parameters)
}

// canonical returns the vocabulary in which each byte has one token.
func (c compact) canonical() *schema.Vocabulary {
	texts := make([][]byte, c.VocabSize())
	for b := range 256 {
		text := []byte{byte(b)}
		texts[c.vocabulary.Encode(string(text))[0]] = text
	}
	return schema.NewVocabulary(texts)
}
