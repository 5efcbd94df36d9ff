package wire

import (
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
)

type messageItem struct {
	ID      string       `json:"id"`
	Type    string       `json:"type"` // "message"
	Status  string       `json:"status"`
	Role    dialog.Role  `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string        `json:"type"` // "output_text"
	Text        string        `json:"text"`
	Annotations []any         `json:"annotations"`
	Logprobs    []openLogprob `json:"logprobs"`
}

type reasoningItem struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"` // "reasoning"
	Status  string          `json:"status"`
	Summary []any           `json:"summary"`
	Content []reasoningText `json:"content"`
}

type reasoningText struct {
	Type string `json:"type"` // "reasoning_text"
	Text string `json:"text"`
}

type callItem struct {
	ID        string `json:"id"`
	Type      string `json:"type"` // "function_call"
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// items returns the output of a reply. Reasoning comes first, unless it came late: a
// stream can't put it before text that it has sent.
func items(reply Reply, late bool) []any {
	c := reply.Choices[0]
	all := []any{}
	think := func() {
		if c.Message.Reasoning != "" {
			all = append(all, reasoningOf(reply.ID, "completed", c.Message.Reasoning))
		}
	}
	if !late {
		think()
	}
	if c.hasText() {
		status := "completed"
		if c.finish() == Length {
			status = "incomplete"
		}
		all = append(all, messageOf(reply.ID, status, textOf(c.Message.Content, c.Logprobs)))
	}
	if late {
		think()
	}
	for k, call := range c.Message.ToolCalls {
		all = append(all, callOf(reply.ID, k, "completed", call, call.Function.Arguments))
	}
	return all
}

func messageOf(id, status string, content ...outputText) messageItem {
	if content == nil {
		content = []outputText{}
	}
	return messageItem{messageID(id), "message", status, dialog.Assistant, content}
}

func textOf(text string, logprobs []Token) outputText {
	return outputText{"output_text", text, []any{}, listedLogprobs(logprobs)}
}

// listedLogprobs returns log-probabilities that always list their bytes.
func listedLogprobs(tokens []Token) []openLogprob {
	all := slices.Clone(tokens)
	for i, t := range all {
		if t.Bytes == nil {
			all[i].Bytes = []byte(t.Text)
		}
	}
	return openLogprobs(all)
}

func reasoningOf(id, status string, texts ...string) reasoningItem {
	item := reasoningItem{reasoningID(id), "reasoning", status, []any{}, []reasoningText{}}
	for _, text := range texts {
		item.Content = append(item.Content, reasoningText{"reasoning_text", text})
	}
	return item
}

func callOf(id string, k int, status string, call dialog.ToolCall, arguments string) callItem {
	return callItem{callID(id, k), "function_call", status, call.ID, call.Function.Name, arguments}
}
