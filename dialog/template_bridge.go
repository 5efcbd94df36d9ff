package dialog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

// A bridge is found by rendering the later messages after a stand-in for the
// conversation: one user turn and one assistant turn whose text, or whose calls, are a
// sentinel. The bridge is what follows in the rendered text, from the token on that ends
// the assistant's turn. It is encoded from that token on. This gives the tokens of the
// full text, because the token is special and no merge of the tokenizer crosses it.

// standIn is a conversation after which later messages are rendered.
type standIn struct {
	ask, sentinel string
}

var standIns = [2]standIn{{"Hello", "xqSENTINELxq"}, {"1+1?", "zvOTHERzv"}}

// bridgeText renders what follows an assistant's turn, from the token that ends it.
func (c *template) bridgeText(s standIn, later []Message, tools []Tool) (string, error) {
	for clash(s.sentinel, later, tools) {
		s.sentinel += "q"
	}
	calls := 0
	for calls < len(later) && later[calls].Role == ToolReply {
		calls++
	}
	text, err := c.bridgeBehind(s, calls, later, tools)
	if calls > 1 && errors.Is(err, jinja.ErrRaised) {
		// Some templates refuse turns with more than one call.
		text, err = c.bridgeBehind(s, 1, later, tools)
	}
	return text, err
}

func (c *template) bridgeBehind(s standIn, calls int, later []Message, tools []Tool) (string, error) {
	said := Message{Role: Assistant, Content: s.sentinel}
	if calls > 0 {
		said.Content = ""
	}
	for k := range calls {
		id := later[k].ToolCallID
		if id == "" {
			id = fmt.Sprintf("call_%d", k)
		}
		said.ToolCalls = append(said.ToolCalls, ToolCall{ID: id, Type: "function", Function: Function{Name: s.sentinel, Arguments: "{}"}})
	}
	begin := []Message{{Role: User, Content: s.ask}, said}
	alone, err := c.render.dialog(begin, tools, false)
	if err != nil {
		return "", err
	}
	whole, err := c.render.dialog(append(begin, later...), tools, true)
	if err != nil {
		return "", err
	}
	sentinel := c.render.guard.Mark(s.sentinel, nil)
	times := strings.Count(alone, sentinel)
	if times == 0 {
		return "", errors.New("the template does not write what an assistant says")
	}
	for range times {
		_, after, found := strings.Cut(whole, sentinel)
		if !found {
			return "", errors.New("the template rewrites what an assistant said before")
		}
		whole = after
	}
	at := -1
	for _, id := range c.stop {
		if i := strings.Index(whole, c.vocabulary.Name(id)); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return "", errors.New("the template does not end the turn of an assistant")
	}
	return whole[at:], nil
}

func clash(sentinel string, later []Message, tools []Tool) bool {
	for _, m := range later {
		if strings.Contains(m.Content+"\n"+m.Reasoning+"\n"+m.Name+"\n"+m.ToolCallID, sentinel) {
			return true
		}
		for _, call := range m.ToolCalls {
			if strings.Contains(call.Function.Name+"\n"+call.Function.Arguments, sentinel) {
				return true
			}
		}
	}
	return slices.ContainsFunc(tools, func(t Tool) bool {
		return strings.Contains(t.Name+"\n"+t.Description+"\n"+string(t.Parameters), sentinel)
	})
}

// Bridge implements Codec. It returns an error if the template can't be continued token
// by token.
func (c *template) Bridge(later []Message, tools []Tool) ([]int32, error) {
	if err := c.offers(tools); err != nil {
		return nil, err
	}
	refused := c.unbridged
	if len(later) > 0 && later[0].Role == ToolReply && refused == nil {
		refused = c.unbridgedCalls
	}
	if refused != nil {
		return nil, refused
	}
	text, err := c.bridgeText(standIns[0], later, tools)
	if err != nil {
		return nil, fmt.Errorf("%w: continue a reply: %w", ErrDialog, err)
	}
	ids, err := c.encode(text)
	if err != nil {
		return nil, err
	}
	return ids[1:], nil
}

