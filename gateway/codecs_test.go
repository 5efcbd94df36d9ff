package gateway_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// thinker is the compact codec with thoughts before an <arg>. Like the templates of
// many models it leaves the thoughts of all turns before the last user's out of what
// it renders.
type thinker struct{ dialog.Codec }

func think(c *gateway.Config) {
	c.Codecs = func(string) (dialog.Codec, error) { return thinker{dialog.Compact()}, nil }
}

func (c thinker) Prompt(messages []dialog.Message, tools []dialog.Tool) ([]int32, error) {
	var ids []int32
	for i, m := range messages {
		turn, err := c.Bridge([]dialog.Message{m}, tools)
		if err != nil {
			return nil, err
		}
		turn = turn[:len(turn)-1] // the assistant does not speak yet
		later := slices.ContainsFunc(messages[i:], func(m dialog.Message) bool { return m.Role == dialog.User })
		if m.Reasoning != "" && !later {
			turn = slices.Insert(turn, 1, say(m.Reasoning, tokenizer.Argument)...)
		}
		ids = append(ids, turn...)
	}
	return append(ids, tokenizer.Assistant), nil
}

func (c thinker) Parse(completion []int32, tools []dialog.Tool, callID func(int) string) (dialog.Message, string) {
	thoughts, rest := c.thoughts(completion)
	m, problem := c.Codec.Parse(rest, tools, callID)
	m.Reasoning = thoughts
	return m, problem
}

func (c thinker) Partial(completion []int32, tools []dialog.Tool) string {
	if !slices.Contains(completion, tokenizer.Argument) {
		return "" // these may be thoughts
	}
	_, rest := c.thoughts(completion)
	return c.Codec.Partial(rest, tools)
}

func (c thinker) thoughts(completion []int32) (string, []int32) {
	n := slices.Index(completion, tokenizer.Argument)
	if n < 0 {
		return "", completion
	}
	return c.Text(completion[:n]), completion[n+1:]
}

// formCodec is the compact codec with forms that are easy to break: a call begins with
// <call>, text by a schema has no <call>, and a schema that says so is refused.
type formCodec struct{ dialog.Codec }

// form lets a testEnv sample in such forms.
func form(c *gateway.Config) {
	codec := formCodec{dialog.Compact()}
	c.Codecs = func(string) (dialog.Codec, error) { return codec, nil }
	c.Sampler.(*script).constrain = codec.Constrain
}

func (formCodec) Constrain(f model.Form) (model.Constraint, error) {
	if strings.Contains(string(f.Schema), "refused") {
		return nil, fmt.Errorf("%w: /properties/refused", dialog.ErrForm)
	}
	return &formed{form: f}, nil
}

type formed struct {
	form model.Form
	said []int32
}

func (c *formed) Allowed(set model.TokenSet) bool {
	switch {
	case c.form.Call && len(c.said) == 0:
		set.Add(tokenizer.ToolCall)
	case len(c.form.Schema) > 0:
		for t := range int32(tokenizer.BytesSize) {
			if t != tokenizer.ToolCall {
				set.Add(t)
			}
		}
	default:
		return false
	}
	return true
}

func (c *formed) Accept(token int32) bool {
	c.said = append(c.said, token)
	return slices.ContainsFunc(c.form.Stop, func(stop string) bool { return strings.Contains(text(c.said), stop) })
}
