package signals

import (
	"encoding/json"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// toolCall is a tool that a reply asked for.
type toolCall struct {
	id, name  string
	arguments string // in normal form
}

// toolCalls reads them out of a reply, whichever API it was given by.
func toolCalls(response []byte) []toolCall {
	var reply struct {
		Choices []struct { // chat completions
			Message struct {
				ToolCalls    []dialog.ToolCall `json:"tool_calls"`
				FunctionCall *dialog.Function  `json:"function_call"`
			} `json:"message"`
		} `json:"choices"`
		Output []struct { // responses
			Type      string `json:"type"`
			CallID    string `json:"call_id"`
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"output"`
		Content []struct { // messages
			Type  string          `json:"type"`
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			Input json.RawMessage `json:"input"`
		} `json:"content"`
	}
	if json.Unmarshal(response, &reply) != nil {
		return nil // a reply of another release
	}
	var out []toolCall
	for _, c := range reply.Choices {
		for _, t := range c.Message.ToolCalls {
			out = append(out, toolCall{t.ID, t.Function.Name, normal(t.Function.Arguments)})
		}
		if f := c.Message.FunctionCall; f != nil {
			out = append(out, toolCall{"", f.Name, normal(f.Arguments)})
		}
	}
	for _, item := range reply.Output {
		if item.Type == "function_call" {
			out = append(out, toolCall{item.CallID, item.Name, normal(item.Arguments)})
		}
	}
	for _, block := range reply.Content {
		if block.Type == "tool_use" {
			out = append(out, toolCall{block.ID, block.Name, normal(string(block.Input))})
		}
	}
	return out
}

// normal sorts the keys of JSON and drops space; what is not JSON stays as it is.
func normal(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // 1 and 1.0 are told apart, long integers kept
	var value any
	if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
		return text
	}
	out, err := json.Marshal(value)
	if err != nil {
		return text
	}
	return string(out)
}

// tools finds the calls whose tools failed, from spans and, of Anthropic's API, from
// what the agent then said of its tools. A span that names no tool call is about the
// last call before it.
func (r *reading) tools() {
	asker := map[string]int{}
	for i, asked := range r.asked {
		for _, t := range asked {
			if t.id != "" {
				asker[t.id] = i
			}
		}
	}
	for _, s := range r.Spans {
		if s.Kind != trace.ToolSpan {
			continue
		}
		i, ok := asker[s.ToolCallID]
		if !ok {
			i = r.before(s.Started)
		}
		if i >= 0 {
			r.ran[i] = true
			r.set(i, spec.SignalToolError, s.Failed)
		}
	}
	for _, c := range r.History {
		for _, id := range failedResults(c) {
			if i, ok := asker[id]; ok {
				r.set(i, spec.SignalToolError, true)
			}
		}
	}
}

// failedResults are the tool calls of which a request says that they failed. Of the
// APIs only Anthropic's has a word for it.
func failedResults(c trace.Exchange) []string {
	if c.API != "messages" {
		return nil
	}
	var asked struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if json.Unmarshal(c.Request, &asked) != nil {
		return nil
	}
	var out []string
	for _, m := range asked.Messages {
		var blocks []struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
			IsError   bool   `json:"is_error"`
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // bare text
		}
		for _, b := range blocks {
			if b.Type == "tool_result" && b.IsError {
				out = append(out, b.ToolUseID)
			}
		}
	}
	return out
}

// recoveries finds, for each agent, the first call after an error of its tools whose
// own tools ran without one.
func (r *reading) recoveries() {
	failing := map[string]bool{}
	for i, agent := range r.callers {
		switch {
		case r.seen[i][spec.SignalToolError]:
			failing[agent] = true
		case failing[agent] && r.ran[i]:
			failing[agent] = false
			r.set(i, spec.SignalRecovered, true)
		}
	}
}
