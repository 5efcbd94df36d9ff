package wire_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// However a reply is cut into pieces, between tokens or in the middle of a
// character, the stream says what the body says.
func TestAStreamSaysWhatTheBodySays(t *testing.T) {
	t.Parallel()
	for api, r := range minimal(t) {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				reply := anyReply(t, r)
				late := rapid.Bool().Draw(t, "late thoughts")
				want, got := whole(t, r, reply), bodyOf(t, api, streamed(t, r, reply, late))
				alike(want)
				alike(got)
				if late {
					sortThoughts(api, want)
					sortThoughts(api, got)
				}
				require.Empty(t, cmp.Diff(want, got))
			})
		})
	}
}

// streamed streams a reply in random pieces.
func streamed(t *rapid.T, r *wire.Request, reply wire.Reply, late bool) string {
	head := reply
	head.Choices = nil
	s := r.Open(head)
	var all strings.Builder
	add := func(piece []byte) {
		all.Write(piece)
		if rapid.Bool().Draw(t, "wait") {
			all.Write(s.Keepalive())
		}
	}
	if rapid.Bool().Draw(t, "begin") {
		add(s.Begin())
	}
	type cursor struct{ text, logprobs int }
	cursors := make([]cursor, len(reply.Choices))
	for i, c := range reply.Choices {
		if !late && c.Message.Reasoning != "" {
			half := []rune(c.Message.Reasoning)
			add(s.Reasoning(i, string(half[:len(half)/2])))
			add(s.Reasoning(i, string(half[len(half)/2:])))
		}
	}
	for range rapid.IntRange(0, 8).Draw(t, "pieces") {
		i := rapid.IntRange(0, len(reply.Choices)-1).Draw(t, "choice")
		c, at := reply.Choices[i], &cursors[i]
		to := rapid.IntRange(at.text, len(c.Message.Content)).Draw(t, "text")
		shown := rapid.IntRange(at.logprobs, len(c.Logprobs)).Draw(t, "shown")
		add(s.Content(i, c.Message.Content[at.text:to], c.Logprobs[at.logprobs:shown]))
		*at = cursor{to, shown}
	}
	end, err := s.End(reply)
	require.NoError(t, err)
	return all.String() + string(end)
}

// alike removes from a body the differences that a stream can't show: between no text and
// null, and between no log-probabilities and null.
func alike(body object) {
	choices, _ := body["choices"].([]any)
	for _, c := range choices {
		choice := c.(object)
		if message, ok := choice["message"].(object); ok && message["content"] == nil {
			message["content"] = ""
		}
		logprobs, _ := choice["logprobs"].(object)
		for _, list := range []string{"content", "tokens"} {
			if tokens, ok := logprobs[list].([]any); ok && len(tokens) == 0 {
				choice["logprobs"] = nil
			}
		}
	}
}

// sortThoughts puts thoughts that came late first.
func sortThoughts(api wire.API, body object) {
	name, kind := "content", "thinking"
	if api == wire.Responses {
		name, kind = "output", "reasoning"
	}
	list, _ := body[name].([]any)
	for i, v := range list {
		if i > 0 && v.(object)["type"] == kind {
			body[name] = append([]any{v}, append(list[:i:i], list[i+1:]...)...)
		}
	}
}

func TestEqualPiecesAreEqualBytes(t *testing.T) {
	t.Parallel()
	for api, r := range minimal(t) {
		stream := func() string {
			reply := plain("m", "hello there")
			reply.Choices = append(reply.Choices, reply.Choices...)[:r.N]
			s := r.Open(reply)
			all := string(s.Begin()) + string(s.Content(0, "hello", nil)) + string(s.Content(0, " the", nil))
			end, err := s.End(reply)
			require.NoError(t, err, api)
			return all + string(end)
		}
		require.Equal(t, stream(), stream(), api)
	}
}

func TestACharacterIsSentWhole(t *testing.T) {
	t.Parallel()
	for api, r := range minimal(t) {
		s := r.Open(plain("m", ""))
		require.Empty(t, s.Content(0, "\xf0\x9f", nil), api)
		require.Empty(t, s.Content(0, "\x8c", nil), api)
		require.Contains(t, string(s.Content(0, "\xa9!", nil)), `"🌩!"`, api)
		// What never becomes a character does not hold up the rest.
		require.Contains(t, string(s.Content(0, "\x9fa", nil)), "\uFFFDa", api)
	}
}

func TestLogprobsWaitForText(t *testing.T) {
	t.Parallel()
	r := minimal(t)[wire.Chat]
	s := r.Open(plain("m", ""))
	s.Begin()
	require.Empty(t, s.Content(0, "", []wire.Token{{Text: "a"}}))
	said := string(s.Content(0, "ab", []wire.Token{{Text: "b"}}))
	require.Contains(t, said, `"token":"a"`)
	require.Contains(t, said, `"token":"b"`)
}

