package wire_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// recorded returns a request as a client writes it, and its API.
func recorded(t testing.TB, name string) (wire.API, []byte) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "requests", name+".json"))
	require.NoError(t, err)
	api, _, _ := strings.Cut(name, "-")
	return wire.API(api), body
}

// clients lists the recorded requests.
func clients(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/requests/*.json")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	require.NotEmpty(t, names)
	return names
}

func decode(t testing.TB, api wire.API, body string) *wire.Request {
	t.Helper()
	r, err := wire.Decode(api, []byte(body))
	require.NoError(t, err, body)
	return r
}

// refused returns the failure of a body that is no request.
func refused(t testing.TB, api wire.API, body string) *wire.Failure {
	t.Helper()
	_, err := wire.Decode(api, []byte(body))
	require.Error(t, err, body)
	var f *wire.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, 400, f.Status)
	require.NotEmpty(t, f.Message)
	return f
}

func call(id, name, arguments string) dialog.ToolCall {
	return dialog.ToolCall{ID: id, Type: "function", Function: dialog.Function{Name: name, Arguments: arguments}}
}

// loop returns the dialog that most recorded requests are a form of.
func loop() []dialog.Message {
	return []dialog.Message{
		{Role: dialog.System, Content: "Be brief."},
		{Role: dialog.User, Content: "12+7*3"},
		{Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{call("call_1", "calculator", `{"expression":"7*3"}`)}},
		{Role: dialog.ToolReply, Content: "21", ToolCallID: "call_1"},
	}
}

func TestRequestsOfEveryClientAreTheSameDialog(t *testing.T) {
	t.Parallel()
	others := map[string]func(said []dialog.Message) []dialog.Message{
		"chat-agents":            thinking,
		"chat-ai-sdk-compatible": thinking,
		"responses-agents":       thinking,
		"chat-langgraph": func(said []dialog.Message) []dialog.Message {
			said[2].Name, said[3].Name = "calc_agent", "calculator"
			return said
		},
		"chat-crewai": func(said []dialog.Message) []dialog.Message {
			said[3].Name = "calculator"
			return said
		},
		"chat-functions": func(said []dialog.Message) []dialog.Message {
			said[2].ToolCalls[0].ID, said[3].ToolCallID, said[3].Name = "function_2", "function_2", "calculator"
			return said
		},
		"completions-go-openai": func([]dialog.Message) []dialog.Message { return nil },
		"completions-tokens":    func([]dialog.Message) []dialog.Message { return nil },
		"responses-mastra":      func(said []dialog.Message) []dialog.Message { return said[:2] },
		"responses-text":        func(said []dialog.Message) []dialog.Message { return said[1:2] },
		"messages-claude":       claude,
	}
	for _, name := range clients(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, body := recorded(t, name)
			want := loop()
			if other, ok := others[name]; ok {
				want = other(want)
			}
			r := decode(t, api, string(body))
			require.Empty(t, cmp.Diff(want, r.Dialog))
			require.Equal(t, api, r.API)
			require.Equal(t, string(body), string(r.Body))
			require.NotEmpty(t, r.Model)
			for _, tool := range r.Tools {
				require.Equal(t, "calculator", tool.Name)
				require.Contains(t, string(tool.Parameters), `"required":["expression"]`)
			}
		})
	}
}

func thinking(said []dialog.Message) []dialog.Message {
	said[2].Reasoning = "Seven times three first."
	return said
}

// claude has instructions in the middle, several blocks in a message and results
// next to text.
func claude(said []dialog.Message) []dialog.Message {
	said[0].Content = "x-anthropic-billing-header: cc_version=2.1.329.a1; cc_entrypoint=sdk-ts;\n\nBe brief."
	assistant := thinking(said)[2]
	assistant.Content = "Let me see. "
	assistant.ToolCalls = append(assistant.ToolCalls, call("call_2", "calculator", `{"expression":"12"}`))
	return []dialog.Message{
		said[0], said[1], {Role: dialog.System, Content: "The shell is bash."}, assistant, said[3],
		{Role: dialog.ToolReply, Content: "error", ToolCallID: "call_2"},
		{Role: dialog.User, Content: "Go on."},
	}
}

func TestSettingsAreReadFromEveryAPI(t *testing.T) {
	t.Parallel()
	free := wire.Format{}
	for name, want := range map[string]wire.Request{
		"chat-openai-python":      {MaxTokens: 64, Seed: new(int64(7)), Serial: true},
		"chat-agents":             {Stream: true, Usage: true},
		"chat-llamaindex":         {Stream: true, Temperature: new(0.1), TopP: new(1.0)},
		"chat-ai-sdk":             {Format: wire.Format{Schema: []byte(`{"type":"object","properties":{"answer":{"type":"number"}}}`), Strict: true, Name: "response"}},
		"chat-ai-sdk-compatible":  {Format: wire.Format{Schema: []byte(`{}`)}},
		"chat-crewai":             {Stop: []string{"\nObservation:"}, Format: wire.Format{Schema: []byte(`{"type":"object"}`), Name: "Answer"}},
		"chat-go-openai":          {MaxTokens: 256, Stop: []string{"END"}, Logprobs: true, TopLogprobs: 2, Format: free},
		"chat-functions":          {Serial: true},
		"completions-go-openai":   {Text: "12+7*3=", MaxTokens: 16, Temperature: new(0.0), Stop: []string{"\n"}, Logprobs: true, TopLogprobs: 1},
		"completions-tokens":      {Tokens: []int32{5, 6, 7}, MaxTokens: 16, N: 2, Stream: true, Usage: true},
		"responses-agents":        {Stream: true},
		"responses-ai-sdk":        {Logprobs: true, TopLogprobs: 1, Format: wire.Format{Schema: []byte(`{"type":"object"}`), Name: "response", Strict: true}},
		"responses-text":          {MaxTokens: 99, Previous: "resp_1", Forget: true},
		"messages-anthropic-node": {MaxTokens: 1024},
		"messages-claude":         {MaxTokens: 32000, Stream: true},
		"messages-langchain": {
			MaxTokens: 2048, Temperature: new(0.5), TopP: new(0.9), Stop: []string{"END"}, Serial: true,
			Choice: wire.ToolChoice{Required: true},
		},
	} {
		api, body := recorded(t, name)
		r := decode(t, api, string(body))
		want.N = max(want.N, 1)
		said := cmpopts.IgnoreFields(wire.Request{}, "API", "Model", "Dialog", "Tools", "Body")
		require.Empty(t, cmp.Diff(want, *r, said, cmpopts.IgnoreUnexported(wire.Request{})), name)
	}
}

func TestNoBodyIsReadWithoutCare(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, api := range []wire.API{wire.Chat, wire.Completions, wire.Responses, wire.Messages} {
		for body, want := range map[string]struct{ code, param string }{
			``:                               {"invalid_json", ""},
			`{`:                              {"invalid_json", ""},
			`{"model":NaN}`:                  {"invalid_json", ""},
			`{"model":"m"} {}`:               {"invalid_json", ""},
			`{"x":` + deep + `}`:             {"invalid_json", ""},
			"{\"model\":\"\xff\"}":           {"invalid_json", ""},
			`[]`:                             {"invalid_body", ""},
			`7`:                              {"invalid_body", ""},
			`{"temperature":"hot"}`:          {"invalid_value", "temperature"},
			`{"temperature":1e999}`:          {"invalid_value", "temperature"},
			`{"stream":1}`:                   {"invalid_value", "stream"},
			`{"model":"m","model":"n"}`:      {"invalid_value", "model"},
			`{"x":[0,{"y":{"z":1,"z":1}}]}`:  {"invalid_value", "x[1].y.z"},
			`{"x":{"\u0079":1,"y":1}}`:       {"invalid_value", "x.y"},
			`{"messages":[],"messages":[]}`:  {"invalid_value", "messages"},
			`{"tools":{},"max_tokens":"no"}`: {"invalid_value", map[wire.API]string{wire.Completions: "max_tokens"}[api]},
		} {
			f := refused(t, api, body)
			require.Equal(t, want.code, f.Code, "%s %.80s", api, body)
			if want.param == "" && want.code == "invalid_value" {
				want.param = "tools"
			}
			require.Equal(t, want.param, f.Param, "%s %.80s", api, body)
		}
	}
	_, err := wire.Decode("telepathy", []byte(`{}`))
	var f *wire.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, 404, f.Status)
}

func TestHalfACharacterIsReadAsTheReplacement(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{"messages":[{"role":"user","content":"\ud83d"}]}`)
	require.Equal(t, "\uFFFD", r.Dialog[0].Content)
}

func TestTheBodyIsTheRequestsOwn(t *testing.T) {
	t.Parallel()
	body := []byte(`{"messages":[{"role":"user","content":"a"}]}`)
	r, err := wire.Decode(wire.Chat, body)
	require.NoError(t, err)
	body[0] = '['
	require.Equal(t, byte('{'), r.Body[0])
}

func TestSamplingIsCheckedOnlyWhereItHolds(t *testing.T) {
	t.Parallel()
	const hi = `"messages":[{"role":"user","content":"hi"}]}`
	for body, param := range map[string]string{
		`{"temperature":3,` + hi:  "temperature",
		`{"temperature":-1,` + hi: "temperature",
		`{"top_p":0,` + hi:        "top_p",
		`{"top_p":1.1,` + hi:      "top_p",
		`{"seed":1.5,` + hi:       "seed",
		`{"seed":"odd",` + hi:     "seed",
	} {
		err := decode(t, wire.Chat, body).CheckSampling()
		var f *wire.Failure
		require.ErrorAs(t, err, &f, body)
		require.Equal(t, param, f.Param)
		require.Equal(t, 400, f.Status)
	}
	r := decode(t, wire.Chat, `{"temperature":0,"top_p":1,"seed":-3,`+hi)
	require.NoError(t, r.CheckSampling())
	require.Equal(t, int64(-3), *r.Seed)
	require.NoError(t, decode(t, wire.Chat, `{"seed":null,`+hi).CheckSampling())
}
