// Package toolcall reads the formats in which published models call tools.
//
// A model was taught one format and knows no other. A [Format] separates the calls in a
// reply from the text before them, and makes the grammar that holds a reply to a call. It
// works on texts, not on tokens, and knows nothing of turns, templates or reasoning:
// package dialog does that.
//
// Guarantees: a call that a format returns names an offered tool, and its arguments are a
// JSON object. A reply that looks like a call but is not one has no calls at all: its
// content is the whole text, and the problem says what was wrong. The bytes that
// [Format.Certain] has counted stay the beginning of the content, however the reply
// continues. No text makes a format panic, or take more time than in proportion to the
// text's length.
package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// space has the characters allowed between the parts of a call.
const space = " \t\r\n"

// ErrFormat is wrapped by the error of Named.
var ErrFormat = errors.New("unknown tool parser")

// Tool has the parts of an offered tool that a format needs.
type Tool struct {
	Name       string
	Parameters json.RawMessage // JSON Schema; may be absent
}

// Call is a call of one of the tools. Arguments is a JSON object.
type Call struct {
	Name      string
	Arguments string
}

// Reply is a reply that was read. If Problem is not empty, the text looks like a call but
// is not one, and Content is the whole text.
type Reply struct {
	Content string
	Calls   []Call
	Problem string
}

// Format is one way to write tool calls.
type Format interface {
	// Name is the format's name in a spec.
	Name() string
	// Parse reads a reply that may call the tools, of which there is at least one.
	Parse(text string, tools []Tool) Reply
	// Certain returns how many bytes at the beginning of an unfinished text belong to the
	// content, whatever follows.
	Certain(text string) int
	// Marks returns the texts that belong to calls and that a vocabulary may have as
	// special tokens.
	Marks() []string
	// Grammar returns the expression of a call of one of the tools, with arguments that
	// are valid by the tool's schema. mark returns the expression of a mark, which may be
	// one token. An error of a schema wraps schema.ErrSchema.
	Grammar(b *schema.Builder, tools []Tool, mark func(string) schema.Expression) (schema.Expression, error)
}

// Checker is a Format that can't read the calls of each tool.
type Checker interface {
	Format
	// Check returns an error if calls of the tool could not be read. The error names the
	// place in the tool's schema.
	Check(t Tool) error
}

// Formats returns all formats.
func Formats() []Format { return []Format{hermes{}, llama3{}, mistral{}, pythonic{}, qwenXML{}} }

// Names returns the names of all formats.
func Names() []string {
	var names []string
	for _, f := range Formats() {
		names = append(names, f.Name())
	}
	return names
}

// Named returns a format by its name.
func Named(name string) (Format, error) {
	for _, f := range Formats() {
		if f.Name() == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%w %q: want one of %s", ErrFormat, name, strings.Join(Names(), ", "))
}

// malformed returns the reply for a text that looks like a call and is not one.
func malformed(text, format string, args ...any) Reply {
	return Reply{Content: text, Problem: fmt.Sprintf(format, args...)}
}

func find(tools []Tool, name string) (Tool, bool) {
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return tools[i], true
}

// before returns how many bytes of text certainly come before a call that begins with
// mark. It excludes the mark, an incomplete mark at the end, and white space at the end,
// which a call would remove.
func before(text, mark string) int {
	if i := strings.Index(text, mark); i >= 0 {
		return len(strings.TrimRight(text[:i], space))
	}
	for n := min(len(mark)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			text = text[:len(text)-n]
			break
		}
	}
	return len(strings.TrimRight(text, space))
}

// quoted returns text as a JSON string, without the escapes for HTML.
func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // strings always encode
	return strings.TrimSuffix(b.String(), "\n")
}

// parameters returns the schema of a tool's arguments. A tool without a schema takes any
// object.
func (t Tool) parameters() json.RawMessage {
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return json.RawMessage(`{}`)
	}
	return t.Parameters
}

// anyTool returns the choice of a call of each tool.
func anyTool(b *schema.Builder, tools []Tool, call func(Tool) (schema.Expression, error)) (schema.Expression, error) {
	if len(tools) == 0 {
		return schema.Expression{}, fmt.Errorf("%w: no tool to call", schema.ErrSchema)
	}
	var calls []schema.Expression
	for _, t := range tools {
		one, err := call(t)
		if err != nil {
			return schema.Expression{}, fmt.Errorf("tool %q: %w", t.Name, err)
		}
		calls = append(calls, one)
	}
	return b.Choice(calls...), nil
}
