package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
	// Calls are the attempt's calls in order.
	Calls []Call
	// Output is what the agent returned.
	Output string
	// Failure says how the attempt failed, in a word or a line, if it did not end well.
	Failure string
	// Grade is the grader's verdict, and Words what it said about it.
	Grade, Words string
	// Reward is nil if the attempt has none.
	Reward *float64
}

// Call is one call of the model.
type Call struct {
	// Agent is the name of the agent that made the call, if it has one.
	Agent string
	// Prompts are the names of the prompts that the model read in this call.
	Prompts []string
	// Asked are the messages that are new in this call. Mark stands where one of the prompts
	// stood.
	Asked []Message
	// Reply is what the model replied.
	Reply Message
}

// Mark returns what stands for the text of a prompt in the messages of a call.
func Mark(prompt string) string { return "[the prompt " + prompt + "]" }

// Message is one message of a conversation.
type Message struct {
	// Role is that of the API: system, user, assistant, tool.
	Role string
	Text string
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
// ones leave what they don't need to long ones. In a long one the calls that don't read the
// prompt are shortened, and then it loses its middle. What is asked for stands at the
// beginning, and again behind the attempts, because small models go on with what they read
// last; with the prompt, if there is room.
func Render(r Request, placeholders []string, traces []Trace, bytes int) (Rendered, error) {
	text, ok := r.Candidate.Text(r.Prompt)
	if !ok {
		return Rendered{}, fmt.Errorf("render request %s: the candidate has no prompt %q", r.ID, r.Prompt)
	}
	out := Rendered{User: tagged("prompt", text)}
	var end string
	switch r.Kind {
	case Reflect:
		out.System = reflectInstructions(placeholders)
		end = reflectEnd(r.Prompt, text)
	case Critique:
		out.System = critiqueInstructions(r.Variant)
		end = critiqueEnd
	case Edit:
		out.System = editInstructions(r.Variant, placeholders)
		out.User += "\n" + tagged("review", r.Critique)
		end = editEnd
	default:
		return Rendered{}, fmt.Errorf("render request %s: %s asks no reflector", r.ID, r.Kind)
	}
	if r.Kind != Edit {
		out.User += "\n" + evidence + "\n"
	}
	left := bytes - len(out.System) - len(out.User) - len(end) - 1 // a line end
	if r.Kind == Reflect && left < minTrace*len(traces) {          // the prompt is not given a second time
		left, end = left+len(end)-len(shortEnd), shortEnd
	}
	if left < minTrace*len(traces) {
		return Rendered{}, fmt.Errorf("render request %s: the prompt %q is %w: %d bytes are allowed; shorten the prompt or allow more",
			r.ID, r.Prompt, ErrTooLarge, bytes)
	}
	for i, shown := range fit(traces, r.Prompt, left) {
		out.User += fmt.Sprintf("\nAttempt %d of %d\n", i+1, len(traces)) + shown
	}
	out.User += "\n" + end
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
func fit(traces []Trace, prompt string, bytes int) []string {
	whole := make([]string, len(traces))
	order := numbers(len(traces))
	for i, t := range traces {
		whole[i] = t.text(prompt, math.MaxInt)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(len(whole[i]), len(whole[j])) })
	for done, i := range order {
		share := bytes/(len(order)-done) - headings
		if len(whole[i]) > share {
			whole[i] = cut(traces[i].text(prompt, share), share)
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

// text renders an attempt: how it was graded, what was asked, and what was done, such that
// what matters for a prompt fits into a number of bytes. The input and the grader's words
// come first, and may take a quarter each, as may system messages. The texts of calls that
// don't read the prompt may take a half together, and their system messages are left out.
func (t Trace) text(prompt string, bytes int) string {
	var b strings.Builder
	part := func(name, text string, limit int) {
		if text != "" {
			b.WriteString(oneLine(name) + ":\n" + quote(truncate.Ellipsis(text, limit)) + "\n")
		}
	}
	reward := "none"
	if t.Reward != nil {
		reward = strconv.FormatFloat(*t.Reward, 'g', 6, 64)
	}
	b.WriteString("Reward: " + reward + "\n")
	part("Grade", t.Grade, bytes)
	part("Grader's words", t.Words, bytes/4)
	part("Failed", t.Failure, bytes)
	if !t.asked(t.Input, prompt) {
		part("Input", t.Input, bytes/4)
	}
	others := 0
	for _, c := range t.Calls {
		if !slices.Contains(c.Prompts, prompt) {
			others += len(c.Asked) + 1
		}
	}
	for i, c := range t.Calls {
		reads := slices.Contains(c.Prompts, prompt)
		limit := bytes
		if !reads {
			limit = max(minText, bytes/2/others)
		}
		b.WriteString(oneLine(c.heading(i+1, reads)) + "\n")
		for _, m := range c.Asked {
			switch role := cmp.Or(m.Role, "message"); {
			case role != "system" && role != "developer":
				m.write(role, limit, part)
			case reads:
				m.Text = fromMark(m.Text, Mark(prompt), bytes/8)
				m.write(role, bytes/4, part)
			}
		}
		c.Reply.write("reply", limit, part)
	}
	part("Output", t.Output, bytes)
	return b.String()
}

// minText is the least number of bytes that a text of a call is shown in.
const minText = 40

// fromMark leaves out what stands more than a number of bytes before a mark.
func fromMark(text, mark string, bytes int) string {
	at := strings.Index(text, mark)
	if at <= bytes {
		return text
	}
	return "…" + truncate.Tail(text[:at], bytes) + text[at:]
}

// asked reports whether the first call reads the prompt and asks a text as it is, so that it
// need not be shown twice.
func (t Trace) asked(text, prompt string) bool {
	return len(t.Calls) > 0 && slices.Contains(t.Calls[0].Prompts, prompt) && slices.ContainsFunc(t.Calls[0].Asked, func(m Message) bool { return m.Role == "user" && m.Text == text })
}

func (c Call) heading(number int, reads bool) string {
	switch {
	case reads:
		return fmt.Sprintf("Call %d, which reads this prompt", number)
	case len(c.Prompts) > 0:
		return fmt.Sprintf("Call %d, which reads other prompts: %s", number, strings.Join(c.Prompts, ", "))
	case c.Agent != "":
		return fmt.Sprintf("Call %d, of the agent %s", number, c.Agent)
	}
	return fmt.Sprintf("Call %d", number)
}

// write hands the parts of a message to part, each with the limit of its text.
func (m Message) write(name string, limit int, part func(name, text string, limit int)) {
	heading := name
	if m.Tool != "" {
		heading += " " + m.Tool
	}
	if m.Error {
		heading += ", an error"
	}
	part(heading, m.Text, limit)
	for _, c := range m.Calls {
		part(name+" calls "+c.Name, c.Arguments, limit)
	}
}

// oneLine keeps names, which come from outside, on their line.
func oneLine(name string) string {
	return truncate.Ellipsis(strings.Join(strings.Fields(name), " "), 120)
}
