package gateway_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

func byTemplate(a *record.Attempt) { a.Terms.History = record.HistoryTemplate }

// thought returns an assistant's turn as a client that keeps thoughts sends it back.
func thought(reasoning, content string) string {
	return fmt.Sprintf(`{"role":"assistant","reasoning_content":%q,"content":%q}`, reasoning, content)
}

func (s *testEnv) drifts(t *testing.T) []bool {
	t.Helper()
	var all []bool
	for _, c := range s.recorded(t) {
		all = append(all, c.Drift)
	}
	return all
}

func (s *testEnv) parents(t *testing.T) []int {
	t.Helper()
	var all []int
	for _, c := range s.recorded(t) {
		all = append(all, c.Parent)
	}
	return all
}

func TestAppendedHistoryKeepsThoughtsThatATemplateDrops(t *testing.T) {
	t.Parallel()
	for name, assistant := range map[string]string{
		"kept by the client":    thought("hm", "1"),
		"dropped by the client": message("assistant", "1"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, nil, think)
			s.replies = [][]int32{say("hm", tokenizer.Argument, "1", tokenizer.End)}
			g := gateway.New(s.config)
			s.serve(t, g)
			s.chat(t, ask("a"))
			s.chat(t, request(message("user", "a"), assistant, message("user", "b")))
			require.Equal(t, "<user>a<end><assistant>hm<arg>1<end><user>b<end><assistant>", text(s.requests()[1].Prompt))
			require.Equal(t, []int{-1, 0}, s.parents(t))
			require.Equal(t, []bool{false, true}, s.drifts(t), "what a template would have done")
			require.Equal(t, int64(1), g.Stats().Drifted)
		})
	}
}

func TestRenderedHistoryIsWhatATemplateMakesOfIt(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		s := newTestEnv(t, byTemplate, think)
		s.replies = [][]int32{say("hm", tokenizer.Argument, "1", tokenizer.End), say("2", tokenizer.End)}
		s.chat(t, ask("a"))
		if restarted {
			s.restart(t)
		}
		s.chat(t, request(message("user", "a"), message("assistant", "1"), message("user", "b")))
		require.Equal(t, "<user>a<end><assistant>1<end><user>b<end><assistant>", text(s.requests()[1].Prompt))
		require.Equal(t, []int{-1, -1}, s.parents(t), "a branch of its own")
		// What came since is kept by the template, so it is continued.
		s.chat(t, request(message("user", "a"), message("assistant", "1"), message("user", "b"), message("assistant", "2"), message("user", "c")))
		require.Equal(t, []int{-1, -1, 1}, s.parents(t))
		require.Equal(t, []bool{false, true, false}, s.drifts(t))
		require.Len(t, record.Merge(record.Calls(s.recorded(t))), 2)
	}
}

func TestRenderedHistoryContinuesWhatTheTemplateKeeps(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, byTemplate, think)
	s.replies = [][]int32{say("hm", tokenizer.Argument, "1", tokenizer.ToolCall, "7", tokenizer.End)}
	const tool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}},"required":["x"]}}}],`
	a := s.chat(t, `{`+tool+`"messages":[{"role":"user","content":"a"}]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	id := textAt(object(t, a.body), "choices", 0, "message", "tool_calls", 0, "id")
	// The client drops the thoughts; the recorded ones are used.
	s.chat(t, `{`+tool+`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"1","tool_calls":[{"id":"`+id+`","function":{"name":"f","arguments":"{\"x\": \"7\"}"}}]},{"role":"tool","tool_call_id":"`+id+`","content":"49"}]}`)
	require.Equal(t, "<user>a<end><assistant>hm<arg>1<call>7<end><tool>49<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, []int{-1, 0}, s.parents(t))
	require.Equal(t, []bool{false, false}, s.drifts(t))
}

func TestHistoryWithoutDriftIsTheSameEitherWay(t *testing.T) {
	t.Parallel()
	appended, rendered := newTestEnv(t, nil), newTestEnv(t, byTemplate)
	require.Equal(t, appended.converse(t, 1, 4), rendered.converse(t, 1, 4))
	for i, c := range appended.recorded(t) {
		require.Equal(t, c.Prompt, rendered.recorded(t)[i].Prompt)
		require.Equal(t, c.Parent, rendered.recorded(t)[i].Parent)
		require.False(t, c.Drift || rendered.recorded(t)[i].Drift)
	}
}

func TestOddSpellingsDrift(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]int{"": {-1, 0}, record.HistoryAppend: {-1, 0}, record.HistoryTemplate: {-1, -1}} {
		s := newTestEnv(t, func(a *record.Attempt) { a.Terms.History = mode })
		s.replies = [][]int32{say(int32(32+'7'), tokenizer.End)}
		s.chat(t, ask("a"))
		s.chat(t, request(message("user", "a"), message("assistant", "7"), message("user", "b")))
		require.Equal(t, want, s.parents(t))
		require.Equal(t, []bool{false, true}, s.drifts(t))
	}
}

