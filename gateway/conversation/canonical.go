package conversation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// digest is a SHA-256.
type digest = [sha256.Size]byte

// Canonical is the form of a request in which equal requests are equal. The ids of tool
// calls are replaced by positions. A recorded reply has its recorded text, even if the
// client reformatted it.
type Canonical struct {
	turns []dialog.Message
	// nodes[i] is the recorded call whose reply is turn i; nil if there is none.
	nodes []*Call
	// chain[i] is a digest of the tools and the first i turns.
	chain []digest
	// Key is a digest, in hex, of everything that decides the reply. Unlike chain it
	// leaves out the text that the run's ignored patterns match. Two requests that differ
	// only there are equal to the record, but the policy reads the text unchanged.
	Key string

	tools   []dialog.Tool
	forms   []turnForm // the parts of the turns that the key covers
	setting settingForm
}

// last returns the last recorded call in the dialog, nil if there is none.
func (c *Canonical) last() *Call {
	for _, node := range slices.Backward(c.nodes) {
		if node != nil {
			return node
		}
	}
	return nil
}

// turnForm is the canonical form of a turn: equal turns have equal forms.
type turnForm struct {
	Role  dialog.Role `json:"role"`
	Text  string      `json:"text"`
	Calls []callForm  `json:"calls,omitempty"`
	// Of names the tool call that a tool's result answers: by the numbers TURN.CALL, or
	// by the client's own id if no turn has such a call.
	Of string `json:"of,omitempty"`
	// Thoughts are left out if the turn is the reply of a recorded call.
	Thoughts string `json:"thoughts,omitempty"`
}

type callForm struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// canonicalize brings a request into its canonical form, given the calls recorded so far.
// If several calls match a turn, it prefers the one that the request names.
func canonicalize(r *wire.Request, setting settingForm, ignore patterns, recorded *tree, named *Call) Canonical {
	c := Canonical{setting: setting, tools: toolForms(r.Tools)}
	var chain chainWriter
	exact := chain.link(digest{}, c.tools)
	kept := exact
	c.chain = []digest{exact}
	positions := map[string]string{}
	var before *Call
	for i, m := range r.Dialog {
		m = recorded.asIssued(m)
		for k, tc := range m.ToolCalls {
			positions[tc.ID] = fmt.Sprintf("%d.%d", i, k)
		}
		form := formOf(m, positions)
		end := chain.link(exact, form)
		var node *Call
		if m.Role == dialog.Assistant {
			node = recorded.find(end, m, before, named)
		}
		if node != nil {
			m.Content, m.Reasoning, before = node.Message.Content, node.Message.Reasoning, node
		} else if form.Thoughts = strings.TrimSpace(m.Reasoning); form.Thoughts != "" {
			end = chain.link(exact, form)
		}
		exact = end
		c.turns, c.nodes, c.chain = append(c.turns, m), append(c.nodes, node), append(c.chain, exact)
		if len(ignore) > 0 {
			form = ignore.drop(form)
			kept = chain.link(kept, form)
		} else {
			kept = exact
		}
		c.forms = append(c.forms, form)
	}
	key := chain.link(kept, setting)
	c.Key = hex.EncodeToString(key[:])
	return c
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

// toolForms returns the tools with their schemas in normal form.
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
	d.UseNumber() // distinguishes 1 from 1.0 and keeps long integers
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

// chainWriter computes chains of digests. The zero value is ready to use.
type chainWriter struct{ text bytes.Buffer }

// link returns the digest of the chain that ends in before, continued with v.
func (w *chainWriter) link(before digest, v any) digest {
	w.text.Reset()
	w.text.Write(before[:])
	// The forms above hold nothing that JSON can't express.
	_ = jsonv2.MarshalWrite(&w.text, v, json.DefaultOptionsV1())
	w.text.WriteByte('\n') // digests on record include it
	return sha256.Sum256(w.text.Bytes())
}