// probe learns from the template how turns end, whether it opens a thought, and
// whether replies can be continued.
func (c *template) probe(stop []int32) error {
	s := standIns[0]
	ask := Message{Role: User, Content: s.ask}
	end, err := c.turnEnd([]Message{ask, {Role: Assistant, Content: s.sentinel}}, s.sentinel, nil, stop)
	if err != nil {
		return fmt.Errorf("%w: end of a turn: %w", ErrBundle, err)
	}
	c.stop = []int32{end}
	offered := []Tool{tried(s.sentinel)}
	if c.format != nil {
		call := ToolCall{ID: "call_0", Type: "function", Function: Function{Name: s.sentinel, Arguments: "{}"}}
		if end, err := c.turnEnd([]Message{ask, {Role: Assistant, ToolCalls: []ToolCall{call}}}, s.sentinel, offered, stop); err == nil {
			c.stop = append(c.stop, end)
		}
	}
	first := c.stop[0]
	c.stop = append(c.stop, stop...)
	slices.Sort(c.stop)
	c.stop = slices.Compact(c.stop)
	i := slices.Index(c.stop, first)
	c.stop = slices.Insert(slices.Delete(c.stop, i, i+1), 0, first)

	prompt, err := c.render.dialog([]Message{ask}, nil, true)
	if err != nil {
		return fmt.Errorf("%w: prompt: %w", ErrBundle, err)
	}
	c.opened = c.thinks && strings.HasSuffix(strings.TrimRight(prompt, blank), openThought)
	c.unbridged = c.tryBridges(nil, []Message{ask}, []Message{{Role: User, Content: "What?"}})
	c.tryCalls()
	reply := Message{Role: ToolReply, Content: "2", ToolCallID: "call_0"}
	if c.format != nil && c.unwritten == nil {
		c.unbridgedCalls = c.tryBridges([]Tool{tried("add")}, []Message{reply}, []Message{reply, {Role: ToolReply, Content: "3", ToolCallID: "call_1"}}, []Message{reply, ask})
	}
	return nil
}

// tryCalls finds out whether the template writes calls of tools and their results, and
// with which ids. A template that leaves them out would show the model a dialog in which
// it said nothing.
func (c *template) tryCalls() {
	const name, value, result = "xqcallxq", "xqvaluexq", "xqresultxq"
	render := func(id string) (string, error) {
		call := ToolCall{ID: id, Type: "function", Function: Function{Name: name, Arguments: objectOf("text", value)}}
		return c.render.dialog([]Message{
			{Role: User, Content: "Hello"}, {Role: Assistant, ToolCalls: []ToolCall{call}}, {Role: ToolReply, Content: result, ToolCallID: id, Name: name},
		}, []Tool{tried(name)}, true)
	}
	text, err := render("call_0")
	if errors.Is(err, jinja.ErrRaised) {
		c.render.shortIDs = true
		if text, err = render("call_0"); err != nil {
			c.render.shortIDs = false
		}
	}
	lost := ""
	for _, one := range []struct{ sentinel, what string }{{value, "calls of earlier turns"}, {result, "results of tools"}} {
		if !strings.Contains(c.render.guard.Unmark(text), one.sentinel) {
			lost = one.what
			break
		}
	}
	way := "give a template that writes them as model.template (" + exampleTemplates + "), or let the agent describe its tools in its own text"
	switch {
	case err != nil:
		c.unwritten = fmt.Errorf("the chat template does not render tool calls: %w: %s", err, way)
	case lost != "":
		c.unwritten = fmt.Errorf("the chat template leaves out %s, so the model would not see them: %s", lost, way)
	}
}

// tried returns a tool to try a template with. It has a list of parameters, because some
// templates write the parameters without checking that there are any.
func tried(name string) Tool {
	return Tool{Name: name, Description: "Tries.", Parameters: []byte(`{"type":"object","properties":{}}`)}
}

// turnEnd returns the token that ends the last turn, the one that has the sentinel in it.
func (c *template) turnEnd(messages []Message, sentinel string, tools []Tool, stop []int32) (int32, error) {
	text, err := c.render.dialog(messages, tools, false)
	if err != nil {
		return 0, err
	}
	sentinel = c.render.guard.Mark(sentinel, nil)
	at := strings.LastIndex(text, sentinel)
	if at < 0 {
		return 0, errors.New("the template does not write what an assistant says")
	}
	for _, id := range c.vocabulary.EncodeGuarded(text[at+len(sentinel):], c.render.guard) {
		if c.vocabulary.Special(id) || slices.Contains(stop, id) {
			return id, nil
		}
	}
	return 0, errors.New("the template ends the turn of an assistant without a special token")
}

// tryBridges returns why one of the tails can't be bridged, or nil. A bridge must not
// depend on what was said before, and must begin with a token that does not merge with
// the text around it.
func (c *template) tryBridges(tools []Tool, tails ...[]Message) error {
	refuse := func(err error) error {
		return fmt.Errorf("%w: this chat template can't be continued token by token: %w: set sampling.history: template", ErrDialog, err)
	}
	for _, tail := range tails {
		one, err := c.bridgeText(standIns[0], tail, tools)
		if err != nil {
			return refuse(err)
		}
		other, err := c.bridgeText(standIns[1], tail, tools)
		if err != nil {
			return refuse(err)
		}
		if one != other {
			return refuse(errors.New("what follows a reply depends on what was said before it"))
		}
		ids := c.vocabulary.EncodeGuarded(one, c.render.guard)
		if !slices.Contains(c.stop, ids[0]) {
			return refuse(errors.New("the token that ends a turn merges with its surroundings"))
		}
	}
	return nil
}