func TestThoughtsTellBranchesApart(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		s := newTestEnv(t, nil, think)
		s.replies = [][]int32{say("one", tokenizer.Argument, "1", tokenizer.End), say("two", tokenizer.Argument, "1", tokenizer.End)}
		s.chat(t, ask("a"))
		s.chat(t, ask("a"))
		if restarted {
			s.restart(t)
		}
		for _, assistant := range []string{thought(" one\n", "1"), thought("two", "1"), message("assistant", "1"), thought("edited", "1")} {
			s.chat(t, request(message("user", "a"), assistant, message("user", "b")))
		}
		require.Equal(t, []int{-1, -1, 0, 1, 1, -1}, s.parents(t), "thoughts that are absent match the last")
		calls := s.recorded(t)
		require.Equal(t, calls[2].Key, calls[4].Key)
		require.NotEqual(t, calls[2].Key, calls[5].Key)
	}
}

func TestBranchesThatSayTheSameAreToldApartByTheirToolCalls(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		s := newTestEnv(t, nil)
		odd := say(tokenizer.ToolCall, int32(32+'7'), tokenizer.End)
		s.replies = [][]int32{odd, say(tokenizer.ToolCall, "7", tokenizer.End), say("ok", tokenizer.End), say("ok", tokenizer.End)}
		const tool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}},"required":["x"]}}}],`
		var called [2]string
		for i := range called {
			a := s.chat(t, `{`+tool+`"messages":[{"role":"user","content":"a"}]}`)
			id := textAt(object(t, a.body), "choices", 0, "message", "tool_calls", 0, "id")
			called[i] = `{"role":"assistant","tool_calls":[{"id":"` + id + `","function":{"name":"f","arguments":"{\"x\":\"7\"}"}}]},{"role":"tool","tool_call_id":"` + id + `","content":"r"}`
		}
		dialog := func(branch int, more string) string {
			return `{` + tool + `"messages":[{"role":"user","content":"a"},` + called[branch] + more + `]}`
		}
		s.chat(t, dialog(1, ""))
		s.chat(t, dialog(0, ""))
		if restarted {
			s.restart(t)
		}
		const on = `,{"role":"assistant","content":"ok"},{"role":"user","content":"b"}`
		s.chat(t, dialog(0, on))
		s.chat(t, dialog(1, on))
		require.Equal(t, []int{-1, -1, 1, 0, 3, 2}, s.parents(t))
		require.Len(t, record.Merge(record.Calls(s.recorded(t))), 2)
	}
}

func TestResultsInAnotherOrderAreAnotherBranchOfTheSameCall(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "1", tokenizer.ToolCall, "2", tokenizer.End)}
	const tool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}},"required":["x"]}}}],`
	a := object(t, s.chat(t, `{`+tool+`"messages":[{"role":"user","content":"a"}]}`).body)
	ids := [2]string{textAt(a, "choices", 0, "message", "tool_calls", 0, "id"), textAt(a, "choices", 0, "message", "tool_calls", 1, "id")}
	result := func(k int) string {
		return fmt.Sprintf(`,{"role":"tool","tool_call_id":%q,"content":"r%d"}`, ids[k], k)
	}
	calls := fmt.Sprintf(`{"role":"assistant","tool_calls":[{"id":%q,"function":{"name":"f","arguments":"{\"x\":\"1\"}"}},{"id":%q,"function":{"name":"f","arguments":"{\"x\":\"2\"}"}}]}`, ids[0], ids[1])
	s.chat(t, `{`+tool+`"messages":[{"role":"user","content":"a"},`+calls+result(0)+result(1)+`]}`)
	s.chat(t, `{`+tool+`"messages":[{"role":"user","content":"a"},`+calls+result(1)+result(0)+`]}`)
	require.Equal(t, []int{-1, 0, 0}, s.parents(t))
	require.Contains(t, text(s.requests()[2].Prompt), "<tool>r1<end><tool>r0<end>")
	require.NotEqual(t, s.recorded(t)[1].Key, s.recorded(t)[2].Key)
}

func TestADialogThatEndsWithTheAssistantGoesOn(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("1", tokenizer.End)}
	s.chat(t, ask("a"))
	s.chat(t, request(message("user", "a"), message("assistant", "1")))
	s.chat(t, request(message("user", "a"), message("assistant", "somebody's")))
	require.Equal(t, []int{-1, 0, -1}, s.parents(t))
	require.Equal(t, "<user>a<end><assistant>1<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, "<user>a<end><assistant>somebody's<end><assistant>", text(s.requests()[2].Prompt))
}

func TestOneDialogGoesOnByAnyAPI(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(int32(32+'1'), tokenizer.End), say(int32(32+'2'), tokenizer.End)}
	s.chat(t, ask("a"))
	turns := `{"role":"user","content":"a"},{"role":"assistant","content":"1"},{"role":"user","content":"b"}`
	s.post(t, s.base()+"/v1/messages", `{"max_tokens":9,"messages":[`+turns+`]}`)
	s.post(t, s.base()+"/v1/responses", `{"input":[`+turns+`,{"role":"assistant","content":"2"},{"role":"user","content":"c"}]}`)
	require.Equal(t, []int{-1, 0, 1}, s.parents(t))
	require.Len(t, record.Merge(record.Calls(s.recorded(t))), 1)
}