func TestAnEndThatContradictsWhatWasSaidIsRefused(t *testing.T) {
	t.Parallel()
	a := []wire.Token{{Text: "a", Logprob: -1}}
	reply := plain("m", "abc")
	reply.Choices[0].Message.Reasoning, reply.Choices[0].Logprobs = "hm", a
	changed := func(change func(*wire.Choice)) wire.Reply {
		other := reply
		other.Choices = []wire.Choice{reply.Choices[0]}
		change(&other.Choices[0])
		return other
	}
	for name, end := range map[string]wire.Reply{
		"other text":      changed(func(c *wire.Choice) { c.Message.Content = "abd" }),
		"less text":       changed(func(c *wire.Choice) { c.Message.Content = "a" }),
		"other thoughts":  changed(func(c *wire.Choice) { c.Message.Reasoning = "hum" }),
		"more thoughts":   changed(func(c *wire.Choice) { c.Message.Reasoning = "hm hm" }),
		"other logprobs":  changed(func(c *wire.Choice) { c.Logprobs = []wire.Token{{Text: "a", Logprob: -2}} }),
		"fewer logprobs":  changed(func(c *wire.Choice) { c.Logprobs = nil }),
		"no choice":       {},
		"arguments in no": changed(func(c *wire.Choice) { c.Message.ToolCalls = []dialog.ToolCall{call("1", "f", "[")} }),
	} {
		r := decode(t, wire.Chat, `{"logprobs":true,`+hi+`}`)
		s := r.Open(reply)
		s.Reasoning(0, "hm")
		s.Content(0, "abc", a)
		_, err := s.End(end)
		require.Error(t, err, name)
		_, err = s.End(reply)
		require.NoError(t, err, name)
		_, err = s.End(reply)
		require.Error(t, err, "a stream has one end")
	}
}

func TestMisuseOfAStreamIsToldAtItsEnd(t *testing.T) {
	t.Parallel()
	for name, misuse := range map[string]func(*wire.Stream) []byte{
		"a choice that is not there": func(s *wire.Stream) []byte { return s.Content(1, "a", nil) },
		"a choice below all":         func(s *wire.Stream) []byte { return s.Reasoning(-1, "a") },
		"thoughts after text":        func(s *wire.Stream) []byte { s.Content(0, "a", nil); return s.Reasoning(0, "hm") },
		"text after a failure": func(s *wire.Stream) []byte {
			s.Fail(wire.Invalid("", "no"))
			return s.Content(0, "a", nil)
		},
	} {
		r := decode(t, wire.Chat, `{`+hi+`}`)
		s := r.Open(plain("m", "a"))
		require.Empty(t, misuse(s), name)
		_, err := s.End(plain("m", "a"))
		require.Error(t, err, name)
	}
}

func TestWaitingClientsHearNothingThatTheyMayNotExpect(t *testing.T) {
	t.Parallel()
	for api, r := range minimal(t) {
		s := r.Open(plain("m", ""))
		require.Equal(t, ": keepalive\n\n", string(s.Keepalive()), "%s: nothing may come before its first event", api)
		s.Begin()
		want := ": keepalive\n\n"
		if api == wire.Messages {
			want = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
		}
		require.Equal(t, want, string(s.Keepalive()), api)
	}
}

func TestStreamsFailInTheWordsOfTheirAPI(t *testing.T) {
	t.Parallel()
	f := &wire.Failure{Status: 503, Code: "infrastructure", Message: "not now"}
	const open = `{"error":{"message":"not now","type":"server_error","code":"infrastructure","param":null}}`
	for api, want := range map[wire.API]event{
		wire.Chat:        {"", open},
		wire.Completions: {"", open},
		wire.Responses:   {"error", `{"type":"error","sequence_number":2,"message":"not now","code":"infrastructure","param":null}`},
		wire.Messages:    {"error", `{"type":"error","error":{"type":"overloaded_error","message":"not now"}}`},
	} {
		s := minimal(t)[api].Open(plain("m", ""))
		s.Begin()
		all := eventsOf(t, string(s.Fail(f)))
		require.Len(t, all, 1)
		require.Equal(t, want.name, all[0].name)
		require.JSONEq(t, want.data, all[0].data, api)
	}
}

func TestCountsComeOnlyIfAskedFor(t *testing.T) {
	t.Parallel()
	for _, api := range []wire.API{wire.Chat, wire.Completions} {
		r := decode(t, api, `{"prompt":"a",`+hi+`}`)
		reply := plain("m", "a")
		end, err := r.Open(reply).End(reply)
		require.NoError(t, err)
		require.NotContains(t, string(end), "total_tokens")
		require.Equal(t, api == wire.Completions, strings.Contains(string(end), `"usage"`))
		r.Usage = true
		end, err = r.Open(reply).End(reply)
		require.NoError(t, err)
		require.Contains(t, string(end), `"choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}`)
		require.Contains(t, string(end), `"usage":null`)
	}
}

func TestTextIsSentAsTheEventThatSaysIt(t *testing.T) {
	t.Parallel()
	for usage, options := range map[string]string{"": "", `,"usage":null`: `,"stream_options":{"include_usage":true}`} {
		r := decode(t, wire.Chat, `{"model":"m","stream":true`+options+`,`+hi+`}`)
		rapid.Check(t, func(t *rapid.T) {
			encode := func(text string) string {
				encoded, err := json.Marshal(text)
				require.NoError(t, err)
				return string(encoded)
			}
			model := rapid.SampledFrom([]string{"m", `"content":""`, "<&>\u2028", rapid.String().Draw(t, "any model")}).Draw(t, "model")
			s := r.Open(wire.Reply{ID: "1f", Created: time.Unix(1795176000, 0), Model: "x" + model})
			s.Begin()
			for range 3 {
				text := rapid.StringN(1, -1, 9).Draw(t, "text")
				require.Equal(t, `data: {"id":"chatcmpl-1f","object":"chat.completion.chunk","created":1795176000,"model":`+encode("x"+model)+
					`,"choices":[{"index":0,"delta":{"content":`+encode(text)+`},"logprobs":null,"finish_reason":null}]`+usage+"}\n\n",
					string(s.Content(0, text, nil)))
			}
		})
	}
}
