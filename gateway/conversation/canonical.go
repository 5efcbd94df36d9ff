package conversation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// digest is a SHA-256.
type digest = [sha256.Size]byte

// canonicalRequest is the form of a request in which equal requests are equal. The ids of
// tool calls are replaced by positions. A recorded reply has its recorded text, even if
// the client reformatted it.
type canonicalRequest struct {
	turns []dialog.Message
	// nodes[i] is the recorded call whose reply is turn i; nil if there is none.
	nodes []*Call
	// chain[i] is a digest of the tools and the first i turns.
	chain []digest
	// key is a digest, in hex, of everything that decides the reply. Unlike chain it
	// leaves out the text that the run's ignored patterns match. Two requests that differ
	// only there are equal to the record, but the policy reads the text unchanged. Also
	// unlike chain it has the reasoning of other policies, if the client repeats it: this
	// policy reads it, and the dialog is the same for all policies.
	key string

	tools   []dialog.Tool
	forms   []turnForm // the parts of the turns that the key covers
	setting settingForm
}

// last returns the last recorded call in the dialog, nil if there is none.
func (c *canonicalRequest) last() *Call {
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
	// Thoughts are left out if the turn is the reply of a recorded call of the same policy.
	Thoughts string `json:"thoughts,omitempty"`
}

type callForm struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// canonicalize brings a request into its canonical form, given the calls recorded so far.
// If several calls match a turn, it prefers the one that the request names.
func (c *Conversation) canonicalize(r *Request) canonicalRequest {
	out := canonicalRequest{setting: c.setting(r), tools: toolForms(r.Tools)}
	var chain chainWriter
	exact := chain.link(digest{}, out.tools)
	kept := exact
	out.chain = []digest{exact}
	positions := map[string]string{}
	keyApart := len(c.ignore) > 0 || len(c.begun.Terms.Policies) > 0
	var head *Call
	for i, m := range r.Dialog {
		m = c.tree.original(m, r.policy)
		for k, tc := range m.ToolCalls {
			positions[tc.ID] = fmt.Sprintf("%d.%d", i, k)
		}
		form := formOf(m, positions)
		end := chain.link(exact, form)
		var node *Call
		if m.Role == dialog.Assistant {
			node = c.tree.find(end, m, head, r)
		}
		if node != nil {
			said := node.readBy(r.policy, m)
			m.Content, m.Reasoning, head = said.Content, said.Reasoning, node
			if node.Policy != r.policy {
				form.Thoughts = strings.TrimSpace(m.Reasoning) // for the key
			}
		} else if form.Thoughts = strings.TrimSpace(m.Reasoning); form.Thoughts != "" {
			end = chain.link(exact, form)
		}
		exact = end
		out.turns, out.nodes, out.chain = append(out.turns, m), append(out.nodes, node), append(out.chain, exact)
		if keyApart {
			form = c.ignore.drop(form)
			kept = chain.link(kept, form)
		} else {
			kept = exact
		}
		out.forms = append(out.forms, form)
	}
	key := chain.link(kept, out.setting)
	out.key = hex.EncodeToString(key[:])
	return out
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
	Model   string      `json:"model,omitempty"`  // only if the attempt's prompts depend on it
	Policy  string      `json:"policy,omitempty"` // only if the attempt has several
	// Sampling is there only if the client chooses it.
	Sampling *samplingForm `json:"sampling,omitempty"`
}

// samplingForm is how a request wants to be sampled.
type samplingForm struct {
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	Seed        *int64  `json:"seed,omitempty"`
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
// of it if the terms decide them, because only calls under equal terms are compared.
func (c *Conversation) setting(r *Request) settingForm {
	s := settingForm{
		Agent: r.Agent, ForbidTools: r.Choice.None, MaxTokens: c.replyLimit(r.Request),
		Text: c.ignore.without(r.Text), Tokens: r.Tokens, Stop: slices.Sorted(slices.Values(r.Stop)), OneCall: r.Serial,
	}
	if r.API != wire.Chat {
		s.API = r.API
	}
	if r.Format.Schema != nil {
		s.Schema = normalJSON(string(r.Format.Schema))
	}
	if c.served.ByModel() {
		s.Model = r.Model
	}
	if len(c.begun.Terms.Policies) > 0 {
		s.Policy = r.policy
	}
	if c.begun.Terms.ClientSampling {
		temperature, topP := r.sampling()
		s.Sampling = &samplingForm{temperature, topP, r.Seed}
	}
	if r.Choice.Required || r.Choice.Names != nil {
		s.Choice = &choiceForm{r.Choice.Required, slices.Sorted(slices.Values(r.Choice.Names))}
	}
	return s
}

// replyLimit returns the most tokens of a reply: the limit of the attempt's terms, or the
// client's if that is less. Where the client chooses how it is sampled, the terms only say
// what a request means that gives no limit.
func (c *Conversation) replyLimit(r *wire.Request) int {
	if c.begun.Terms.ClientSampling && r.MaxTokens > 0 {
		return r.MaxTokens
	}
	if limit := c.begun.Terms.MaxTokens; r.MaxTokens == 0 || r.MaxTokens > limit {
		return limit
	}
	return r.MaxTokens
}

// patterns match text that does not distinguish requests, such as the time of day.
type patterns []*regexp.Regexp

// compile reads the patterns of an attempt's terms.
func compile(expressions []string) (patterns, error) {
	var all patterns
	for _, e := range expressions {
		p, err := regexp.Compile(e)
		if err != nil {
			return nil, fmt.Errorf("compile ignored pattern: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// drop returns the turn without the text that the patterns match, in its text and in the
// arguments of its tool calls.
func (p patterns) drop(f turnForm) turnForm {
	f.Text, f.Thoughts = p.without(f.Text), p.without(f.Thoughts)
	calls := f.Calls
	f.Calls = nil
	for _, c := range calls {
		f.Calls = append(f.Calls, callForm{c.Name, p.without(c.Arguments)})
	}
	return f
}

func (p patterns) without(text string) string {
	for _, r := range p {
		text = r.ReplaceAllLiteralString(text, "")
	}
	return text
}

// sameJSON reports whether two texts are the same JSON value, whatever their spaces, the
// order of their names, their escapes and the spelling of their numbers: programs that
// read JSON and write it again change all of these. Numbers are compared exactly. No text
// and null are the empty object, because that is how clients write a call without arguments.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	x, ok := argumentsOf(a)
	if !ok {
		return false
	}
	y, ok := argumentsOf(b)
	return ok && sameValue(x, y)
}

func argumentsOf(text string) (value any, ok bool) {
	if strings.TrimSpace(text) == "" {
		return map[string]any{}, true
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
		return nil, false
	}
	if value == nil {
		value = map[string]any{}
	}
	return value, true
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameValue)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && decimalOf(a.String()) == decimalOf(b.String())
	}
	return a == b // texts, truth values and null
}

// decimal is the number 0.DIGITS · 10^exponent, without zeros at either end of the digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
	odd      string // the number itself if its exponent is beyond any machine's
}

// decimalOf returns the one form of a JSON number in which equal numbers are equal.
func decimalOf(number string) decimal {
	text, negative := strings.CutPrefix(number, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return decimal{odd: number}
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent += len(whole)
	digits := whole + fraction
	short := strings.TrimLeft(digits, "0")
	exponent -= len(digits) - len(short)
	if short = strings.TrimRight(short, "0"); short == "" {
		return decimal{} // zero has no sign: JavaScript writes -0 as 0
	}
	return decimal{negative: negative, digits: short, exponent: exponent}
}
