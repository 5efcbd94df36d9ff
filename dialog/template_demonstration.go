package dialog

import (
	"fmt"
	"strings"
)

// Demonstration returns an error in the same cases as Compact's, and for a dialog that
// the template does not write turn by turn: each reply has to follow its prompt, as it
// will when it is sampled.
func (c *template) Demonstration(d Dialog) ([]int32, []bool, error) {
	if err := c.offers(d.Tools); err != nil {
		return nil, nil, err
	}
	whole, err := c.render.dialog(d.Messages, d.Tools, false)
	if err != nil {
		return nil, nil, fmt.Errorf("demonstration: %w", err)
	}
	l := lesson{c: c, rest: whole}
	learned := false
	for i, m := range d.Messages {
		if m.Role != Assistant {
			continue
		}
		learn := m.Weight == nil || *m.Weight != 0
		if err := l.turn(d, i, learn); err != nil {
			return nil, nil, fmt.Errorf("demonstration message %d: %w", i, err)
		}
		learned = learned || learn
	}
	if !learned {
		return nil, nil, fmt.Errorf("%w: demonstration without an assistant message to learn", ErrDialog)
	}
	if d.Messages[len(d.Messages)-1].Role != Assistant {
		l.given(l.rest)
	}
	if err := c.checkRows(l.ids); err != nil {
		return nil, nil, fmt.Errorf("demonstration: %w", err)
	}
	return l.ids, l.trained, nil
}

// lesson collects the tokens of a demonstration, turn by turn.
type lesson struct {
	c       *template
	done    int    // bytes of the rendered dialog that are encoded
	rest    string // the part of the rendered dialog that is not encoded yet
	end     string // the token that ended the last reply
	ids     []int32
	trained []bool
}

// turn encodes the messages before reply i, and the reply.
func (l *lesson) turn(d Dialog, i int, learn bool) error {
	prompt, err := l.c.render.dialog(d.Messages[:i], d.Tools, true)
	if err != nil {
		return err
	}
	if len(prompt) < l.done || !strings.HasPrefix(l.rest, prompt[l.done:]) {
		return fmt.Errorf("%w: the chat template renders the reply differently in the whole dialog than when it is asked for; make one demonstration for each reply", ErrDialog)
	}
	l.given(prompt[l.done:])
	end := ""
	at := len(l.rest)
	for _, id := range l.c.stop {
		name := l.c.vocabulary.Name(id)
		if j := strings.Index(l.rest[:at], name); j >= 0 {
			at, end = j, name
		}
	}
	if end == "" {
		return fmt.Errorf("%w: the chat template does not end the reply", ErrDialog)
	}
	said := l.c.vocabulary.EncodeGuarded(l.rest[:at+len(end)], l.c.render.guard)
	if learn {
		if err := l.c.readable(said, d.Messages[i], d.Tools); err != nil {
			return err
		}
	}
	l.add(said, learn)
	l.step(at + len(end))
	l.end = end
	return nil
}

// given appends the tokens of text that is not trained.
func (l *lesson) given(text string) {
	ids := l.c.vocabulary.EncodeGuarded(l.end+text, l.c.render.guard)
	if l.end != "" {
		ids = ids[1:]
	}
	l.add(ids, false)
	l.step(len(text))
}

func (l *lesson) add(ids []int32, trained bool) {
	l.ids = append(l.ids, ids...)
	for range ids {
		l.trained = append(l.trained, trained)
	}
}

func (l *lesson) step(n int) {
	l.done += n
	l.rest = l.rest[n:]
}

// readable returns an error unless Parse reads completion as m.
func (c *template) readable(completion []int32, m Message, tools []Tool) error {
	got, problem := c.Parse(completion, tools, func(int) string { return "" })
	switch {
	case problem != "":
		return fmt.Errorf("%w: %s", ErrDialog, problem)
	case strings.TrimSpace(got.Content) != strings.TrimSpace(m.Content):
		return fmt.Errorf("%w: the reply reads %.60q when it is parsed", ErrDialog, got.Content)
	case strings.TrimSpace(got.Reasoning) != strings.TrimSpace(m.Reasoning):
		return fmt.Errorf("%w: the chat template does not keep the reasoning of the reply", ErrDialog)
	case len(got.ToolCalls) != len(m.ToolCalls):
		return fmt.Errorf("%w: %d tool calls read as %d", ErrDialog, len(m.ToolCalls), len(got.ToolCalls))
	}
	return sameCalls(got.ToolCalls, m.ToolCalls)
}
