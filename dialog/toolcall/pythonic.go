package toolcall

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

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

// errNoGrammar says that a reply can't be held to the pythonic format.
var errNoGrammar = fmt.Errorf("%w: calls in the pythonic format can't be forced", schema.ErrSchema)

// deepest is how deep Python literals may nest.
const deepest = 64

// python reads calls with literal arguments, the part of Python's grammar that
// models are taught. It stops at the first error.
type python struct {
	text  string
	pos   int
	depth int
	err   error
}

func (p *python) refuse(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("at byte %d: %s", p.pos, fmt.Sprintf(format, args...))
	}
}

func (p *python) skip() {
	p.pos += len(p.text[p.pos:]) - len(strings.TrimLeft(p.text[p.pos:], space))
}

// take skips space. If the text then begins with word, it steps over the word and returns
// true.
func (p *python) take(word string) bool {
	p.skip()
	ok := p.err == nil && strings.HasPrefix(p.text[p.pos:], word)
	if ok {
		p.pos += len(word)
	}
	return ok
}

func (p *python) want(word string) {
	if !p.take(word) {
		p.refuse("want %s", word)
	}
}

// list reports whether the text begins as a list of calls does. It consumes nothing.
func (p *python) list() bool {
	ahead := *p
	ahead.want("[")
	ahead.identifier()
	ahead.want("(")
	return ahead.err == nil
}

// identifier reads a name, which may have dots.
func (p *python) identifier() string {
	p.skip()
	end := p.pos
	for end < len(p.text) {
		c := p.text[end]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_'
		if !letter && (end == p.pos || (c < '0' || c > '9') && c != '.') {
			break
		}
		end++
	}
	name := p.text[p.pos:end]
	if name == "" {
		p.refuse("want a name")
	}
	p.pos = end
	return name
}

func (p *python) call() Call {
	c := Call{Name: p.identifier()}
	var members []string
	seen := map[string]bool{}
	p.want("(")
	for p.err == nil && !p.take(")") {
		name := p.identifier()
		if seen[name] || strings.Contains(name, ".") {
			p.refuse("bad or repeated argument %q", name)
		}
		seen[name] = true
		p.want("=")
		members = append(members, quoted(name)+": "+p.value())
		p.separate(")")
	}
	c.Arguments = "{" + strings.Join(members, ", ") + "}"
	return c
}

// separate steps over a comma, which may only be left out before the end.
func (p *python) separate(end string) {
	if p.take(",") || p.err != nil {
		return
	}
	if p.skip(); !strings.HasPrefix(p.text[p.pos:], end) {
		p.refuse("want , or %s", end)
	}
}

// value reads a literal and writes it as JSON.
func (p *python) value() string {
	if p.depth++; p.depth > deepest {
		p.refuse("values nest too deep")
	}
	defer func() { p.depth-- }()
	if p.skip(); p.err != nil || p.pos == len(p.text) {
		p.refuse("want a value")
		return ""
	}
	switch c := p.text[p.pos]; {
	case c == '"' || c == '\'':
		return quoted(p.string())
	case c == '[':
		return p.sequence("[", "]")
	case c == '(':
		return p.sequence("(", ")")
	case c == '{':
		return p.dictionary()
	case c >= '0' && c <= '9' || c == '-' || c == '.':
		return p.number()
	}
	switch word := p.identifier(); word {
	case "True":
		return "true"
	case "False":
		return "false"
	case "None":
		return "null"
	default:
		p.refuse("%q is not a literal", word)
		return ""
	}
}

// sequence reads a list or a tuple and returns a JSON array. A single value in
// parentheses is that value.
func (p *python) sequence(open, end string) string {
	p.want(open)
	var items []string
	comma := false
	for p.err == nil && !p.take(end) {
		items = append(items, p.value())
		before := p.pos
		p.separate(end)
		comma = comma || p.pos > before && p.text[p.pos-1] == ','
	}
	if open == "(" && len(items) == 1 && !comma {
		return items[0]
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (p *python) dictionary() string {
	p.want("{")
	var members []string
	seen := map[string]bool{}
	for p.err == nil && !p.take("}") {
		p.skip()
		key := p.string()
		if seen[key] {
			p.refuse("key %q occurs twice", key)
		}
		seen[key] = true
		p.want(":")
		members = append(members, quoted(key)+": "+p.value())
		p.separate("}")
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// number reads a decimal number and refuses Python's other forms of numbers.
func (p *python) number() string {
	end := p.pos
	for end < len(p.text) && strings.IndexByte("0123456789.eE+-_abcdfxjABCDFXJ", p.text[end]) >= 0 {
		end++
	}
	written := p.text[p.pos:end]
	n := written
	if whole, fraction, ok := strings.Cut(n, "."); ok {
		if whole == "" || whole == "-" {
			whole += "0"
		}
		if fraction == "" || fraction[0] == 'e' || fraction[0] == 'E' {
			fraction = "0" + fraction
		}
		n = whole + "." + fraction
	}
	if !json.Valid([]byte(n)) {
		p.refuse("%.40q is not a decimal number", written)
	}
	p.pos = end
	return n
}

// string reads a string of one line.
func (p *python) string() string {
	if p.pos == len(p.text) || p.text[p.pos] != '"' && p.text[p.pos] != '\'' {
		p.refuse("want a string")
		return ""
	}
	quote := p.text[p.pos]
	if strings.HasPrefix(p.text[p.pos:], strings.Repeat(string(quote), 3)) {
		p.refuse("a string of several lines")
		return ""
	}
	p.pos++
	var b strings.Builder
	for p.err == nil {
		if p.pos == len(p.text) || p.text[p.pos] == '\n' {
			p.refuse("the string has no end")
			break
		}
		c := p.text[p.pos]
		p.pos++
		switch c {
		case quote:
			return b.String()
		case '\\':
			p.escape(&b)
		default:
			b.WriteByte(c)
		}
	}
	return ""
}

// escape reads the characters after a backslash.
func (p *python) escape(b *strings.Builder) {
	const from, to = "abfnrtv\\'\"\n", "\a\b\f\n\r\t\v\\'\""
	if p.pos == len(p.text) {
		p.refuse("the string has no end")
		return
	}
	c := p.text[p.pos]
	p.pos++
	switch i := strings.IndexByte(from, c); {
	case i >= 0 && i < len(to):
		b.WriteByte(to[i])
	case i >= 0: // a backslash at the end of a line continues the line
	case c == 'x' || c == 'u' || c == 'U':
		p.codePoint(b, map[byte]int{'x': 2, 'u': 4, 'U': 8}[c])
	default:
		p.refuse(`the escape \%c`, c)
	}
}

func (p *python) codePoint(b *strings.Builder, digits int) {
	if p.pos+digits > len(p.text) {
		p.refuse("the string has no end")
		return
	}
	n, err := strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32)
	if err != nil || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		p.refuse("%q is not a character", p.text[p.pos:p.pos+digits])
		return
	}
	p.pos += digits
	b.WriteRune(rune(n))
}
