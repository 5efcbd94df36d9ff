package toolcall

import (
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// pythonic is the format of Llama 4, ToolACE and other models: the reply is a list of
// calls in Python,
//
//	[f(a=1, b="x"), g()]
//
// with literals as arguments.
type pythonic struct{}

func (pythonic) Name() string { return "pythonic" }

const (
	pythonOpen  = "<|python_start|>"
	pythonClose = "<|python_end|>"
)

func (pythonic) Marks() []string { return []string{pythonOpen, pythonClose} }

// Certain returns 0 for a text that begins as a list does.
func (pythonic) Certain(text string) int {
	begin := strings.TrimLeft(text, space)
	if begin == "" || begin[0] == '[' || strings.HasPrefix(begin, pythonOpen) || strings.HasPrefix(pythonOpen, begin) {
		return 0
	}
	return len(text)
}

func (pythonic) Parse(text string, tools []Tool) Reply {
	body, marked := strings.CutPrefix(strings.Trim(text, space), pythonOpen)
	if marked {
		body = strings.TrimSuffix(body, pythonClose)
	}
	p := &python{text: body}
	if !marked && !p.list() {
		return Reply{Content: text}
	}
	var reply Reply
	p.want("[")
	for p.err == nil && !p.take("]") {
		call := p.call()
		if _, ok := find(tools, call.Name); p.err == nil && !ok {
			p.refuse("unknown tool %q", call.Name)
		}
		reply.Calls = append(reply.Calls, call)
		if !p.take(",") && p.err == nil && !strings.HasPrefix(p.text[p.pos:], "]") {
			p.refuse("want , or ]")
		}
	}
	p.skip()
	if p.err == nil && p.pos < len(p.text) {
		p.refuse("text after the tool calls")
	}
	if p.err == nil && len(reply.Calls) == 0 {
		p.refuse("no call in the list")
	}
	if p.err != nil {
		return malformed(text, "tool call: %v", p.err)
	}
	return reply
}

// Grammar always returns an error: a schema describes JSON, and Python writes values
// differently.
func (pythonic) Grammar(*schema.Builder, []Tool, func(string) schema.Expression) (schema.Expression, error) {
	return schema.Expression{}, errNoGrammar
}
