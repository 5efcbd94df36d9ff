package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

func (s *testEnv) client() *openai.Client {
	c := openai.DefaultConfig(key)
	c.BaseURL = s.base() + "/v1"
	return openai.NewClientWithConfig(c)
}

func calculatorTool() []openai.Tool {
	return []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
		Name: "calculator", Description: "Evaluates arithmetic.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`),
	}}}
}

// text shows tokens as a person would write them.
func text(ids []int32) string { return dialog.Compact().Text(ids) }

func TestAToolRoundTripReusesTheSampledTokens(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	// The digit is spelled by its byte, which no encoding of the text would do.
	odd := int32(32 + '7')
	s.replies = [][]int32{say(tokenizer.ToolCall, odd, "*3", tokenizer.End), say("33", tokenizer.End)}
	request := openai.ChatCompletionRequest{
		Model: "gpt-4o", Tools: calculatorTool(), Temperature: 0.3, MaxCompletionTokens: 4096,
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "12+7*3"}},
	}
	first, err := s.client().CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, "gpt-4o", first.Model)
	require.Equal(t, openai.FinishReasonToolCalls, first.Choices[0].FinishReason)
	call := first.Choices[0].Message.ToolCalls[0]
	require.Equal(t, openai.FunctionCall{Name: "calculator", Arguments: `{"expression":"7*3"}`}, call.Function)
	require.Equal(t, "call_"+strings.TrimPrefix(first.ID, "chatcmpl-")+"_0", call.ID)

	request.Messages = append(request.Messages, first.Choices[0].Message,
		openai.ChatCompletionMessage{Role: "tool", Content: "21", ToolCallID: call.ID})
	second, err := s.client().CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, "33", second.Choices[0].Message.Content)
	require.Equal(t, openai.FinishReasonStop, second.Choices[0].FinishReason)

	asked := s.requests()
	require.Len(t, asked, 2)
	require.Equal(t, say(tokenizer.User, "12+7*3", tokenizer.End, tokenizer.Assistant), asked[0].Prompt)
	bridge, err := dialog.Compact().Bridge([]dialog.Message{{Role: dialog.ToolReply, Content: "21"}}, nil)
	require.NoError(t, err)
	require.Equal(t, slices.Concat(asked[0].Prompt, say(tokenizer.ToolCall, odd, "*3", tokenizer.End), bridge), asked[1].Prompt)
	require.Equal(t, openai.Usage{PromptTokens: len(asked[1].Prompt), CompletionTokens: 3, TotalTokens: len(asked[1].Prompt) + 3}, second.Usage)

	calls := s.recorded(t)
	require.Len(t, calls, 2)
	require.Equal(t, -1, calls[0].Parent)
	require.Equal(t, 0, calls[1].Parent)
	require.Equal(t, first.ID, calls[0].ID)
	require.Equal(t, "c0ffee", calls[0].Weights)
	require.Equal(t, "gpu-1:8000", calls[0].Server, "who sampled it")
	require.Len(t, record.Merge(record.Calls(calls)), 1, "both calls are one sequence")
}

func TestTermsDecideHowACallIsSampled(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	for body, limit := range map[string]int{
		`{"model":"m","temperature":0,"max_tokens":9999,"seed":5,"messages":[{"role":"user","content":"a"}]}`: 32,
		`{"model":"m","max_completion_tokens":3,"messages":[{"role":"user","content":"b"}]}`:                  3,
	} {
		require.Equal(t, http.StatusOK, s.chat(t, body).status)
		asked := s.requests()
		last := asked[len(asked)-1]
		require.Equal(t, limit, last.MaxTokens)
		require.InDelta(t, 1, last.Temperature, 0)
		require.Equal(t, []int32{tokenizer.End}, last.Stop)
		require.Equal(t, model.VersionID{Run: "demo", Policy: "main", Number: 2}, s.version[len(asked)-1])
	}
}

