package search

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

// Trace is what an attempt did, as a reflector sees it. The driver fills it from the
// records that Attempt.Trace refers to.
type Trace struct {
	// Input is the task as the agent got it.
	Input string
	// Messages are those of the attempt's calls in order, each once. The agent's prompts
	// need not be among them.
	Messages []Message
	// Output is what the agent returned.
	Output string
	// Failure says how the attempt failed, in a word or a line, if it did not end well.
	Failure string
	// Grade is the grader's verdict, and Words what it said about it.
	Grade, Words string
	// Reward is nil if the attempt has none.
	Reward *float64
}

// Message is one message of a conversation.
type Message struct {
	// Role is that of the API: user, assistant, tool.
	Role string
	// Agent is the name of the agent that the message belongs to, if there are several.
	Agent string
	Text  string
	// Calls are the tools that an assistant called.
	Calls []ToolCall
	// Tool is the name of the tool whose result this is, and Error says that the tool
	// failed.
	Tool  string
	Error bool
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Name, Arguments string
}

// Rendered is a conversation's beginning for a reflector.
type Rendered struct {
	System, User string
}

// ErrTooLarge means that a prompt alone is larger than what may be sent to a reflector.
var ErrTooLarge = errors.New("larger than what may be sent to the reflector")

// minTrace is the least number of bytes that an attempt is worth showing in.
const minTrace = 200

// Render returns what to ask the reflector for a request. placeholders are those that the
// prompt declares. traces are the attempts that the request shows: one for each attempt of
// r.Shown, in order. The result is not larger than the given number
// of bytes. The prompt and a critique are given whole. The attempts share the rest, short
// ones leave what they don't need to long ones, and a long one loses the middle of its
// messages.
func Render(r Request, placeholders []string, traces []Trace, bytes int) (Rendered, error) {
	text, ok := r.Candidate.Text(r.Prompt)
	if !ok {
		return Rendered{}, fmt.Errorf("render request %s: the candidate has no prompt %q", r.ID, r.Prompt)
	}
	out := Rendered{User: tagged("prompt", text)}
	switch r.Kind {
	case Reflect:
		out.System = reflectInstructions(placeholders)
	case Critique:
		out.System = critiqueInstructions(r.Variant)
	case Edit:
		out.System = editInstructions(r.Variant, placeholders)
		out.User += "\n" + tagged("review", r.Critique)
	default:
		return Rendered{}, fmt.Errorf("render request %s: %s asks no reflector", r.ID, r.Kind)
	}
	if r.Kind != Edit {
		out.User += "\n" + evidence + "\n"
	}
	left := bytes - len(out.System) - len(out.User)
	if left < minTrace*len(traces) {
		return Rendered{}, fmt.Errorf("render request %s: the prompt %q is %w: %d bytes are allowed; shorten the prompt or allow more",
			r.ID, r.Prompt, ErrTooLarge, bytes)
	}
	for i, shown := range fit(traces, left) {
		out.User += fmt.Sprintf("\nAttempt %d of %d\n", i+1, len(traces)) + shown
	}
	return out, nil
}

// tagged shows a text as it is, because a reflector that sees marks in it writes such marks.
func tagged(name, text string) string {
	return fmt.Sprintf("<%s>\n%s\n</%s>\n", name, text, name)
}

// quote marks each line of a text as quoted, so that no text can end its own quotation.
func quote(text string) string {
	return "| " + strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\n| ")
}

// headings is what Render writes around an attempt, at most.
const headings = 64

// fit renders the attempts in at most the given number of bytes.
func fit(traces []Trace, bytes int) []string {
	whole := make([]string, len(traces))
	order := numbers(len(traces))
	for i, t := range traces {
		whole[i] = t.text(len(t.Input), len(t.Words))
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(len(whole[i]), len(whole[j])) })
	for done, i := range order {
		share := bytes/(len(order)-done) - headings
		if len(whole[i]) > share {
			// The input and the grader's words come first and may take a quarter each.
			whole[i] = cut(traces[i].text(share/4, share/4), share)
		}
		bytes -= len(whole[i]) + headings
	}
	return whole
}

// cut takes the middle out of a text that is larger than a number of bytes.
func cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	const note = "\n[%d bytes are left out here]\n"
	room := max(0, bytes-len(note)-20)
	head := truncate.Head(text, room*2/3)
	tail := truncate.Tail(text, room-len(head))
	// What remains of a quoted line stays quoted.
	return head + fmt.Sprintf(note, len(text)-len(head)-len(tail)) + "| …" + tail
}

// text renders an attempt: how it was graded, what was asked, and what was done.
func (t Trace) text(input, words int) string {
	var b strings.Builder
	part := func(name, text string) {
		if text != "" {
			b.WriteString(name + ":\n" + quote(text) + "\n")
		}
	}
	reward := "none"
	if t.Reward != nil {
		reward = strconv.FormatFloat(*t.Reward, 'g', 6, 64)
	}
	b.WriteString("Reward: " + reward + "\n")
	part("Grade", t.Grade)
	part("Grader's words", truncate.Ellipsis(t.Words, words))
	part("Failed", t.Failure)
	part("Input", truncate.Ellipsis(t.Input, input))
	for _, m := range t.Messages {
		name := cmp.Or(m.Role, "message")
		if m.Agent != "" {
			name += " (" + m.Agent + ")"
		}
		if m.Tool != "" {
			name += " " + m.Tool
		}
		if m.Error {
			name += ", an error"
		}
		part(oneLine(name), m.Text)
		for _, c := range m.Calls {
			part(oneLine(name+" calls "+c.Name), c.Arguments)
		}
	}
	part("Output", t.Output)
	return b.String()
}

// oneLine keeps names, which come from outside, on their line.
func oneLine(name string) string {
	return truncate.Ellipsis(strings.Join(strings.Fields(name), " "), 120)
}
