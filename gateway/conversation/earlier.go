package conversation

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// earlier holds the calls that previous attempts sampled and this one has not asked for
// yet. A nil earlier is empty.
type earlier struct {
	calls map[string][]*record.Exchange // by key, attempt after attempt; without their requests
	left  int
	bytes int // memory that the calls take
}

// readEarlier reads the calls of earlier attempts. Those attempts are fenced, so reading
// once is enough.
func (c *Conversation) readEarlier(ctx context.Context) error {
	if c.address.Attempt == 1 || c.maker.config.NoReplay || c.earlier != nil {
		return nil
	}
	records, err := c.maker.config.Journal.EarlierExchanges(ctx, c.address)
	if err != nil {
		return fmt.Errorf("read calls before %s: %w", c.address, err)
	}
	if records, err = c.alike(ctx, records); err != nil {
		return err
	}
	e := &earlier{calls: map[string][]*record.Exchange{}}
	longest := map[*int32]int{} // the tokens counted for each array that prompts share
	for _, r := range records {
		r.Request = nil
		e.calls[r.Key] = append(e.calls[r.Key], &r)
		e.left++
		e.bytes += bytesOf(&r)
		if n := len(r.Prompt); n > 0 {
			e.bytes += 4 * max(0, n-longest[&r.Prompt[0]])
			longest[&r.Prompt[0]] = max(n, longest[&r.Prompt[0]])
		}
	}
	c.earlier = e
	c.weigh()
	return nil
}

// bytesOf returns the memory that an earlier call takes, without its prompt.
func bytesOf(r *record.Exchange) int {
	return callWeight + 4*len(r.Completion) + 4*cap(r.Logprobs) + cap(r.Untrained) + cap(r.Form) + cap(r.Response)
}

// alike returns those calls of earlier attempts that were sampled under terms equal to this
// attempt's. The limit on the reply's length is not compared, because it is part of the
// key.
func (c *Conversation) alike(ctx context.Context, records []record.Exchange) ([]record.Exchange, error) {
	terms := c.begun.Terms
	alike := map[int]bool{} // by attempt
	var out []record.Exchange
	for _, r := range records {
		if r.Version != terms.VersionOf(r.Policy) || r.Temperature != terms.Temperature ||
			r.Seed != seedOf(terms.RunSeed, c.address.RolloutID, r.Key, r.Occurrence) {
			continue
		}
		if _, ok := alike[r.Attempt]; !ok {
			before, err := c.maker.config.Journal.Attempt(ctx, record.Address{RolloutID: c.address.RolloutID, Attempt: r.Attempt})
			if err != nil {
				return nil, fmt.Errorf("read attempt %d before %s: %w", r.Attempt, c.address, err)
			}
			alike[r.Attempt] = before.Terms.Prompts == terms.Prompts && before.Terms.SamePolicies(terms)
		}
		if alike[r.Attempt] {
			out = append(out, r)
		}
	}
	return out, nil
}

// find returns the call that an earlier attempt sampled, or nil.
func (e *earlier) find(key string, occurrence int) *record.Exchange {
	if e == nil {
		return nil
	}
	for _, r := range e.calls[key] {
		if r.Occurrence == occurrence {
			return r
		}
	}
	return nil
}

// remove removes a call that this attempt has asked for.
func (e *earlier) remove(key string, occurrence int) {
	if e == nil {
		return
	}
	rest := slices.DeleteFunc(e.calls[key], func(r *record.Exchange) bool {
		if r.Occurrence != occurrence {
			return false
		}
		e.bytes -= bytesOf(r)
		return true
	})
	e.left -= len(e.calls[key]) - len(rest)
	if e.calls[key] = rest; len(rest) == 0 {
		delete(e.calls, key)
	}
	if e.left == 0 {
		e.bytes = 0 // prompts share memory, which is counted until the last call is gone
	}
}

// An excerpt shows this many bytes before and after the first difference.
const (
	excerptBefore = 32
	excerptAfter  = 48
)

