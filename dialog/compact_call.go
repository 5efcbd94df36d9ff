package dialog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

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
