package calls

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// attemptText has the fields that --text adds to an attempt.
type attemptText struct {
	// Advantage is the attempt's advantage in the batch of its step, or nil if that batch
	// does not hold the attempt.
	Advantage *float64 `json:"advantage,omitempty"`
	// Rewards lists the recorded rewards by name.
	Rewards []record.Reward `json:"rewards,omitempty"`
}

// callText has the fields that --text adds to a call.
type callText struct {
	// Parent is the Seq of the call whose tokens this call's tokens begin with, or -1 if
	// there is no such call.
	Parent *int `json:"parent,omitempty"`
	// Messages holds all messages of the request. Text is the prompt of a Completions
	// request.
	Messages []dialog.Message `json:"messages,omitempty"`
	Text     string           `json:"text,omitempty"`
	Tools    []dialog.Tool    `json:"tools,omitempty"`
	// Read is what the model read instead of messages and tools, if prompts replaced parts
	// of them.
	Read *readText `json:"read,omitempty"`
	// Replies holds one reply, or one for each choice that the request asked for.
	Replies []dialog.Message `json:"replies,omitempty"`
	// Advantages summarizes the advantages of the call's trained tokens. It is nil if the
	// batch of its step has none.
	Advantages *spread `json:"advantages,omitempty"`

	firstNew   int    // index of the first message that follows the parent's and its reply
	rawRequest string // the raw request, if it can't be parsed
}

// readText has the messages and tools of a request after their replacements.
type readText struct {
	Messages     []dialog.Message      `json:"messages"`
	Tools        []dialog.Tool         `json:"tools,omitempty"`
	Replacements []rewrite.Replacement `json:"replacements"`
}

// textReader reads what belongs to the texts of attempts.
type textReader struct {
	batches batchReader
	prompts func(digest string) (prompts.Set, error)
}

// addText reads the texts of the attempt.
func (a *attemptCalls) addText(ctx context.Context, texts *textReader, seen signals.Attempt) error {
	a.Rewards = seen.Rewards
	credit, trained, err := texts.batches.of(ctx, a.Attempt)
	if err != nil {
		return err
	}
	served, err := texts.prompts(a.Terms.Prompts)
	if err != nil {
		return fmt.Errorf("read prompts of %s: %w", a.Address, err)
	}
	if trained {
		a.Advantage = &credit.advantage
	}
	requests, bySeq := attribution.Requests(seen.History), map[int]*wire.Request{}
	for i, c := range seen.History {
		text := &a.List[i].callText
		text.Parent, text.Replies = &c.Parent, attribution.Replies(c.Response)
		if s, ok := credit.calls[c.Seq]; ok {
			text.Advantages = &s
		}
		r := requests[i]
		if r == nil {
			text.rawRequest = string(c.Request)
			continue
		}
		bySeq[c.Seq] = r
		text.Messages, text.Text, text.Tools = r.Dialog, r.Text, r.Tools
		if read := rewrite.Recorded(served, a.Terms, c.Call, r); len(read.Replacements) > 0 {
			text.Read = &readText{read.Messages, read.Tools, read.Replacements}
		}
		if parent := bySeq[c.Parent]; parent != nil {
			text.firstNew = dialog.Shared(parent.Dialog, r.Dialog)
		}
	}
	return nil
}

// printText prints an attempt as readable text. Text of agents and models is escaped.
func (a *attemptCalls) printText(t *terminal.Terminal) {
	t.Printf("%s\n", a.heading())
	if a.Verdict != "" {
		t.Printf("%s\n", terminal.Escape(a.Verdict))
	}
	if a.Failure != "" || a.Error != "" {
		printBlock(t, "failure "+a.Failure, a.Error)
	}
	for _, r := range a.Rewards {
		about := ""
		if r.CallID != "" {
			about = " of " + r.CallID
		}
		t.Printf("reward %s%s: %g (by the %s)\n", terminal.Escape(r.Name), terminal.Escape(about), r.Value, r.Source)
	}
	var tools []dialog.Tool
	for _, c := range a.List {
		c.printText(t, tools)
		tools = c.Tools
	}
	for _, s := range a.Tools {
		state := "ok"
		if s.Failed {
			state = "failed: " + s.Message
		}
		t.Printf("tool %s ran: %s\n", terminal.Escape(s.Tool), terminal.Escape(state))
	}
	for _, r := range a.Refusals {
		t.Printf("refused: %s\n", terminal.Escape(r.String()))
	}
	title := "result"
	if n := a.Output.LinesBefore; n > 0 {
		title = fmt.Sprintf("result (only the last line counts; %d lines before it do not)", n)
	}
	printBlock(t, title, a.Result)
	printBlock(t, "stdout", a.Output.Stdout)
	printBlock(t, "stderr", a.Output.Stderr)
}

