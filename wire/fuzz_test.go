package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

func FuzzChat(f *testing.F) { fuzz(f, wire.Chat) }

func FuzzCompletions(f *testing.F) { fuzz(f, wire.Completions) }

func FuzzResponses(f *testing.F) { fuzz(f, wire.Responses) }

func FuzzMessages(f *testing.F) { fuzz(f, wire.Messages) }

// fuzz reads whatever comes as a request of an API. It ends in a failure that
// blames the client, or in a request whose reply can be written, whole and in
// pieces.
func fuzz(f *testing.F, api wire.API) {
	for _, name := range clients(f) {
		if of, body := recorded(f, name); of == api {
			f.Add(body)
		}
	}
	for _, odd := range []string{
		`{}`, `null`, "\xff", `{"messages":[{"role":"user"}],"max_tokens":1e300}`, `{"input":[{"role":"user","content":"\ud800"}]}`,
		`{"prompt":[[1]],"n":128}`, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":{"a":[1e400]}}}]}]}`,
		`{"input":"a","tools":{},"metadata":{"\u0000":1}}`, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}]}`,
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := wire.Decode(api, body)
		if err != nil {
			var failure *wire.Failure
			require.ErrorAs(t, err, &failure)
			require.GreaterOrEqual(t, failure.Status, 400)
			require.Less(t, failure.Status, 500)
			require.NotEmpty(t, failure.Code)
			require.NotEmpty(t, parse(t, string(failure.Body(api))))
			return
		}
		require.True(t, r.N >= 1 && r.N <= 128)
		require.True(t, len(r.Dialog)+len(r.References) > 0 != (r.Text != "" || len(r.Tokens) > 0))
		require.GreaterOrEqual(t, r.MaxTokens, 0)
		requireAnswerable(t, r)
		if api == wire.Responses {
			_ = r.ResolveItems(func(string) (dialog.Message, bool) { return plain("m", "a").Choices[0].Message, true })
			require.Equal(t, "list", parse(t, string(r.InputItems("1f")))["object"])
		}
	})
}

func requireAnswerable(t *testing.T, r *wire.Request) {
	t.Helper()
	reply := plain(r.Model, "hello")
	if r.API != wire.Completions {
		reply.Choices[0].Message.ToolCalls = []dialog.ToolCall{call("call_1f_0", "f", `{"a":1}`)}
	}
	for len(reply.Choices) < r.N {
		reply.Choices = append(reply.Choices, reply.Choices[0])
	}
	want := whole(t, r, reply)
	s := r.Open(reply)
	stream := string(s.Begin()) + string(s.Content(r.N-1, "he", nil))
	end, err := s.End(reply)
	require.NoError(t, err)
	got := bodyOf(t, r.API, stream+string(end))
	require.Equal(t, want["id"], got["id"])
	for _, part := range []string{"choices", "output", "content"} {
		alike(want)
		alike(got)
		require.Equal(t, want[part], got[part])
	}
}
