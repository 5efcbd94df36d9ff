package signals

import (
	"encoding/json"
	"strings"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// toolCall is a tool that a reply asked for.
type toolCall struct {
	id, name  string
	arguments string // in normal form
}

// toolCalls reads the tool calls of a reply of any API.
func toolCalls(response []byte) []toolCall {
	var out []toolCall
	for _, m := range attribution.Replies(response) {
		for _, t := range m.ToolCalls {
			out = append(out, toolCall{t.ID, t.Function.Name, normal(t.Function.Arguments)})
		}
	}
	return out
}

// normal returns JSON with sorted keys and without space. It returns any other text
// unchanged.
func normal(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // 1 and 1.0 differ, and long integers keep their digits
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

// tools finds the calls whose tools failed: from spans, and from the results that an
// agent sends back by Anthropic's API. A span that names no tool call is about the last
// call before it.
func (r *reader) tools() {
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

// failedResults returns the ids of the tool calls that a request reports as failed. Only
// Anthropic's API has a field for that.
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

// recoveries finds, for each agent, the first call after a tool error whose own tools ran
// without an error.
func (r *reader) recoveries() {
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