// divergence describes how a request differs from the requests that earlier attempts
// recorded and this attempt has not made yet. It returns nil if no such request is left,
// if one of them is equal, or if an earlier call of this attempt already has a
// divergence.
func (c *Conversation) divergence(ctx context.Context, now canonicalRequest) *record.Divergence {
	e := c.earlier
	if e == nil || e.left == 0 || c.diverged || len(e.calls[now.key]) > 0 {
		return nil
	}
	// Requests are long and this happens at most once, so they are not kept in memory.
	records, err := c.maker.config.Journal.EarlierExchanges(ctx, c.address)
	if err == nil {
		records, err = c.alike(ctx, records)
	}
	if err != nil {
		c.maker.config.Log.Warn("divergence not described", zap.Stringer("rollout", c.address), zap.Error(err))
		return nil
	}
	made := map[int]bool{}
	nearest, best := canonicalRequest{}, -1
	var d *record.Divergence
	for i, before := range c.formsOf(records) {
		r := &records[i]
		if r.Key == now.key {
			made[r.Occurrence] = true
		}
		if e.find(r.Key, r.Occurrence) == nil || before.key == "" {
			continue
		}
		score := 2 * alikeTurns(before, now)
		if before.setting.Agent == now.setting.Agent {
			score++
		}
		if score > best {
			nearest, best, d = before, score, &record.Divergence{Earlier: r.Attempt, EarlierSeq: r.Seq}
		}
	}
	switch {
	case d == nil:
	case len(made) > 0:
		d.Difference = fmt.Sprintf("the same request is made once more than before (%d)", len(made))
	default:
		d.Difference = difference(nearest, now)
	}
	return d
}

// formsOf returns the canonical forms of recorded requests, leaving out those that can't
// be read.
func (c *Conversation) formsOf(records []record.Exchange) []canonicalRequest {
	// The calls are added again, in their order, to a conversation that exists only for this.
	replica := &Conversation{begun: c.begun, codec: c.codec, ignore: c.ignore, served: c.served, tree: newTree()}
	forms := make([]canonicalRequest, len(records))
	for i := range records {
		call, r, err := replica.restore(&records[i])
		replica.calls = append(replica.calls, call)
		if err == nil {
			forms[i] = replica.canonicalize(r)
			replica.tree.add(call, forms[i])
		}
	}
	return forms
}

// alikeTurns counts the equal turns with which both requests begin.
func alikeTurns(a, b canonicalRequest) int {
	n := 0
	for n < min(len(a.forms), len(b.forms)) && sameTurn(a.forms[n], b.forms[n]) {
		n++
	}
	return n
}

func sameTurn(a, b turnForm) bool {
	return a.Role == b.Role && a.Text == b.Text && a.Of == b.Of && slices.Equal(a.Calls, b.Calls)
}

