package dialog

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/dialog/toolcall"
)

const (
	openThought  = "<think>"
	closeThought = "</think>"
	blank        = " \t\r\n"
)

// Parse reads reasoning, then tool calls, then content. If a tool call is malformed,
// everything after the reasoning is content. A thought that was cut off is reasoning too.
// If the model itself ended its turn in the thought, the whole text is content.
func (c *template) Parse(completion []int32, tools []Tool, callID func(k int) string) (Message, string) {
	body, ended := completion, false
	if i := slices.IndexFunc(body, c.stops); i >= 0 {
		body, ended = body[:i], true
	}
	text, specials := c.spell(body, 0)
	thought, rest, sound := c.thought(text)
	reply := Message{Role: Assistant, Reasoning: thought, Content: rest}
	if stray := c.stray(specials, tools); stray != nil {
		if stray.at < len(text)-len(rest) {
			reply.Reasoning, reply.Content = "", text
		}
		return reply, stray.name + " out of place"
	}
	if !sound && ended {
		reply.Reasoning, reply.Content = "", text
		return reply, "reasoning without an end"
	}
	if !sound || c.format == nil {
		return reply, ""
	}
	if len(tools) == 0 {
		if marks := c.format.Marks(); len(marks) > 0 && strings.Contains(rest, marks[0]) {
			return reply, "tool call, but no tool is offered"
		}
		return reply, ""
	}
	read := c.format.Parse(rest, parserTools(tools))
	reply.Content = read.Content
	for k, call := range read.Calls {
		reply.ToolCalls = append(reply.ToolCalls, ToolCall{ID: callID(k), Type: "function", Function: Function{Name: call.Name, Arguments: call.Arguments}})
	}
	return reply, read.Problem
}

// Partial implements Codec. It returns nothing before the reasoning has ended, and leaves
// out an incomplete character at the end.
func (c *template) Partial(completion []int32, tools []Tool) string {
	body, ended := completion, false
	if i := slices.IndexFunc(body, c.stops); i >= 0 {
		body, ended = body[:i], true
	}
	half := 0
	if !ended {
		half = c.halfCharacter(body)
	}
	text, specials := c.spell(body, half)
	if c.undecided(text) {
		return ""
	}
	_, rest, sound := c.thought(text)
	if stray := c.stray(specials, tools); !sound || stray != nil && stray.at < len(text)-len(rest) {
		return ""
	}
	if c.format == nil || len(tools) == 0 {
		return rest
	}
	return rest[:c.format.Certain(rest)]
}

func (c *template) stops(id int32) bool { return slices.Contains(c.stop, id) }

// halfCharacter counts the bytes at the end of ids that begin a character whose
// other bytes may be sampled next.
func (c *template) halfCharacter(ids []int32) int {
	last := ""
	for i := len(ids) - 1; i >= 0 && len(last) < utf8.UTFMax; i-- {
		piece := c.vocabulary.Bytes(ids[i])
		if piece == "" {
			break
		}
		last = piece + last
	}
	for n := 1; n < utf8.UTFMax && n <= len(last); n++ {
		tail := last[len(last)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRuneInString(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// undecided reports whether text, once it is longer, may turn out to begin with a
// thought.
func (c *template) undecided(text string) bool {
	begin := strings.TrimLeft(text, blank)
	return c.thinks && !c.opened && len(begin) < len(openThought) && strings.HasPrefix(openThought, begin)
}

// thought splits text into the reasoning and the rest. If the reasoning has no end, sound
// is false and there is no rest.
func (c *template) thought(text string) (thought, rest string, sound bool) {
	if !c.thinks {
		return "", text, true
	}
	body, opens := strings.CutPrefix(strings.TrimLeft(text, blank), openThought)
	if !opens {
		if !c.opened {
			return "", text, true
		}
		body = text
	}
	thought, rest, sound = strings.Cut(body, closeThought)
	if !sound {
		// Half of the mark that ends a thought is no part of it.
		for n := len(closeThought) - 1; n >= len("</"); n-- {
			if half, cut := strings.CutSuffix(thought, closeThought[:n]); cut {
				thought = half
				break
			}
		}
	}
	return strings.Trim(thought, "\n"), strings.TrimLeft(rest, "\n"), sound
}

// stray returns the first special token that is neither a mark of reasoning nor one of
// the tool calls' format.
func (c *template) stray(specials []spelled, tools []Tool) *spelled {
	for i := range specials {
		name := specials[i].name
		known := c.thinks && (name == openThought || name == closeThought)
		if c.format != nil && len(tools) > 0 {
			known = known || slices.Contains(c.format.Marks(), name)
		}
		if !known {
			return &specials[i]
		}
	}
	return nil
}

func parserTools(tools []Tool) []toolcall.Tool {
	list := make([]toolcall.Tool, len(tools))
	for i, t := range tools {
		list[i] = toolcall.Tool{Name: t.Name, Parameters: t.Parameters}
	}
	return list
}
