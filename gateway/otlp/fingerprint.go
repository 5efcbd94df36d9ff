package otlp

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
)

// addFingerprints adds the fingerprints of a span's request and reply. It adds none
// unless it can read both completely: half of a dialog may belong to several calls.
func (e evidence) addFingerprints(s *trace.Span) {
	for _, name := range []string{trace.InstructionsFingerprint, trace.DialogFingerprint, trace.ReplyFingerprint} {
		delete(s.Attributes, name)
	}
	if s.Kind != trace.ModelSpan || s.CallID != "" {
		return
	}
	asked, reply, ok := e.messages()
	if !ok || len(reply) == 0 {
		return
	}
	instructions, rest := dialog.Instructions(asked)
	if len(rest) == 0 {
		return
	}
	if s.Attributes == nil {
		s.Attributes = map[string]any{}
	}
	s.Attributes[trace.DialogFingerprint], s.Attributes[trace.ReplyFingerprint] = dialog.Fingerprint(rest), dialog.Fingerprint(reply)
	if len(instructions) > 0 {
		s.Attributes[trace.InstructionsFingerprint] = dialog.Fingerprint(instructions)
	}
}

// messages reads the messages by the first convention that the span uses. ok is false if
// there is something that can't be read, such as an image.
func (e evidence) messages() (asked, reply []dialog.Message, ok bool) {
	if e.text("gen_ai.input.messages") != "" {
		return e.genAIMessages()
	}
	for _, c := range []struct{ asked, reply, message string }{
		{"llm.input_messages", "llm.output_messages", ".message"}, // OpenInference
		{"gen_ai.prompt", "gen_ai.completion", ""},                // OpenLLMetry, before OpenTelemetry had names
	} {
		var readable, answered bool
		asked, readable = e.indexed(c.asked, c.message)
		reply, answered = e.indexed(c.reply, c.message)
		if len(asked) > 0 {
			return asked, reply, readable && answered
		}
	}
	return nil, nil, false
}

// indexed reads messages that have one attribute for each field.
func (e evidence) indexed(prefix, message string) ([]dialog.Message, bool) {
	fields := map[string]map[string]any{} // by the number of the message
	for name, v := range e.attributes {
		if rest, ok := strings.CutPrefix(name, prefix+"."); ok {
			number, field, _ := strings.Cut(rest, ".")
			if message != "" {
				field = strings.TrimPrefix(field, message[1:]+".")
			}
			if fields[number] == nil {
				fields[number] = map[string]any{}
			}
			fields[number][field] = v
		}
	}
	out := make([]dialog.Message, len(fields))
	for i := range out {
		of, there := fields[fmt.Sprint(i)]
		if !there || !readFields(evidence{of}, &out[i]) {
			return nil, false
		}
	}
	return out, true
}

func readFields(of evidence, m *dialog.Message) bool {
	var known bool
	if m.Role, known = roleOf(of.text("role")); !known {
		return false
	}
	m.Content = of.text("content")
	for i := 0; of.has(fmt.Sprintf("contents.%d.", i)); i++ {
		part := fmt.Sprintf("contents.%d.message_content.", i)
		if of.text(part+"type") != "text" {
			return false
		}
		m.Content += of.text(part + "text")
	}
	m.ToolCallID = of.text("tool_call_id")
	for i := 0; of.has(fmt.Sprintf("tool_calls.%d.", i)); i++ {
		call := fmt.Sprintf("tool_calls.%d.", i)
		m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{
			ID:       of.text(call+"tool_call.id", call+"id"),
			Function: dialog.Function{Name: of.text(call+"tool_call.function.name", call+"name")},
		})
	}
	return true
}

func (e evidence) has(prefix string) bool {
	for name := range e.attributes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// genAIMessage is a message in OpenTelemetry's form, and messagePart a part of one.
type genAIMessage struct {
	Role  string        `json:"role"`
	Parts []messagePart `json:"parts"`
}

type messagePart struct {
	Type     string          `json:"type"`
	Content  string          `json:"content"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
}

// genAIMessages reads the messages of OpenTelemetry's conventions for GenAI.
func (e evidence) genAIMessages() (asked, reply []dialog.Message, ok bool) {
	var instructions []messagePart
	var in, out []genAIMessage
	if text := e.text("gen_ai.system_instructions"); text != "" && json.Unmarshal([]byte(text), &instructions) != nil {
		return nil, nil, false
	}
	if json.Unmarshal([]byte(e.text("gen_ai.input.messages")), &in) != nil || json.Unmarshal([]byte(e.text("gen_ai.output.messages")), &out) != nil {
		return nil, nil, false
	}
	if len(instructions) > 0 {
		in = append([]genAIMessage{{Role: string(dialog.System), Parts: instructions}}, in...)
	}
	asked, ok = readMessages(in)
	if !ok {
		return nil, nil, false
	}
	reply, ok = readMessages(out)
	return asked, reply, ok
}

func readMessages(all []genAIMessage) ([]dialog.Message, bool) {
	var out []dialog.Message
	for _, s := range all {
		role, known := roleOf(s.Role)
		if !known {
			return nil, false
		}
		m := dialog.Message{Role: role}
		for _, p := range s.Parts {
			switch p.Type {
			case "text":
				m.Content += p.Content
			case "reasoning":
			case "tool_call":
				m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{ID: p.ID, Function: dialog.Function{Name: p.Name}})
			case "tool_call_response":
				m.ToolCallID = p.ID
				text := string(p.Response)
				_ = json.Unmarshal(p.Response, &text) // a result that is not text stays JSON
				m.Content += text
			default:
				return nil, false
			}
		}
		out = append(out, m)
	}
	return out, true
}

// roleOf returns the role for a name that conventions and frameworks use.
func roleOf(name string) (dialog.Role, bool) {
	switch name {
	case "system", "developer":
		return dialog.System, true
	case "user", "human":
		return dialog.User, true
	case "assistant", "ai", "model":
		return dialog.Assistant, true
	case "tool", "function":
		return dialog.ToolReply, true
	}
	return "", false
}
