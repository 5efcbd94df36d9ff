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

	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// An excerpt shows this many bytes before and after the first difference.
const (
	excerptBefore = 32
	excerptAfter  = 48
)

// divergence describes how a request differs from the requests that earlier attempts
// recorded and this attempt has not made yet. It returns nil if no such request is left,
// if one of them is equal, or if an earlier call of this attempt already has a
// divergence. The caller holds the lock.
func (a *Attempt) divergence(ctx context.Context, now Canonical) *trace.Divergence {
	e := a.earlier
	if e == nil || e.left == 0 || a.diverged || len(e.calls[now.Key]) > 0 {
		return nil
	}
	// Requests are long and this happens at most once, so they are not kept in memory.
	records, err := a.config.Journal.EarlierExchanges(ctx, a.address)
	if err != nil {
		a.config.Log.Warn("divergence not described", zap.Stringer("rollout", a.address), zap.Error(err))
		return nil
	}
	records = slices.DeleteFunc(records, func(r trace.Exchange) bool { return !a.alike(&r) })
	made := map[int]bool{}
	nearest, best := Canonical{}, -1
	var d *trace.Divergence
	for i, before := range a.formsOf(records) {
		r := &records[i]
		if r.Key == now.Key {
			made[r.Occurrence] = true
		}
		if e.find(r.Key, r.Occurrence) == nil || before.Key == "" {
			continue
		}
		score := 2 * alikeTurns(before, now)
		if before.setting.Agent == now.setting.Agent {
			score++
		}
		if score > best {
			nearest, best, d = before, score, &trace.Divergence{Earlier: r.Attempt, EarlierSeq: r.Seq}
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
func (a *Attempt) formsOf(records []trace.Exchange) []Canonical {
	// The calls are added again, in their order, to an attempt that exists only for this.
	then := &Attempt{begun: a.begun, codec: a.codec, ignore: a.ignore, tree: newTree()}
	forms := make([]Canonical, len(records))
	for i := range records {
		c, r, err := then.restore(&records[i])
		then.calls = append(then.calls, c)
		if err == nil {
			forms[i] = then.Canonicalize(r)
			then.tree.add(c, forms[i])
		}
	}
	return forms
}

// alikeTurns counts the equal turns with which both requests begin.
func alikeTurns(a, b Canonical) int {
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
func difference(before, now Canonical) string {
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
		was, is := before.tools[i], now.tools[i]
		if was.Name != is.Name {
			return fmt.Sprintf("tools[%d].function.name was %q, is %q", i, was.Name, is.Name)
		}
		if was.Description != is.Description {
			return changed(fmt.Sprintf("tools[%d].function.description", i), was.Description, is.Description)
		}
		if w, s := string(was.Parameters), string(is.Parameters); w != s {
			return changed(fmt.Sprintf("tools[%d].function.parameters", i), w, s)
		}
	}
	if len(before.tools) != len(now.tools) {
		return fmt.Sprintf("there were %d tools, there are %d", len(before.tools), len(now.tools))
	}
	was, is := before.setting, now.setting
	switch {
	case was.Agent != is.Agent:
		return fmt.Sprintf("the agent was %q, is %q", was.Agent, is.Agent)
	case was.MaxTokens != is.MaxTokens:
		return fmt.Sprintf("max_tokens was %d, is %d", was.MaxTokens, is.MaxTokens)
	case was.ForbidTools != is.ForbidTools:
		return fmt.Sprintf("tool_choice \"none\" was %t, is %t", was.ForbidTools, is.ForbidTools)
	case was.API != is.API:
		return fmt.Sprintf("the API was %s, is %s", cmp.Or(was.API, wire.Chat), cmp.Or(is.API, wire.Chat))
	case was.Text != is.Text:
		return changed("prompt", was.Text, is.Text)
	case !slices.Equal(was.Tokens, is.Tokens):
		return fmt.Sprintf("prompt had %d tokens, has %d", len(was.Tokens), len(is.Tokens))
	case !slices.Equal(was.Stop, is.Stop):
		return fmt.Sprintf("stop was %q, is %q", was.Stop, is.Stop)
	case was.Schema != is.Schema:
		return changed("the schema of the reply", was.Schema, is.Schema)
	case !reflect.DeepEqual(was.Choice, is.Choice):
		return fmt.Sprintf("tool_choice was %s, is %s", was.Choice, is.Choice)
	case was.OneCall != is.OneCall:
		return fmt.Sprintf("parallel_tool_calls was %t, is %t", !was.OneCall, !is.OneCall)
	}
	return "the requests are equal, but not what the record took them for"
}

func turnDifference(at string, before, now turnForm) string {
	switch {
	case before.Role != now.Role:
		return fmt.Sprintf("%s.role was %q, is %q", at, before.Role, now.Role)
	case before.Text != now.Text:
		return changed(fmt.Sprintf("%s.content (%s)", at, now.Role), before.Text, now.Text)
	case before.Of != now.Of:
		return fmt.Sprintf("%s.tool_call_id answered %q, answers %q", at, before.Of, now.Of)
	case len(before.Calls) != len(now.Calls):
		return fmt.Sprintf("%s.tool_calls were %d, are %d", at, len(before.Calls), len(now.Calls))
	}
	for k, was := range before.Calls {
		is := now.Calls[k]
		at := fmt.Sprintf("%s.tool_calls[%d].function", at, k)
		if was.Name != is.Name {
			return fmt.Sprintf("%s.name was %q, is %q", at, was.Name, is.Name)
		}
		if was.Arguments != is.Arguments {
			return changed(at+".arguments", was.Arguments, is.Arguments)
		}
	}
	return at + " differs"
}

// changed shows where two texts begin to differ.
func changed(at, before, now string) string {
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
