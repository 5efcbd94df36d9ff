package dialog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/dialog/jinja"
	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/dialog/toolcall"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// template is the codec of a published model. It has the tokens of the model's own
// template and tokenizer. How it continues a dialog is derived from the template when the
// codec is made.
type template struct {
	name       string
	vocabulary *tokenizer.BPE
	size       int
	render     *renderer
	// format reads tool calls. It is nil if the template shows no known format.
	format toolcall.Format
	stop   []int32 // the first is the one with which the template ends a turn
	// thinks is true if the template knows reasoning. opened is true if the template
	// itself opens the reasoning where the assistant's reply begins.
	thinks, opened bool
	// variables are those that the bundle gives to the template, by name.
	variables map[string]json.RawMessage
	// mentions reports whether a template mentions a name.
	mentions func(name string) bool
	// unbridged and unbridgedCalls say why replies without and with tool calls can't be
	// continued. They are nil if they can be.
	unbridged, unbridgedCalls error
	// unwritten says why a dialog can't have tool calls at all. It is nil if it can.
	unwritten error
	// held has the tokens as constraints see them.
	held func() *schema.Vocabulary
}

// Codec makes the codec of the bundle under a name. It parses the tokenizer, which takes
// about a second for a large one, so keep the result.
func (b Bundle) Codec(name string) (Codec, error) {
	c, err := b.codec(name)
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", name, err)
	}
	return c, nil
}

func (b Bundle) codec(name string) (*template, error) {
	vocabulary, err := tokenizer.FromJSON(b.Tokenizer)
	if err != nil {
		return nil, err
	}
	c := &template{name: name, vocabulary: vocabulary, size: cmp.Or(b.VocabSize, vocabulary.VocabSize())}
	// An id that is not a token can't end a reply; other programs ignore it, too.
	stop := slices.DeleteFunc(slices.Clone(b.Stop), func(id int32) bool { return !c.samples(id) })
	if c.format, err = b.toolFormat(); err != nil {
		return nil, err
	}
	if c.render, err = b.renderer(); err != nil {
		return nil, err
	}
	c.variables = map[string]json.RawMessage{}
	if len(b.Variables) > 0 {
		if err := json.Unmarshal(b.Variables, &c.variables); err != nil {
			return nil, fmt.Errorf("%w: variables: %w", ErrBundle, err)
		}
	}
	c.mentions = func(name string) bool {
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
		return word.MatchString(b.Template) || word.MatchString(b.ToolTemplate)
	}
	c.render.open = c.marks()
	c.render.guard = vocabulary.NewGuard(b.guarded(vocabulary, c.render.open))
	c.thinks = strings.Contains(b.Template, closeThought)
	if err := c.probe(stop); err != nil {
		return nil, err
	}
	if id := c.stop[0]; int(id) >= c.size {
		return nil, fmt.Errorf("%w: the model's embedding has %d rows, so it has no row for the token that ends a turn, %d %q: use a chat template that ends turns with another token (model.template)",
			ErrBundle, c.size, id, vocabulary.Name(id))
	}
	c.stop = slices.DeleteFunc(c.stop, func(id int32) bool { return int(id) >= c.size })
	c.held = sync.OnceValue(c.constrained)
	return c, nil
}

// marks returns the marks of reasoning and of tool calls.
func (c *template) marks() []string {
	marks := []string{openThought, closeThought}
	if c.format != nil {
		marks = append(marks, c.format.Marks()...)
	}
	return marks
}

// shaped matches names that are made for tokens.
var shaped = regexp.MustCompile(`^(<[|｜].*[|｜]>|</?s>|\[/?[A-Z][A-Z_0-9]*\]|<(unused|extra_id_|reserved_)[0-9a-z_]*>)$`)