func TestRequestsOfEveryFrameworkContinueTheCall(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for i, file := range append(files, files...) {
		restarted := i >= len(files) // a gateway killed in between changes nothing
		t.Run(fmt.Sprintf("%s restarted %t", filepath.Base(file), restarted), func(t *testing.T) {
			t.Parallel()
			recorded, err := os.ReadFile(file)
			require.NoError(t, err)
			s := newTestEnv(t, nil)
			s.replies = [][]int32{say(tokenizer.ToolCall, int32(32+'7'), "*3", tokenizer.End)}

			var whole map[string]any
			require.NoError(t, json.Unmarshal(recorded, &whole))
			whole["messages"] = whole["messages"].([]any)[:1]
			opening, err := json.Marshal(whole)
			require.NoError(t, err)
			first := s.chat(t, string(opening))
			require.Equal(t, http.StatusOK, first.status, first.body)
			var reply openai.ChatCompletionResponse
			require.NoError(t, json.Unmarshal([]byte(first.body), &reply))

			if restarted {
				s.restart(t)
			}
			second := s.chat(t, strings.ReplaceAll(string(recorded), "%CALL%", reply.Choices[0].Message.ToolCalls[0].ID))
			require.Equal(t, http.StatusOK, second.status, second.body)
			require.Equal(t, "<user>12+7*3<end><assistant><call>7*3<end><tool>21<end><assistant>", text(s.requests()[1].Prompt))
			require.Equal(t, 0, s.recorded(t)[1].Parent)
			require.Contains(t, s.requests()[1].Prompt, int32(32+'7'))
		})
	}
}

func TestAPlainReplyIsRecognizedByItsTrimmedText(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("7 ", int32(32+'!'), "\n", tokenizer.End)}
	s.chat(t, ask("hi"))
	s.chat(t, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"7 !"},{"role":"user","content":"why?"}]}`)
	require.Equal(t, "<user>hi<end><assistant>7 !\n<end><user>why?<end><assistant>", text(s.requests()[1].Prompt))
}

func TestABranchContinuesTheLongestSharedCall(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("1", tokenizer.End), say("2", tokenizer.End)}
	s.chat(t, ask("a"))
	turns := `{"role":"user","content":"a"},{"role":"assistant","content":"1"},{"role":"user","content":"b"}`
	s.chat(t, `{"messages":[`+turns+`]}`)
	s.chat(t, `{"messages":[`+turns+`,{"role":"assistant","content":"2"},{"role":"user","content":"c"}]}`)
	s.chat(t, `{"messages":[`+turns+`,{"role":"assistant","content":"someone else's"},{"role":"user","content":"c"}]}`)
	s.chat(t, `{"messages":[{"role":"user","content":"edited"},{"role":"assistant","content":"1"},{"role":"user","content":"b"}]}`)
	var parents []int
	for _, c := range s.recorded(t) {
		parents = append(parents, c.Parent)
	}
	require.Equal(t, []int{-1, 0, 1, 0, -1}, parents)
}

func TestAReplyCutOffIsClosedBeforeItGoesOn(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.MaxTokens = 2 })
	s.replies = [][]int32{say("123", tokenizer.End)}
	first := s.chat(t, ask("a"))
	require.Contains(t, first.body, `"finish_reason":"length"`)
	s.chat(t, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"12"},{"role":"user","content":"go on"}]}`)
	require.Equal(t, "<user>a<end><assistant>12<end><user>go on<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, 0, s.recorded(t)[1].Parent)
}

func TestWhatIsNotAToolCallIsAnsweredAsText(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "1", tokenizer.End)}
	a := s.chat(t, ask("a"))
	var reply openai.ChatCompletionResponse
	require.NoError(t, json.Unmarshal([]byte(a.body), &reply))
	require.Equal(t, "<call>1", reply.Choices[0].Message.Content)
	require.Empty(t, reply.Choices[0].Message.ToolCalls)
	require.Equal(t, "tool call, but no tool is offered", s.recorded(t)[0].ParseError)
}

