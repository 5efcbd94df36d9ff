package dialog

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/toolcall"
)

// toolFormat is the format that the bundle names, or else the one that its template
// shows; nil if it shows none.
//
// A template shows qwen3_xml if it writes "<function=" and "<parameter=", hermes if
// it writes "<tool_call>" and "arguments" without those, llama3_json if it writes
// "parameters" beside "name" or a Python tag without a "<tool_call>", and pythonic if
// it has calls such as func(name=value) in brackets.
func (b Bundle) toolFormat() (toolcall.Format, error) {
	if b.ToolParser != "" {
		f, err := toolcall.Named(b.ToolParser)
		if err != nil {
			return nil, fmt.Errorf("%w: model.tool_parser: %w", ErrBundle, err)
		}
		return f, nil
	}
	text := b.Template
	if b.ToolTemplate != "" {
		text = b.ToolTemplate
	}
	shows := func(words ...string) bool {
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	}
	var names []string
	tagged := shows("<tool_call>")
	xml := tagged && shows("<function=", "<parameter=")
	if xml {
		names = append(names, "qwen3_xml")
	}
	if tagged && !xml && shows("arguments") {
		names = append(names, "hermes")
	}
	if !tagged && (shows(`{"name": `, `"parameters": `) || shows("<|python_tag|>")) {
		names = append(names, "llama3_json")
	}
	if shows("[func_name1(") || shows("<|python_start|>") {
		names = append(names, "pythonic")
	}
	switch len(names) {
	case 0:
		return nil, nil
	case 1:
		return toolcall.Named(names[0])
	}
	return nil, fmt.Errorf("%w: the chat template shows tool calls of %s: set model.tool_parser to one of them", ErrBundle, strings.Join(names, " and "))
}
