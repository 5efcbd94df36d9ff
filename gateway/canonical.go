package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
)

// digest is a SHA-256.
type digest = [sha256.Size]byte

// canonical is a request without what can't matter: ids that were issued are
// positions, arguments that a client reformatted are as they were recorded.
type canonical struct {
	turns []dialog.Message
	// chain[i] stands for the tools and the first i turns.
	chain []digest
	// key stands for all that decides the reply, hex. Unlike chain it leaves out
	// what the run's ignored patterns match: two requests that differ in nothing
	// else are one to the record, but what the policy reads is never changed.
	key string

	tools   []dialog.Tool
	forms   []turnForm // what of the turns is in the key
	setting settingForm
}

// turnForm is what two equal turns have in common.
type turnForm struct {
	Role  dialog.Role `json:"role"`
	Text  string      `json:"text"`
	Calls []callForm  `json:"calls,omitempty"`
	// Of is the call that a tool's result answers, as turn.call, or the
	// client's own id if no turn has such a call.
	Of string `json:"of,omitempty"`
}

type callForm struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// settingForm is what decides a reply beside the dialog.
type settingForm struct {
	Agent       string `json:"agent"`
	ForbidTools bool   `json:"forbid_tools"`
	MaxTokens   int    `json:"max_tokens"`
}

// canonicalize brings a request into its canonical form. issued finds the reply
// in which a tool call of that id was issued.
func canonicalize(r *chatRequest, setting settingForm, ignore patterns, issued func(toolCall string) (dialog.Message, bool)) canonical {
	c := canonical{setting: setting, tools: toolForms(r.tools)}
	exact := link(digest{}, c.tools)
	kept := exact
	c.chain = []digest{exact}
	positions := map[string]string{}
	for i, m := range r.messages {
		m = asIssued(m, issued)
		for k, call := range m.ToolCalls {
			positions[call.ID] = fmt.Sprintf("%d.%d", i, k)
		}
		form := formOf(m, positions)
		c.turns = append(c.turns, m)
		exact = link(exact, form)
		c.chain = append(c.chain, exact)
		if len(ignore) > 0 {
			form = ignore.drop(form)
			kept = link(kept, form)
		} else {
			kept = exact
		}
		c.forms = append(c.forms, form)
	}
	key := link(kept, setting)
	c.key = hex.EncodeToString(key[:])
	return c
}

// asIssued returns the recorded reply that m repeats, or m itself.
func asIssued(m dialog.Message, issued func(string) (dialog.Message, bool)) dialog.Message {
	if m.Role != dialog.Assistant || len(m.ToolCalls) == 0 {
		return m
	}
	reply, ok := issued(m.ToolCalls[0].ID)
	if !ok || len(reply.ToolCalls) != len(m.ToolCalls) {
		return m
	}
	for k, call := range m.ToolCalls {
		if call.ID != reply.ToolCalls[k].ID {
			return m
		}
	}
	return reply
}

func formOf(m dialog.Message, positions map[string]string) turnForm {
	f := turnForm{Role: m.Role, Text: m.Content, Of: m.ToolCallID}
	if m.Role == dialog.Assistant {
		f.Text = strings.TrimSpace(m.Content) // clients trim what they send back
	}
	if at, ok := positions[m.ToolCallID]; ok && m.ToolCallID != "" {
		f.Of = at
	}
	for _, call := range m.ToolCalls {
		f.Calls = append(f.Calls, callForm{call.Function.Name, normalJSON(call.Function.Arguments)})
	}
	return f
}

// toolForms is the tools with their schemas in normal form.
func toolForms(tools []dialog.Tool) []dialog.Tool {
	forms := make([]dialog.Tool, len(tools))
	for i, t := range tools {
		t.Parameters = []byte(normalJSON(string(t.Parameters)))
		forms[i] = t
	}
	return forms
}

// normalJSON sorts keys and drops space; text that is not JSON becomes a JSON
// string.
func normalJSON(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // 1 and 1.0 are told apart, long integers kept
	var value any
	if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
		value = text
	}
	normal, err := json.Marshal(value)
	if err != nil {
		return `""` // unreachable: value came out of JSON
	}
	return string(normal)
}

// link continues a chain of digests.
func link(before digest, v any) digest {
	var b bytes.Buffer
	b.Write(before[:])
	// The forms above hold nothing that JSON can't express.
	_ = json.NewEncoder(&b).Encode(v)
	return sha256.Sum256(b.Bytes())
}

// seedOf is the seed of a call. The run's name and the attempt's number are not
// in it, so that equal runs and repeated attempts sample the same.
func seedOf(runSeed uint64, r trace.RolloutID, key string, occurrence int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite call\n%d\n%s\n%d\n%d\n%d\n%s\n%d\n",
		runSeed, r.Kind, r.Step, r.Task, r.Sample, key, occurrence))
	return binary.BigEndian.Uint64(sum[:])
}

// idOf is the part that the ids of a call share, 24 hex digits.
func idOf(seed uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite id\n%d\n", seed))
	return hex.EncodeToString(sum[:12])
}

func callID(id string) string { return "chatcmpl-" + id }

// toolCallIDs numbers the tool calls of one reply.
func toolCallIDs(id string) func(k int) string {
	return func(k int) string { return fmt.Sprintf("call_%s_%d", id, k) }
}