func TestTheReplyHasTheWholeShape(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("4", tokenizer.End), say("4", tokenizer.End), say(tokenizer.ToolCall, "1", tokenizer.End)}
	plain := s.chat(t, `{"model":"m","messages":[{"role":"user","content":"2+2"}]}`)
	id := s.recorded(t)[0].ID
	require.Regexp(t, `^chatcmpl-[0-9a-f]{24}$`, id)
	require.Equal(t, "application/json", plain.header.Get("Content-Type"))
	require.Equal(t, id, plain.header.Get("X-Request-Id"))
	require.JSONEq(t, `{"id":"`+id+`","object":"chat.completion","created":1795176000,"model":"m",
		"choices":[{"index":0,"message":{"role":"assistant","content":"4","refusal":null},"logprobs":null,"finish_reason":"stop"}],
		"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}}`, plain.body)
	require.JSONEq(t, plain.body, string(s.recorded(t)[0].Response))

	scored := s.chat(t, `{"model":"m","logprobs":true,"messages":[{"role":"user","content":"3+1"}]}`)
	require.Contains(t, scored.body, `"logprobs":{"content":[{"token":"4","logprob":-0.5,"bytes":[52],"top_logprobs":[]}],"refusal":null}`)

	tool := s.chat(t, `{"model":"m","messages":[{"role":"user","content":"5"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}},"required":["x"]}}}]}`)
	require.Contains(t, tool.body, `"content":null`)
	require.Contains(t, tool.body, `"finish_reason":"tool_calls"`)
}

func TestEqualRequestsOfEqualRolloutsSampleEqually(t *testing.T) {
	t.Parallel()
	seeds := func(s *testEnv, base string) []uint64 {
		for _, body := range []string{
			ask("a"), ask("a"),
			`{"model":"another","user":"u","metadata":{"k":1},"stream":false,"messages":[{"content":[{"type":"text","text":"a"}],"role":"user"}]}`,
			`{"messages":[{"role":"developer","content":"s"},{"role":"user","content":"b"}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"b"}]}`,
		} {
			require.Equal(t, http.StatusOK, s.post(t, s.url+base+"/v1/chat/completions", body).status)
		}
		var all []uint64
		for _, r := range s.requests() {
			all = append(all, r.Seed)
		}
		return all
	}
	one := seeds(newTestEnv(t, nil), "/r/demo/train-3/17/2/1")
	require.Len(t, one, 5)
	sorted := slices.Clone(one)
	slices.Sort(sorted)
	require.Len(t, slices.Compact(sorted), 5, "each occurrence has a seed of its own")

	renamed := newTestEnv(t, func(a *record.Attempt) { a.Run, a.Attempt = "other", 4 })
	require.Equal(t, one, seeds(renamed, "/r/other/train-3/17/2/4"), "neither run name nor attempt matters")
	sibling := newTestEnv(t, func(a *record.Attempt) { a.Sample = 3 })
	for i, seed := range seeds(sibling, "/r/demo/train-3/17/3/1") {
		require.NotEqual(t, one[i], seed)
	}
}

func TestOccurrencesCountAcrossFormsOfTheSameRequest(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, ask("a"))
	s.chat(t, `{"model":"another","user":"u","messages":[{"content":[{"type":"text","text":"a"}],"role":"user"}]}`)
	s.restart(t)
	s.chat(t, ask("a"))
	s.chat(t, ask("b"))
	calls := s.recorded(t)
	var occurrences []int
	for _, c := range calls {
		occurrences = append(occurrences, c.Occurrence)
	}
	require.Equal(t, []int{0, 1, 2, 0}, occurrences)
	require.Equal(t, calls[0].Key, calls[2].Key)
	require.NotEqual(t, calls[0].Key, calls[3].Key)
}

