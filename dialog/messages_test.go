package dialog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
)

func ids(stem string) func(int) string {
	return func(k int) string { return "call_" + stem + "_" + string(rune('0'+k)) }
}

var weather = dialog.Tool{Name: "weather", Description: "Tells the weather.", Parameters: []byte(`{"type":"object"}`)}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	said := []dialog.Message{
		{Role: dialog.System, Content: "Be brief."},
		{Role: dialog.User, Content: "Wetter in Köln? <assistant>", Name: "ann"},
		{Role: dialog.Assistant, Reasoning: "hm", Content: "let me see", ToolCalls: []dialog.ToolCall{
			{ID: "call_1", Type: "function", Function: dialog.Function{Name: "weather", Arguments: `{"city": "Köln"}`}},
		}},
		{Role: dialog.ToolReply, Content: "rain", ToolCallID: "call_1"},
	}
	prompt, err := dialog.Messages().Prompt(said, []dialog.Tool{weather})
	require.NoError(t, err)
	got, err := dialog.ReadPrompt(prompt)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(dialog.Asked{Dialog: dialog.Dialog{Messages: said, Tools: []dialog.Tool{weather}}}, got))
	require.Contains(t, dialog.Messages().Text(prompt), "<user>Wetter in Köln? <assistant><end>")

	_, err = dialog.Messages().Prompt([]dialog.Message{{Role: "narrator"}}, nil)
	require.ErrorIs(t, err, dialog.ErrDialog)
	_, err = dialog.Messages().Prompt(nil, nil)
	require.ErrorIs(t, err, dialog.ErrDialog)
	_, _, err = dialog.Messages().Demonstration(dialog.Dialog{Messages: said})
	require.ErrorIs(t, err, dialog.ErrDialog)
}

// A dialog that continues a recorded reply has that reply's own tokens in its prompt.
// Tool calls have no ids there.
func TestARecordedReplyIsReadOutOfThePromptThatContinuesIt(t *testing.T) {
	t.Parallel()
	codec := dialog.Messages()
	prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: "Köln and Ulm?"}}, []dialog.Tool{weather})
	require.NoError(t, err)
	var s dialog.Speaker
	s.Think("two of them")
	s.SayToken([]byte("Mo\xc3"), -0.5)
	s.SayToken([]byte("\xa4"), -0.25)
	s.Call(dialog.Function{Name: "weather", Arguments: `{"city":"Köln"}`})
	s.Call(dialog.Function{Name: "weather", Arguments: `{"city":"Ulm"}`})
	c := s.End(dialog.Facts{ID: "x", Model: "m", Finish: "tool_calls", Usage: &dialog.Usage{Prompt: 9, Completion: 4}})
	require.Equal(t, "stop", c.Finish)
	require.Len(t, c.Logprobs, len(c.Tokens))
	require.NotContains(t, c.Forced, false, "nothing of it can be trained")

	reply, problem := codec.Parse(c.Tokens, []dialog.Tool{weather}, ids("a"))
	require.Empty(t, problem)
	require.Equal(t, "Moä", reply.Content)
	require.Equal(t, "two of them", reply.Reasoning)
	require.Equal(t, "call_a_1", reply.ToolCalls[1].ID)
	used, ok := codec.Counted(c.Tokens)
	require.True(t, ok)
	require.Equal(t, dialog.Usage{Prompt: 9, Completion: 4}, used)
	require.Equal(t, []dialog.Piece{{Text: "Mo\xc3", Logprob: -0.5}, {Text: "\xa4", Logprob: -0.25}}, codec.Pieces(c.Tokens, c.Logprobs))

	// The results come in another order, and tools are no longer offered.
	bridge, err := codec.Bridge([]dialog.Message{
		{Role: dialog.ToolReply, Content: "sun", ToolCallID: "call_a_1"}, {Role: dialog.ToolReply, Content: "rain", ToolCallID: "call_a_0"},
	}, nil)
	require.NoError(t, err)
	asked, err := dialog.ReadPrompt(append(append(prompt, c.Tokens...), bridge...))
	require.NoError(t, err)
	require.Empty(t, asked.Tools)
	require.Len(t, asked.Messages, 4)
	reply.Role = dialog.Assistant
	require.Empty(t, cmp.Diff(reply, asked.Messages[1]))
}

func TestCallsWithoutResultsOfTheirNamesAreNamedByTheirPlace(t *testing.T) {
	t.Parallel()
	codec := dialog.Messages()
	for name, c := range map[string]struct {
		results []string
		want    []string
	}{
		"of another gateway": {[]string{"x", "y"}, []string{"x", "y"}},
		"one is missing":     {[]string{"call_a_1"}, []string{"call_1_0", "call_a_1"}},
		"all are missing":    {nil, []string{"call_1_0", "call_1_1"}},
	} {
		prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: "?"}}, nil)
		require.NoError(t, err)
		var s dialog.Speaker
		s.Call(dialog.Function{Name: "a", Arguments: "{}"})
		s.Call(dialog.Function{Name: "b", Arguments: "{}"})
		prompt = append(prompt, s.End(dialog.Facts{Finish: "tool_calls"}).Tokens...)
		var later []dialog.Message
		for _, id := range c.results {
			later = append(later, dialog.Message{Role: dialog.ToolReply, ToolCallID: id})
		}
		bridge, err := codec.Bridge(later, nil)
		require.NoError(t, err)
		asked, err := dialog.ReadPrompt(append(prompt, bridge...))
		require.NoError(t, err)
		var got []string
		for _, call := range asked.Messages[1].ToolCalls {
			got = append(got, call.ID)
		}
		require.Equal(t, c.want, got, name)
	}
}