// guarded returns which tokens no text of a user or a tool may become. A tokenizer may
// declare a token that ends a turn, or begins one, as special or as any added token; files
// in other formats know only a part of that. So a token is guarded if it is special, if the
// template writes it, if it ends a reply, if it is a mark, or if its name is made for a
// token. Other added tokens, such as runs of spaces, are ordinary text.
func (b Bundle) guarded(vocabulary *tokenizer.BPE, marks []string) func(text string, special bool) bool {
	named := slices.Concat(marks, slices.Collect(maps.Values(b.Special)))
	for _, id := range b.Stop {
		named = append(named, vocabulary.Name(id))
	}
	return func(text string, special bool) bool {
		switch {
		case strings.TrimSpace(text) == "":
			return special
		case special, shaped.MatchString(text), slices.Contains(named, text):
			return true
		}
		return strings.ContainsFunc(text, func(c rune) bool { return unicode.In(c, unicode.P, unicode.S) }) &&
			(strings.Contains(b.Template, text) || strings.Contains(b.ToolTemplate, text))
	}
}

// renderer prepares the bundle's templates.
func (b Bundle) renderer() (*renderer, error) {
	r := &renderer{}
	var err error
	if r.plain, err = jinja.Parse(b.Template); err != nil {
		return nil, err
	}
	r.withTools = r.plain
	if b.ToolTemplate != "" {
		if r.withTools, err = jinja.Parse(b.ToolTemplate); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Special)) {
		r.variables = append(r.variables, jinja.Member{Key: name, Value: jinja.String(b.Special[name])})
	}
	more := map[string]json.RawMessage{}
	if len(b.Variables) > 0 {
		if err := json.Unmarshal(b.Variables, &more); err != nil {
			return nil, fmt.Errorf("%w: variables: %w", ErrBundle, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		value, err := jinja.FromJSON(more[name])
		if err != nil {
			return nil, fmt.Errorf("%w: variables: %s: %w", ErrBundle, name, err)
		}
		r.variables = append(r.variables, jinja.Member{Key: name, Value: value})
	}
	date := b.Date
	if date == "" {
		date = "2024-07-26"
	}
	if r.now, err = time.Parse(time.DateOnly, date); err != nil {
		return nil, fmt.Errorf("%w: date: %w", ErrBundle, err)
	}
	return r, nil
}

func (c *template) Name() string { return c.name }

// Variable implements Variables. A name that the template never mentions has no effect.
func (c *template) Variable(name string) (value json.RawMessage, used bool) {
	return c.variables[name], c.mentions(name)
}

func (c *template) VocabSize() int { return c.size }

func (c *template) Stop() []int32 { return slices.Clone(c.stop) }

func (c *template) Encode(text string) []int32 { return c.vocabulary.Encode(text) }

func (c *template) EncodePrompt(text string) ([]int32, error) {
	ids, err := c.vocabulary.EncodePrompt(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrompt, err)
	}
	if n := slices.IndexFunc(ids, func(id int32) bool { return int(id) >= c.size }); n >= 0 {
		return nil, fmt.Errorf("%w: token %d is outside of the model's vocabulary", ErrPrompt, ids[n])
	}
	return ids, nil
}

func (c *template) Text(tokens []int32) string {
	text, _ := c.spell(tokens, 0)
	return text
}

// Bytes implements Speller.
func (c *template) Bytes(token int32) []byte {
	if text := c.vocabulary.Bytes(token); text != "" {
		return []byte(text)
	}
	return []byte(c.vocabulary.Name(token))
}

// errNoFormat says what to do about a template that shows no format of tool calls.
var errNoFormat = fmt.Errorf("the chat template shows no known format of tool calls: set model.tool_parser to one of %s, or give a template that writes tools as model.template (%s)",
	strings.Join(toolcall.Names(), ", "), exampleTemplates)

// exampleTemplates is where the project has templates with tools.
const exampleTemplates = "examples/templates has one for ChatML"

