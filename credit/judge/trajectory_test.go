package judge_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
)

const tools = `"tools":[{"type":"function","function":{"name":"calculator","parameters":{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}}}]`

// said returns the tokens of a reply. A part that begins with "→" is a tool call.
func said(parts ...string) []int32 {
	var ids []int32
	for _, p := range parts {
		if call, ok := strings.CutPrefix(p, "→"); ok {
			ids, p = append(ids, tokenizer.ToolCall), call
		}
		ids = append(ids, dialog.Compact().Encode(p)...)
	}
	return append(ids, tokenizer.End)
}

type attemptRecord struct {
	record.Attempt
	History []record.Exchange
}

// recorded returns an attempt that used a tool, asked another agent through another API,
// and completed a plain text.
func recorded() attemptRecord {
	t := attemptRecord{Attempt: record.Attempt{
		Address: record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: 1, Sample: 2}, Attempt: 1},
		Result:  "3315", Failure: "timeout",
	}}
	first := `{"role":"system","content":"Be brief."},{"role":"user","content":"123+456*7"}`
	for seq, c := range []record.Exchange{
		{Call: record.Call{Parent: -1, Agent: "solver", Completion: said("so", "→123+456*7")}, Request: json.RawMessage(`{"model":"m",` + tools + `,"messages":[` + first + `]}`)},
		{Call: record.Call{Parent: 0, Agent: "solver", Completion: said("3315"), ParseError: "cut off"}, Request: json.RawMessage(`{"model":"m",` + tools + `,"messages":[` + first +
			`,{"role":"assistant","content":"so","tool_calls":[{"id":"call_9","type":"function","function":{"name":"calculator","arguments":"{}"}}]},` +
			`{"role":"tool","tool_call_id":"call_9","content":"3315"}]}`)},
		{Call: record.Call{Parent: -1, Agent: "checker", API: "messages", Completion: said("yes")}, Request: json.RawMessage(
			`{"model":"m","max_tokens":9,"system":"Check.","messages":[{"role":"user","content":[{"type":"text","text":"3315?"}]}]}`)},
		{Call: record.Call{Parent: -1, API: "completions", Completion: said(" more")}, Request: json.RawMessage(`{"model":"m","prompt":"Once"}`)},
		{Call: record.Call{Parent: -1, Prompt: said("old"), Completion: said("new")}, Request: json.RawMessage(`{"of":"another release"}`)},
		{Call: record.Call{Parent: -1, Completion: said("4")}, Request: json.RawMessage(`{"model":"m","messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"user","content":"3"}]}`)},
	} {
		c.Address, c.Seq, c.ID, c.Started = t.Address, seq, "chatcmpl-7", time.Date(2026, 11, 21, 0, 0, seq, 0, time.UTC)
		t.History = append(t.History, c)
	}
	return t
}

func read(t attemptRecord) judge.Attempt {
	return judge.Of(t.Attempt, t.History, tasks.Task{ID: "x", Input: "123+456*7", Answer: "3315"}, 0.5, dialog.Compact())
}

func TestAJudgeIsToldWhatIsNew(t *testing.T) {
	t.Parallel()
	want := judge.Attempt{
		Address: recorded().Address, Task: "123+456*7", Expected: "3315", Result: "3315", Failure: "timeout", Reward: 0.5,
		Calls: []judge.Call{
			{
				Number: 1, Agent: "solver", Asked: []judge.Message{{Role: "system", Text: "Be brief."}, {Role: "user", Text: "123+456*7"}},
				Answered: judge.Message{Text: "so", Tools: []judge.Tool{{Name: "calculator", Arguments: `{"expression":"123+456*7"}`}}},
			},
			{Number: 2, Agent: "solver", Asked: []judge.Message{{Role: "tool", Text: "3315"}}, Answered: judge.Message{Text: "3315"}, Problem: "cut off"},
			{Number: 3, Agent: "checker", Asked: []judge.Message{{Role: "system", Text: "Check."}, {Role: "user", Text: "3315?"}}, Answered: judge.Message{Text: "yes"}},
			{Number: 4, Asked: []judge.Message{{Text: "Once"}}, Answered: judge.Message{Text: " more"}},
			{Number: 5, Asked: []judge.Message{{Text: "old<end>"}}, Answered: judge.Message{Text: "new"}},
			{ // continues nothing on record, so all of it is new
				Number: 6, Asked: []judge.Message{{Role: "user", Text: "1"}, {Role: "assistant", Text: "2"}, {Role: "user", Text: "3"}},
				Answered: judge.Message{Text: "4"},
			},
		},
	}
	// Calls without an agent's name are distinguished by digests, which another package
	// computes.
	unnamed := cmpopts.IgnoreFields(judge.Call{}, "Agent")
	got := read(recorded())
	require.Empty(t, cmp.Diff(want.Calls[3:], got.Calls[3:], unnamed))
	want.Calls, got.Calls = want.Calls[:3], got.Calls[:3]
	require.Empty(t, cmp.Diff(want, got))
}

// Runs under other names, at other times, have to come by the same judgments.
func TestWhatAJudgeIsToldDependsOnNoNameAndNoClock(t *testing.T) {
	t.Parallel()
	one, other := recorded(), recorded()
	other.Run, other.Attempt.Attempt, other.Terms.RunSeed, other.KeyHash = "other", 7, 9, "k"
	other.Error, other.Begun = "died at 10:31 in /tmp/x", time.Now()
	for i := range other.History {
		c := &other.History[i]
		c.Address, c.ID, c.Seed, c.Started, c.Duration = other.Address, "chatcmpl-8", 99, time.Now(), time.Hour
		c.ReplayedFrom, c.RequestName, c.Recorded = 3, "e", time.Now()
		c.Request = json.RawMessage(strings.ReplaceAll(string(c.Request), "call_9", "call_10"))
	}
	require.Equal(t, judge.Document(read(one)), judge.Document(read(other)))
	other.Result = "3316"
	require.NotEqual(t, judge.Document(read(one)), judge.Document(read(other)))
}

func TestLongTextsAreToldByTheirEnds(t *testing.T) {
	t.Parallel()
	require.Equal(t, "short", judge.Truncate("short"))
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.StringMatching(`[a-zé漢\x{1F600}]{1,30}`).Draw(t, "unit"), rapid.IntRange(1, 2000).Draw(t, "times"))
		got := judge.Truncate(text)
		require.True(t, utf8.ValidString(got))
		if len(text) <= 8000 {
			require.Equal(t, text, got)
			return
		}
		require.Less(t, len(got), 8100)
		head, rest, _ := strings.Cut(got, "\n[")
		_, tail, _ := strings.Cut(rest, "here]\n")
		require.True(t, strings.HasPrefix(text, head) && strings.HasSuffix(text, tail) && len(head) > 4990 && len(tail) > 2990)
	})
	require.True(t, utf8.ValidString(judge.Truncate("\xff"+strings.Repeat("\xfe", 9000))))
}
