package otlp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
)

const (
	shortText     = 256     // bytes of a name
	longText      = 4 << 10 // bytes of any other text
	maxAttributes = 64      // attributes of a span
)

// replyID matches the ids of the gateway's replies, wherever an instrumentation wrote
// them.
var replyID = regexp.MustCompile(`\b(?:chatcmpl-|cmpl-|resp_|msg_)[0-9a-f]{24}\b`)

// toolCallID matches the ids of tool calls in the gateway's replies.
var toolCallID = regexp.MustCompile(`\bcall_[0-9a-f]{24}_[0-9]+\b`)

// evidence reads a span's attributes by the names of several conventions.
type evidence struct{ attributes map[string]any }

// text returns the first of the attributes that is non-empty text.
func (e evidence) text(names ...string) string {
	for _, name := range names {
		if s, ok := e.attributes[name].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// describe completes a span with what its attributes say.
func (e evidence) describe(s *record.Span) {
	s.Kind = e.kind()
	s.CallID = e.callID(s.Kind)
	s.Agent = truncate(e.agent(s.Kind), shortText)
	if s.Kind == record.ToolSpan {
		s.Tool = truncate(firstText(e.text("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name"), s.Name), shortText)
		s.ToolCallID = truncate(firstText(e.text("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"), e.answered()), shortText)
	}
	if e.text("error.type") != "" {
		s.Failed = true
		s.Message = firstText(s.Message, truncate(e.text("error.message", "error.type"), longText))
	}
	s.Attributes = e.attributesToRecord()
	e.addFingerprints(s)
}

// kind returns the kind of the span; the first convention that applies decides.
func (e evidence) kind() record.SpanKind {
	for _, word := range []string{
		e.text("openinference.span.kind"), e.text("gen_ai.operation.name"), e.text("traceloop.span.kind"), e.text("ai.operationId"), e.text("llm.request.type"),
	} {
		switch strings.ToLower(word) {
		case "":
			continue
		case "llm", "chat", "text_completion", "generate_content", "completion",
			"ai.generatetext.dogenerate", "ai.streamtext.dostream", "ai.generateobject.dogenerate", "ai.streamobject.dostream":
			return record.ModelSpan
		case "tool", "execute_tool", "ai.toolcall":
			return record.ToolSpan
		case "agent", "chain", "invoke_agent", "create_agent", "invoke_workflow", "workflow", "task":
			return record.AgentSpan
		}
		return record.OtherSpan
	}
	switch {
	case e.text("gen_ai.response.id", "llm.response.id") != "":
		return record.ModelSpan
	case e.text("gen_ai.tool.name", "tool.name") != "":
		return record.ToolSpan
	case e.text("gen_ai.agent.name", "agent.name") != "":
		return record.AgentSpan
	}
	return record.OtherSpan
}

// callID finds the id of the reply that the span describes. Only model spans describe
// one: an agent's output may quote several.
func (e evidence) callID(kind record.SpanKind) string {
	for _, name := range []string{"gen_ai.response.id", "llm.response.id", "ai.response.id"} {
		if id := replyID.FindString(e.text(name)); id != "" {
			return id
		}
	}
	if kind != record.ModelSpan {
		return ""
	}
	names := make([]string, 0, len(e.attributes))
	for name := range e.attributes {
		if strings.Contains(name, "output") || strings.Contains(name, "response") || strings.Contains(name, "completion") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if id := replyID.FindString(e.text(name)); id != "" {
			return id
		}
	}
	return ""
}

// answered returns the id of the tool call that the span's result names, as LangChain's
// tool messages do. A tool that failed left no result.
func (e evidence) answered() string {
	for _, name := range []string{"output.value", "gen_ai.tool.call.result", "traceloop.entity.output"} {
		if ids := toolCallID.FindAllString(e.text(name), -1); len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return id != ids[0] }) {
			return ids[0]
		}
	}
	return ""
}

// agent returns the name of the agent, or of the node of a graph, that the span has.
func (e evidence) agent(kind record.SpanKind) string {
	if name := e.text("gen_ai.agent.name", "agent.name", "graph.node.id", "langgraph.node"); name != "" {
		return name
	}
	var metadata struct {
		Node string `json:"langgraph_node"`
	}
	if json.Unmarshal([]byte(e.text("metadata")), &metadata) == nil && metadata.Node != "" {
		return metadata.Node
	}
	if node := e.text("langgraph_node", "traceloop.association.properties.langgraph_node"); node != "" {
		return node
	}
	if kind == record.AgentSpan {
		return e.text("traceloop.entity.name", "ai.telemetry.functionId")
	}
	return e.text("ai.telemetry.functionId")
}

// attributesToRecord returns the attributes worth keeping, in bounds. They leave out the
// dialog, which is on record exactly.
func (e evidence) attributesToRecord() map[string]any {
	names := make([]string, 0, len(e.attributes))
	for name := range e.attributes {
		if !repeatsDialog(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := map[string]any{}
	for _, name := range names[:min(len(names), maxAttributes)] {
		v := e.attributes[name]
		if text, ok := v.(string); ok {
			v = truncate(text, longText)
		} else if data, err := json.Marshal(v); err != nil || len(data) > longText {
			continue
		}
		out[truncate(name, shortText)] = v
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func repeatsDialog(name string) bool {
	for _, prefix := range []string{
		"llm.input_messages", "llm.output_messages", "llm.tools", "gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "gen_ai.output.messages",
		"gen_ai.system_instructions", "gen_ai.tool.definitions", "llm.request.functions", "ai.prompt", "ai.response.text", "ai.response.toolCalls",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func firstText(texts ...string) string { return cmp.Or(texts...) }

// truncate shortens text to at most n bytes of valid UTF-8.
func truncate(text string, n int) string {
	if len(text) > n {
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// addFingerprints adds the fingerprints of a span's request and reply. It adds none
// unless it can read both completely: half of a dialog may belong to several calls.
func (e evidence) addFingerprints(s *record.Span) {
	for _, name := range []string{record.InstructionsFingerprint, record.DialogFingerprint, record.ReplyFingerprint} {
		delete(s.Attributes, name)
	}
	if s.Kind != record.ModelSpan || s.CallID != "" {
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
	s.Attributes[record.DialogFingerprint], s.Attributes[record.ReplyFingerprint] = dialog.Fingerprint(rest), dialog.Fingerprint(reply)
	if len(instructions) > 0 {
		s.Attributes[record.InstructionsFingerprint] = dialog.Fingerprint(instructions)
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