// Prompt renders and encodes. The template writes all special tokens itself.
func (c *template) Prompt(messages []Message, tools []Tool) ([]int32, error) {
	if len(messages) == 0 {
		return nil, fmt.Errorf("%w: no messages", ErrDialog)
	}
	if err := c.offers(tools); err != nil {
		return nil, err
	}
	if err := c.writes(messages); err != nil {
		return nil, err
	}
	text, err := c.render.dialog(messages, tools, true)
	if err != nil {
		return nil, err
	}
	return c.encode(text)
}

// Rowless implements Sparse.
func (c *template) Rowless() (n int) {
	for id := c.size; id < c.vocabulary.VocabSize(); id++ {
		if c.vocabulary.Has(int32(id)) {
			n++
		}
	}
	return n
}

// CallTokens implements Sparse.
func (c *template) CallTokens() (ids []int32) {
	if c.format == nil {
		return nil
	}
	for _, mark := range c.format.Marks() {
		if id, ok := c.vocabulary.ID(mark); ok && c.samples(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// TokenID implements Sparse.
func (c *template) TokenID(text string) (int32, bool) {
	id, ok := findToken(c.vocabulary, text)
	return id, ok && c.samples(id)
}

// ToolFormat implements Sparse.
func (c *template) ToolFormat() string {
	if c.format == nil {
		return ""
	}
	return c.format.Name()
}

// samples reports whether id is a token that the model can write: one with a text and a
// row of the embedding.
func (c *template) samples(id int32) bool { return int(id) < c.size && c.vocabulary.Has(id) }

// encode returns the tokens of a rendered text. It returns an error if the model has no row
// for one of them.
func (c *template) encode(text string) ([]int32, error) {
	ids := c.vocabulary.EncodeGuarded(text, c.render.guard)
	return ids, c.checkRows(ids)
}

// checkRows returns an error if the model has no row for one of the tokens.
func (c *template) checkRows(ids []int32) error {
	for _, id := range ids {
		if int(id) >= c.size {
			return fmt.Errorf("%w: the prompt needs the token %q, whose id %d has no row in the model's embedding of %d rows", ErrDialog, c.vocabulary.Name(id), id, c.size)
		}
	}
	return nil
}

// Unused implements Sparse.
func (c *template) Unused(vocab int) model.TokenRanges {
	return model.RangesOf(vocab, func(id int32) bool { return !c.vocabulary.Has(id) })
}

// offers returns an error if tools are offered whose calls could not be read.
func (c *template) offers(tools []Tool) error {
	if len(tools) > 0 && c.format == nil {
		return fmt.Errorf("%w: tools are offered, but %w", ErrDialog, errNoFormat)
	}
	if len(tools) > 0 && c.unwritten != nil {
		return fmt.Errorf("%w: tools are offered, but %w", ErrDialog, c.unwritten)
	}
	checker, ok := c.format.(toolcall.Checker)
	if !ok {
		return nil
	}
	for _, t := range parserTools(tools) {
		if err := checker.Check(t); err != nil {
			return fmt.Errorf("%w: tool %q: calls in the format %s can't be read: %w", ErrDialog, t.Name, c.format.Name(), err)
		}
	}
	return nil
}

// writes returns an error if the template would leave out a turn that has to do with tools.
func (c *template) writes(messages []Message) error {
	if c.unwritten == nil {
		return nil
	}
	for i, m := range messages {
		if len(m.ToolCalls) > 0 || m.Role == ToolReply {
			return fmt.Errorf("%w: message %d has to do with tools, but %w", ErrDialog, i, c.unwritten)
		}
	}
	return nil
}

// spell returns the text of tokens without the last but bytes. Special tokens appear by
// name, and specials lists these names and their places.
func (c *template) spell(tokens []int32, but int) (text string, specials []spelled) {
	var b strings.Builder
	plain := 0
	write := func(ids []int32, but int) {
		raw := c.vocabulary.Decode(ids)
		b.WriteString(strings.ToValidUTF8(raw[:len(raw)-but], string(utf8.RuneError)))
	}
	for i, id := range tokens {
		if c.vocabulary.Bytes(id) != "" {
			continue
		}
		write(tokens[plain:i], 0)
		name := c.vocabulary.Name(id)
		specials = append(specials, spelled{b.Len(), name})
		b.WriteString(name)
		plain = i + 1
	}
	write(tokens[plain:], but)
	return b.String(), specials
}

// spelled is the name of a token at a place in a text.
type spelled struct {
	at   int
	name string
}

// Constrain implements Codec. A model that thinks may think before it writes the reply
// that the form describes. A stop text ends a reply in its content, not in a thought or
// in a call.
func (c *template) Constrain(form model.Form) (model.Constraint, error) {
	grammar := func(b *schema.Builder) (schema.Expression, error) {
		said, err := replies(b, form, func() (schema.Expression, error) { return c.callGrammar(b, form.Tools) })
		if err == nil {
			said, err = c.afterThought(b, said)
		}
		return b.Sequence(said, b.Special(c.stop[0])), err
	}
	content := c.contentBytes(len(form.Tools) > 0)
	if form.Bare {
		content = func(token int32) string { return string(c.Bytes(token)) }
	}
	return constrain(form, grammar, c.held, content)
}

func (c *template) callGrammar(b *schema.Builder, offered []model.FormTool) (schema.Expression, error) {
	if c.format == nil {
		return schema.Expression{}, errNoFormat
	}
	tools := make([]toolcall.Tool, len(offered))
	for i, t := range offered {
		tools[i] = toolcall.Tool(t)
	}
	return c.format.Grammar(b, tools, func(text string) schema.Expression { return c.mark(b, text) })
}

// mark returns the expression of a text that may be one token of the vocabulary.
func (c *template) mark(b *schema.Builder, text string) schema.Expression {
	if id, ok := c.vocabulary.ID(text); ok && c.samples(id) {
		return b.Special(id)
	}
	return b.Literal(text)
}

// afterThought allows reasoning before the form's reply, if the template knows reasoning.
// The reasoning may not contain "</", so that it can't end early.
func (c *template) afterThought(b *schema.Builder, said schema.Expression) (schema.Expression, error) {
	if !c.thinks {
		return said, nil
	}
	thought, err := b.Property(json.RawMessage(
		`{"type":"object","properties":{"thought":{"type":"string","pattern":"^(?:[^<]|<+[^/<])*<*$"}},"required":["thought"]}`), "thought")
	if err != nil {
		return schema.Expression{}, err
	}
	thinking := b.Sequence(thought, c.mark(b, closeThought), b.Literal("\n\n"), said)
	if c.opened {
		return thinking, nil
	}
	return b.Choice(said, b.Sequence(c.mark(b, openThought), thinking)), nil
}

// constrained returns the vocabulary as constraints see it. Added tokens have no bytes in
// it, so they are allowed only where a grammar names them.
func (c *template) constrained() *schema.Vocabulary {
	texts := make([][]byte, c.size)
	for id := range texts {
		if !c.vocabulary.Added(int32(id)) {
			texts[id] = []byte(c.vocabulary.Bytes(int32(id)))
		}
	}
	return schema.NewVocabulary(texts)
}

// contentBytes returns a function that takes the tokens of a reply in order and returns,
// for each token, its bytes that are content.
func (c *template) contentBytes(tools bool) func(token int32) string {
	text, calling := "", false
	return func(token int32) string {
		piece := c.vocabulary.Bytes(token)
		if c.vocabulary.Special(token) {
			text += c.vocabulary.Name(token)
		}
		text += piece
		if calling || c.undecided(text) {
			return ""
		}
		_, rest, sound := c.thought(text)
		if !sound {
			return ""
		}
		// Once a call may have begun, it is no longer certain that the next letter is
		// content.
		if calling = tools && c.format != nil && c.format.Certain(rest+"x") < len(rest); calling {
			return ""
		}
		return piece[max(0, len(piece)-len(rest)):]
	}
}