func TestACallThatNoClientCouldReadIsText(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]dialog.Function{
		"no such tool": {Name: "wether", Arguments: `{}`},
		"no JSON":      {Name: "weather", Arguments: `{"city":`},
		"no object":    {Name: "weather", Arguments: `[1]`},
		"null":         {Name: "weather", Arguments: `null`},
	} {
		var s dialog.Speaker
		s.Say([]byte("so "))
		s.Call(f)
		m, problem := dialog.Messages().Parse(s.End(dialog.Facts{}).Tokens, []dialog.Tool{weather}, ids("a"))
		require.NotEmpty(t, problem, name)
		require.Empty(t, m.ToolCalls, name)
		require.Equal(t, "so "+f.Name+"("+f.Arguments+")", m.Content, name)
	}
	var s dialog.Speaker
	s.Call(dialog.Function{Name: "weather"})
	m, problem := dialog.Messages().Parse(s.End(dialog.Facts{}).Tokens, []dialog.Tool{weather}, ids("a"))
	require.Empty(t, problem)
	require.Equal(t, "{}", m.ToolCalls[0].Function.Arguments)
}

func TestWhatIsCertainOfARelayedReplyOnlyGrows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s dialog.Speaker
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			text := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "text")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				s.Think(string(text))
			case 1:
				s.Say(text)
			default:
				s.SayToken(text, -1)
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "calls") {
			s.Call(dialog.Function{Name: rapid.SampledFrom([]string{"weather", "no"}).Draw(t, "name"), Arguments: "{}"})
		}
		c := s.End(dialog.Facts{Finish: rapid.SampledFrom([]string{"stop", "length"}).Draw(t, "finish")})
		codec, tools, before := dialog.Messages(), []dialog.Tool{weather}, ""
		for n := range c.Tokens {
			now := codec.Partial(c.Tokens[:n], tools)
			require.Equal(t, before, now[:min(len(before), len(now))])
			before = now
		}
		whole, _ := codec.Parse(c.Tokens, tools, ids("a"))
		require.Equal(t, before, whole.Content[:min(len(before), len(whole.Content))])
		require.Equal(t, whole.Content, codec.Partial(c.Tokens, tools))
		require.Len(t, c.Forced, len(c.Tokens))
	})
}

func TestABareTextIsAPromptOfItsOwn(t *testing.T) {
	t.Parallel()
	asked, err := dialog.ReadPrompt(dialog.Messages().Encode("Once upön"))
	require.NoError(t, err)
	require.Equal(t, dialog.Asked{Text: "Once upön"}, asked)
}

// FuzzReadPrompt reads arbitrary tokens. ReadPrompt has to return an error, or a dialog
// of which Prompt can make a prompt.
func FuzzReadPrompt(f *testing.F) {
	prompt, err := dialog.Messages().Prompt([]dialog.Message{{Role: dialog.User, Content: "hi"}}, []dialog.Tool{weather})
	require.NoError(f, err)
	seed := make([]byte, 0, 2*len(prompt))
	for _, id := range prompt {
		seed = append(seed, byte(id>>8), byte(id))
	}
	f.Add(seed)
	f.Add([]byte{2, 6, 2, 5, 2, 2})
	f.Add([]byte{2, 5, 2, 2}) // an end without a turn
	f.Fuzz(func(t *testing.T, data []byte) {
		var ids []int32
		for i := 0; i+1 < len(data); i += 2 {
			ids = append(ids, int32(data[i])<<8|int32(data[i+1]))
		}
		codec := dialog.Messages()
		_ = codec.Text(ids)
		_, _ = codec.Parse(ids, []dialog.Tool{weather}, func(int) string { return "x" })
		_ = codec.Partial(ids, nil)
		_ = codec.Pieces(ids, make([]float32, len(ids)))
		asked, err := dialog.ReadPrompt(ids)
		if err != nil || len(asked.Messages) == 0 {
			return
		}
		again, err := codec.Prompt(asked.Messages, asked.Tools)
		require.NoError(t, err)
		read, err := dialog.ReadPrompt(again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(asked.Messages, read.Messages))
	})
}

func TestAnyFormIsLeftToTheServer(t *testing.T) {
	t.Parallel()
	c, err := dialog.Constrain(model.Form{Codec: dialog.MessagesName, Schema: []byte(`{"not":{}}`)})
	require.NoError(t, err)
	require.False(t, c.Allowed(nil))
	require.False(t, c.Accept(1))
}
