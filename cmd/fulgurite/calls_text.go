package main

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// attemptText is what --text adds to an attempt.
type attemptText struct {
	// Advantage is the attempt's in the batch of its step, if that holds it.
	Advantage *float64 `json:"advantage,omitempty"`
	// Rewards are those on record, by name.
	Rewards []trace.Reward `json:"rewards,omitempty"`
}

// callText is what --text adds to a call.
type callText struct {
	// Parent is the Seq of the call whose tokens begin this one's, -1 for none.
	Parent *int `json:"parent,omitempty"`
	// Messages are all of the request's. Text is the prompt of Completions.
	Messages []dialog.Message `json:"messages,omitempty"`
	Text     string           `json:"text,omitempty"`
	Tools    []dialog.Tool    `json:"tools,omitempty"`
	// Replies are one, or one for each choice that was asked for.
	Replies []dialog.Message `json:"replies,omitempty"`
	// Advantages are of the call's trained tokens, if the batch of its step has any.
	Advantages *spread `json:"advantages,omitempty"`

	new     int    // the messages before that are those of the parent and its reply
	request string // why the request can't be read
}

// tell reads what was said in the attempt.
func (a *attemptCalls) tell(ctx context.Context, batches *batchReader, seen signals.Attempt) error {
	a.Rewards = seen.Rewards
	credit, trained, err := batches.of(ctx, a.Attempt)
	if err != nil {
		return err
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
			text.request = string(c.Request)
			continue
		}
		bySeq[c.Seq] = r
		text.Messages, text.Text, text.Tools = r.Dialog, r.Text, r.Tools
		if parent := bySeq[c.Parent]; parent != nil {
			text.new = sharedMessages(parent.Dialog, r.Dialog)
		}
	}
	return nil
}

// sharedMessages is how many messages a dialog has in common with the one before it, and its
// reply.
func sharedMessages(before, now []dialog.Message) int {
	n := 0
	for n < len(before) && n < len(now) && reflect.DeepEqual(before[n], now[n]) {
		n++
	}
	if n == len(before) && n < len(now) && now[n].Role == dialog.Assistant {
		n++
	}
	return n
}

// write prints an attempt for people. Whatever agents and models wrote is escaped.
func (a *attemptCalls) write(t *terminal) {
	outcome := string(a.Outcome)
	if a.Outcome == trace.Running {
		outcome = "running"
	}
	line := fmt.Sprintf("%s: task %s, %s", a.Address, escapeControls(a.TaskID), outcome)
	if a.Reward != nil {
		line += fmt.Sprintf(", reward %g", *a.Reward)
	}
	if a.Advantage != nil {
		line += fmt.Sprintf(", advantage %.4g", *a.Advantage)
	}
	t.printf("%s\n", line)
	if a.Failure != "" || a.Error != "" {
		t.block("failure "+a.Failure, a.Error)
	}
	for _, r := range a.Rewards {
		about := ""
		if r.CallID != "" {
			about = " of " + r.CallID
		}
		t.printf("reward %s%s: %g (by the %s)\n", escapeControls(r.Name), escapeControls(about), r.Value, r.Source)
	}
	var tools []dialog.Tool
	for _, c := range a.List {
		c.write(t, tools)
		tools = c.Tools
	}
	for _, s := range a.Tools {
		state := "ok"
		if s.Failed {
			state = "failed: " + s.Message
		}
		t.printf("tool %s ran: %s\n", escapeControls(s.Tool), escapeControls(state))
	}
	for _, r := range a.Refusals {
		t.printf("refused: %s\n", escapeControls(r.String()))
	}
	title := "result"
	if n := a.Output.LinesBefore; n > 0 {
		title = fmt.Sprintf("result (the last line alone; %d before it count for nothing)", n)
	}
	t.block(title, a.Result)
	t.block("stdout", a.Output.Stdout)
	t.block("stderr", a.Output.Stderr)
}

func (c namedCall) write(t *terminal, toolsBefore []dialog.Tool) {
	line := fmt.Sprintf("call %d: %s by %s, %s, version %d, %d + %d tokens, %s", c.Seq, c.Caller.Agent, c.Caller.Source, c.API, c.Version, c.Prompt, c.Sampled, c.Finish)
	if c.Advantages != nil {
		line += ", advantage " + c.Advantages.String()
	}
	if c.Replayed > 0 {
		line += fmt.Sprintf(", replayed from attempt %d", c.Replayed)
	}
	t.printf("%s\n", escapeControls(line))
	switch {
	case len(c.Tools) == 0:
	case reflect.DeepEqual(c.Tools, toolsBefore):
		t.printf("  tools: as before\n")
	default:
		for _, tool := range c.Tools {
			t.printf("  tool %s %s\n", escapeControls(tool.Name), escapeControls(string(tool.Parameters)))
			t.indented("    ", tool.Description)
		}
	}
	if c.new > 0 {
		t.printf("  (after the %d messages of call %d and its reply)\n", c.new, *c.Parent)
	}
	for _, m := range c.Messages[c.new:] {
		t.message(string(m.Role), m)
	}
	t.part("prompt", c.Text)
	t.part("request, which this release can't read", c.request)
	for i, m := range c.Replies {
		who := "reply"
		if len(c.Replies) > 1 {
			who += " " + strconv.Itoa(i)
		}
		t.message(who, m)
	}
	if c.Problem != "" {
		t.part("problem", c.Problem)
	}
}

// message prints who says what.
func (t *terminal) message(who string, m dialog.Message) {
	if m.Name != "" {
		who += " " + m.Name
	}
	if m.ToolCallID != "" {
		who += " " + m.ToolCallID
	}
	t.part(who+", thinking", m.Reasoning)
	if m.Content != "" || len(m.ToolCalls) == 0 {
		t.printf("  %s:\n", escapeControls(who))
		t.indented("    ", m.Content)
	}
	for _, call := range m.ToolCalls {
		t.printf("  %s calls %s %s\n", escapeControls(who), escapeControls(call.Function.Name), escapeControls(call.Function.Arguments))
	}
}

// block and part print a text below its title, if there is one.
func (t *terminal) block(title, text string) {
	if text != "" {
		t.printf("%s:\n", escapeControls(title))
		t.indented("  ", text)
	}
}

func (t *terminal) part(title, text string) {
	if text != "" {
		t.printf("  %s:\n", escapeControls(title))
		t.indented("    ", text)
	}
}

func (t *terminal) indented(margin, text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if text != "" {
			t.printf("%s%s\n", margin, escapeControls(line))
		}
	}
}

// escapeControls writes what a terminal would obey, or not show, as Go does: agents
// and models write what they like. Tabs stay.
func escapeControls(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}