func TestAgentsAreNamedByTheirPath(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.post(t, s.base()+"/n/writer/v1/chat/completions", ask("a"))
	s.post(t, s.base()+"/v1/chat/completions", ask("a"))
	calls := s.recorded(t)
	require.Equal(t, "writer", calls[0].Agent)
	require.Empty(t, calls[1].Agent)
	require.NotEqual(t, calls[0].Key, calls[1].Key, "two agents that ask the same have their own samples")
}

func TestTheRequestIsRecordedAsItCame(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, `{"model":"m","messages":[{"role":"user","content":"é"}],"extra":[1]}`)
	require.JSONEq(t, `{"model":"m","messages":[{"role":"user","content":"é"}],"extra":[1]}`, string(s.recorded(t)[0].Request))
	require.Empty(t, cmp.Diff(start, s.recorded(t)[0].Started))
}

func TestInventedIDsOfToolCallsDoNotMatterButTheirOrderDoes(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	dialog := func(one, two, firstResult, secondResult string) string {
		return fmt.Sprintf(`{"messages":[{"role":"assistant","tool_calls":[{"id":%q,"function":{"name":"f","arguments":"{\"a\":1,\"b\":2}"}},{"id":%q,"function":{"name":"f","arguments":"2"}}]},
			{"role":"tool","tool_call_id":%q,"content":"x"},{"role":"tool","tool_call_id":%q,"content":"x"}]}`, one, two, firstResult, secondResult)
	}
	s.chat(t, dialog("u", "v", "u", "v"))
	s.chat(t, strings.ReplaceAll(dialog("8f", "9a", "8f", "9a"), `{\"a\":1,\"b\":2}`, `{ \"b\": 2, \"a\": 1 }`))
	s.chat(t, dialog("u", "v", "v", "u"))
	calls := s.recorded(t)
	require.Equal(t, calls[0].Key, calls[1].Key)
	require.NotEqual(t, calls[0].Key, calls[2].Key)
}

func TestAReplyWhoseCallsWereChangedIsNotOurs(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "1", tokenizer.ToolCall, "2", tokenizer.End)}
	const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}},"required":["x"]}}}]`
	s.chat(t, `{`+tools+`,"messages":[{"role":"user","content":"a"}]}`)
	id := "call_" + strings.TrimPrefix(s.recorded(t)[0].ID, "chatcmpl-")
	for _, calls := range []string{
		`{"id":"` + id + `_0","function":{"name":"f","arguments":"{\"x\":\"1\"}"}}`,
		`{"id":"` + id + `_0","function":{"name":"f","arguments":"{\"x\":\"1\"}"}},{"id":"else","function":{"name":"f","arguments":"{\"x\":\"9\"}"}}`,
	} {
		a := s.chat(t, `{`+tools+`,"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[`+calls+`]}]}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	recorded := s.recorded(t)
	require.Equal(t, "<user>a<end><assistant><call>1<end><assistant>", text(recorded[1].Prompt))
	require.Equal(t, -1, recorded[1].Parent)
	require.Equal(t, "<user>a<end><assistant><call>1<call>9<end><assistant>", text(recorded[2].Prompt))
	require.Equal(t, -1, recorded[2].Parent)
}

func TestOtherToolsMeanAnotherBranch(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("1", tokenizer.End)}
	s.chat(t, ask("a"))
	turns := `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"1"},{"role":"user","content":"b"}]}`
	s.chat(t, `{"tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}],`+turns)
	s.chat(t, `{"tools":[{"function":{"name":"g"}},{"function":{"name":"f"}}],`+turns)
	s.chat(t, `{"tools":[],`+turns)
	calls := s.recorded(t)
	require.Equal(t, -1, calls[1].Parent)
	require.Contains(t, text(calls[1].Prompt), "<tools>f<arg>g<end>")
	require.NotEqual(t, calls[1].Key, calls[2].Key)
	require.Equal(t, 0, calls[3].Parent)
}
