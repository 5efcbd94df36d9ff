package conversation

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/wire"
)

// settingForm holds everything that decides a reply, except the dialog and its tools.
// Fields after the first three were added later. Requests that do not use them leave them
// out, so their keys have not changed.
type settingForm struct {
	Agent       string `json:"agent"`
	ForbidTools bool   `json:"forbid_tools"`
	MaxTokens   int    `json:"max_tokens"`

	API     wire.API    `json:"api,omitempty"` // empty for Chat
	Text    string      `json:"text,omitempty"`
	Tokens  []int32     `json:"tokens,omitempty"`
	Stop    []string    `json:"stop,omitempty"`
	Schema  string      `json:"schema,omitempty"` // in normal form
	Choice  *choiceForm `json:"choice,omitempty"`
	OneCall bool        `json:"one_call,omitempty"`
}

// choiceForm is a tool choice other than "auto" and "none".
type choiceForm struct {
	Required bool     `json:"required"`
	Names    []string `json:"names"`
}

func (c *choiceForm) String() string {
	switch {
	case c == nil:
		return "free"
	case c.Required:
		return fmt.Sprintf("a call of %q", c.Names)
	}
	return fmt.Sprintf("free among %q", c.Names)
}

// setting returns the setting of a request of the attempt. Sampling settings are not part
// of it: the terms decide them, and only calls under equal terms are compared.
func (a *Attempt) setting(r *wire.Request, agent string) settingForm {
	s := settingForm{
		Agent: agent, ForbidTools: r.Choice.None, MaxTokens: a.ReplyLimit(r),
		Text: a.ignore.without(r.Text), Tokens: r.Tokens, Stop: slices.Sorted(slices.Values(r.Stop)), OneCall: r.Serial,
	}
	if r.API != wire.Chat {
		s.API = r.API
	}
	if r.Format.Schema != nil {
		s.Schema = normalJSON(string(r.Format.Schema))
	}
	if r.Choice.Required || r.Choice.Names != nil {
		s.Choice = &choiceForm{r.Choice.Required, slices.Sorted(slices.Values(r.Choice.Names))}
	}
	return s
}

// ReplyLimit returns the most tokens of a reply: the limit of the attempt's terms, or the
// client's if that is less.
func (a *Attempt) ReplyLimit(r *wire.Request) int {
	if limit := a.begun.Terms.MaxTokens; r.MaxTokens == 0 || r.MaxTokens > limit {
		return limit
	}
	return r.MaxTokens
}