// difference describes the first difference between two requests in the API's names.
func difference(before, now canonicalRequest) string {
	n := alikeTurns(before, now)
	at := fmt.Sprintf("messages[%d]", n)
	switch {
	case n < min(len(before.forms), len(now.forms)):
		return turnDifference(at, before.forms[n], now.forms[n])
	case n < len(now.forms):
		return fmt.Sprintf("%s (%s) is new: %s", at, now.forms[n].Role, opening(now.forms[n].Text))
	case n < len(before.forms):
		return fmt.Sprintf("%s (%s) is missing, it was %s", at, before.forms[n].Role, opening(before.forms[n].Text))
	}
	for i := range min(len(before.tools), len(now.tools)) {
		old, cur := before.tools[i], now.tools[i]
		if old.Name != cur.Name {
			return fmt.Sprintf("tools[%d].function.name was %q, is %q", i, old.Name, cur.Name)
		}
		if old.Description != cur.Description {
			return textDifference(fmt.Sprintf("tools[%d].function.description", i), old.Description, cur.Description)
		}
		if x, y := string(old.Parameters), string(cur.Parameters); x != y {
			return textDifference(fmt.Sprintf("tools[%d].function.parameters", i), x, y)
		}
	}
	if len(before.tools) != len(now.tools) {
		return fmt.Sprintf("there were %d tools, there are %d", len(before.tools), len(now.tools))
	}
	old, cur := before.setting, now.setting
	switch {
	case old.Agent != cur.Agent:
		return fmt.Sprintf("the agent was %q, is %q", old.Agent, cur.Agent)
	case old.MaxTokens != cur.MaxTokens:
		return fmt.Sprintf("max_tokens was %d, is %d", old.MaxTokens, cur.MaxTokens)
	case old.ForbidTools != cur.ForbidTools:
		return fmt.Sprintf("tool_choice \"none\" was %t, is %t", old.ForbidTools, cur.ForbidTools)
	case old.API != cur.API:
		return fmt.Sprintf("the API was %s, is %s", cmp.Or(old.API, wire.Chat), cmp.Or(cur.API, wire.Chat))
	case old.Text != cur.Text:
		return textDifference("prompt", old.Text, cur.Text)
	case !slices.Equal(old.Tokens, cur.Tokens):
		return fmt.Sprintf("prompt had %d tokens, has %d", len(old.Tokens), len(cur.Tokens))
	case !slices.Equal(old.Stop, cur.Stop):
		return fmt.Sprintf("stop was %q, is %q", old.Stop, cur.Stop)
	case old.Schema != cur.Schema:
		return textDifference("the schema of the reply", old.Schema, cur.Schema)
	case !reflect.DeepEqual(old.Choice, cur.Choice):
		return fmt.Sprintf("tool_choice was %s, is %s", old.Choice, cur.Choice)
	case old.OneCall != cur.OneCall:
		return fmt.Sprintf("parallel_tool_calls was %t, is %t", !old.OneCall, !cur.OneCall)
	case old.Policy != cur.Policy:
		return fmt.Sprintf("the policy was %q, is %q", old.Policy, cur.Policy)
	case old.Model != cur.Model:
		return fmt.Sprintf("the model was %q, is %q", old.Model, cur.Model)
	}
	return "the requests are equal, but not what the record took them for"
}

func turnDifference(at string, before, now turnForm) string {
	switch {
	case before.Role != now.Role:
		return fmt.Sprintf("%s.role was %q, is %q", at, before.Role, now.Role)
	case before.Text != now.Text:
		return textDifference(fmt.Sprintf("%s.content (%s)", at, now.Role), before.Text, now.Text)
	case before.Of != now.Of:
		return fmt.Sprintf("%s.tool_call_id answered %q, answers %q", at, before.Of, now.Of)
	case len(before.Calls) != len(now.Calls):
		return fmt.Sprintf("%s.tool_calls were %d, are %d", at, len(before.Calls), len(now.Calls))
	}
	for k, old := range before.Calls {
		cur := now.Calls[k]
		at := fmt.Sprintf("%s.tool_calls[%d].function", at, k)
		if old.Name != cur.Name {
			return fmt.Sprintf("%s.name was %q, is %q", at, old.Name, cur.Name)
		}
		if old.Arguments != cur.Arguments {
			return textDifference(at+".arguments", old.Arguments, cur.Arguments)
		}
	}
	return at + " differs"
}

// textDifference shows where two texts begin to differ.
func textDifference(at, before, now string) string {
	n := 0
	for n < min(len(before), len(now)) && before[n] == now[n] {
		n++
	}
	return fmt.Sprintf("%s was %s, is %s", at, excerpt(before, n), excerpt(now, n))
}

func opening(text string) string { return excerpt(text, 0) }

// excerpt quotes the text around byte n.
func excerpt(text string, n int) string {
	from, to := max(0, n-excerptBefore), min(len(text), n+excerptAfter)
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	var b strings.Builder
	if from > 0 {
		b.WriteString("…")
	}
	b.WriteString(text[from:to])
	if to < len(text) {
		b.WriteString("…")
	}
	return fmt.Sprintf("%q", b.String())
}