func (c namedCall) printText(t *terminal.Terminal, toolsBefore []dialog.Tool) {
	line := fmt.Sprintf("call %d: %s by %s, %s, version %d, %d + %d tokens, %s", c.Seq, c.Caller.Agent, c.Caller.Source, c.API, c.Version, c.Prompt, c.Sampled, c.Finish)
	if c.Advantages != nil {
		line += ", advantage " + c.Advantages.String()
	}
	if c.Replayed > 0 {
		line += fmt.Sprintf(", replayed from attempt %d", c.Replayed)
	}
	t.Printf("%s\n", terminal.Escape(line))
	switch {
	case len(c.Tools) == 0:
	case reflect.DeepEqual(c.Tools, toolsBefore):
		t.Printf("  tools: as before\n")
	default:
		for _, tool := range c.Tools {
			t.Printf("  tool %s %s\n", terminal.Escape(tool.Name), terminal.Escape(string(tool.Parameters)))
			printIndented(t, "    ", tool.Description)
			c.Read.printTool(t, tool.Name)
		}
	}
	if c.firstNew > 0 {
		t.Printf("  (after the %d messages of call %d and its reply)\n", c.firstNew, *c.Parent)
	}
	for i, m := range c.Messages[c.firstNew:] {
		printMessage(t, string(m.Role), m)
		c.Read.printMessage(t, c.firstNew+i)
	}
	printPart(t, "prompt", c.Text)
	printPart(t, "request, which this release can't read", c.rawRequest)
	for i, m := range c.Replies {
		who := "reply"
		if len(c.Replies) > 1 {
			who += " " + strconv.Itoa(i)
		}
		printMessage(t, who, m)
	}
	if c.Problem != "" {
		printPart(t, "problem", c.Problem)
	}
}

// printMessage prints what the model read instead of a message, if it is not the same.
func (r *readText) printMessage(t *terminal.Terminal, i int) {
	if by := r.by(rewrite.Place{Message: i}); by != "" {
		printPart(t, "which the model read with "+by+" as", r.Messages[i].Content)
	}
}

// printTool does so for the description of a tool.
func (r *readText) printTool(t *terminal.Terminal, name string) {
	by := r.by(rewrite.Place{Message: -1, Tool: name})
	if i := slices.IndexFunc(r.tools(), func(tool dialog.Tool) bool { return tool.Name == name }); by != "" && i >= 0 {
		printPart(t, "  which the model read with "+by+" as", r.Tools[i].Description)
	}
}

func (r *readText) tools() []dialog.Tool {
	if r == nil {
		return nil
	}
	return r.Tools
}

// by names the prompts that replaced parts of a text; empty if nothing was replaced.
func (r *readText) by(at rewrite.Place) string {
	if r == nil {
		return ""
	}
	var names []string
	for _, one := range r.Replacements {
		if one.Place == at && !slices.Contains(names, one.Prompt) {
			names = append(names, one.Prompt)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "prompt " + strings.Join(names, ", ")
}

// printMessage prints who says what.
func printMessage(t *terminal.Terminal, who string, m dialog.Message) {
	if m.Name != "" {
		who += " " + m.Name
	}
	if m.ToolCallID != "" {
		who += " " + m.ToolCallID
	}
	printPart(t, who+", thinking", m.Reasoning)
	if m.Content != "" || len(m.ToolCalls) == 0 {
		t.Printf("  %s:\n", terminal.Escape(who))
		printIndented(t, "    ", m.Content)
	}
	for _, call := range m.ToolCalls {
		t.Printf("  %s calls %s %s\n", terminal.Escape(who), terminal.Escape(call.Function.Name), terminal.Escape(call.Function.Arguments))
	}
}

// printBlock and printPart print a text below its title, if there is one.
func printBlock(t *terminal.Terminal, title, text string) {
	if text != "" {
		t.Printf("%s:\n", terminal.Escape(title))
		printIndented(t, "  ", text)
	}
}

func printPart(t *terminal.Terminal, title, text string) {
	if text != "" {
		t.Printf("  %s:\n", terminal.Escape(title))
		printIndented(t, "    ", text)
	}
}

func printIndented(t *terminal.Terminal, margin, text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if text != "" {
			t.Printf("%s%s\n", margin, terminal.Escape(line))
		}
	}
}
