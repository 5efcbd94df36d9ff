package conversation_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// journal has one attempt, and keeps its calls.
type journal struct {
	attempt record.Attempt
	calls   []record.Exchange
}

func (j *journal) Attempt(context.Context, record.Address) (record.Attempt, error) {
	return j.attempt, nil
}

func (j *journal) AttemptEnd(context.Context, record.Address) (time.Time, error) {
	return j.attempt.Ended, nil
}

func (j *journal) AppendCall(_ context.Context, c *record.Exchange) error {
	j.calls = append(j.calls, *c)
	return nil
}

func (j *journal) Exchanges(context.Context, record.Address) ([]record.Exchange, error) {
	return append([]record.Exchange{}, j.calls...), nil
}

func (j *journal) EarlierExchanges(context.Context, record.Address) ([]record.Exchange, error) {
	return nil, nil
}

// sampler says what a test wants to be said.
type sampler struct{ text string }

func (s *sampler) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	tokens := append(tokenizer.Bytes{}.Encode(s.text), tokenizer.End)
	return model.Completion{Tokens: tokens, Logprobs: make([]float32, len(tokens)), Finish: "stop"}, "", nil
}

// testEnv is a conversation in memory.
type testEnv struct {
	*conversation.Conversation
	*journal
	sampler sampler
}

const key = "sk-1"

func newTestEnv(t *testing.T, history string, ignore ...string) *testEnv {
	t.Helper()
	sum := sha256.Sum256([]byte(key))
	j := &journal{attempt: record.Attempt{
		Address: record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train}, Attempt: 1}, KeyHash: hex.EncodeToString(sum[:]),
		Terms: record.Terms{Policy: "main", Codec: "compact", MaxTokens: 32, History: history, Ignore: ignore},
	}}
	e := &testEnv{journal: j}
	e.restore(t)
	return e
}

// restore reads the conversation from the journal.
func (e *testEnv) restore(t *testing.T) {
	t.Helper()
	m := conversation.New(conversation.Config{Journal: e.journal, Sampler: &e.sampler, Codecs: dialog.Named, Now: time.Now, Log: zap.NewNop()})
	e.Conversation = m.Open(e.attempt.Address)
	require.NoError(t, e.Enter(t.Context(), key))
}

// request decodes a request of chat completions.
func (e *testEnv) request(t *testing.T, body string) *conversation.Request {
	t.Helper()
	decoded, err := wire.Decode(wire.Chat, []byte(body))
	require.NoError(t, err)
	r, err := conversation.NewRequest("compact", e.Codec(), decoded)
	require.NoError(t, err)
	return r
}

// history returns the tokens after which a reply would be sampled, and the Seq of the call
// that they begin with.
func (e *testEnv) history(t *testing.T, body string) (prompt []int32, parent int) {
	t.Helper()
	_, prompt, parent, err := e.LayOut(e.request(t, body))
	require.NoError(t, err)
	return prompt, parent
}

func (e *testEnv) keyOf(t *testing.T, body string) string {
	t.Helper()
	key, _, _, err := e.LayOut(e.request(t, body))
	require.NoError(t, err)
	return key
}

// reply samples and records a reply to the request.
func (e *testEnv) reply(t *testing.T, body, text string) *conversation.Call {
	t.Helper()
	e.sampler.text = text
	calls := e.Calls(e.request(t, body))
	slots, err := calls.Admit(t.Context())
	require.NoError(t, err)
	require.Len(t, slots, 1)
	c, err := slots[0].Wait(t.Context())
	require.NoError(t, err)
	calls.Release(slots, conversation.Whole)
	return c
}

// chat returns a request whose messages alternate between user and assistant.
func chat(texts ...string) string {
	var all []string
	for i, text := range texts {
		all = append(all, fmt.Sprintf(`{"role":%q,"content":%q}`, []string{"user", "assistant"}[i%2], text))
	}
	return `{"messages":[` + strings.Join(all, ",") + `]}`
}

func TestRequestsAreTheSameIfAllThatDecidesTheirReplyIs(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t, "")
	const one = `{"messages":[{"role":"user","content":"a"}]}`
	for _, same := range []string{
		`{"model":"x","temperature":0.2,"stream":true,"n":3,"unknown":1,"messages":[{"role":"user","content":"a","name":"ada"}]}`,
		`{"max_tokens":32,"messages":[{"role":"user","content":"a"}]}`,
		`{"max_tokens":99,"messages":[{"role":"user","content":"a"}]}`,
	} {
		require.Equal(t, e.keyOf(t, one), e.keyOf(t, same), same)
	}
	for _, other := range []string{
		`{"messages":[{"role":"user","content":"a "}]}`,
		`{"messages":[{"role":"system","content":"a"}]}`,
		`{"max_tokens":31,"messages":[{"role":"user","content":"a"}]}`,
		`{"stop":"b","messages":[{"role":"user","content":"a"}]}`,
		`{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"a"}]}`,
	} {
		require.NotEqual(t, e.keyOf(t, one), e.keyOf(t, other), other)
	}
}

func TestIgnoredTextTellsNoRequestsApartButIsRead(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t, "", `\d\d:\d\d`)
	early, late := chat("it is 08:15"), chat("it is 21:40")
	require.Equal(t, e.keyOf(t, early), e.keyOf(t, late))
	require.NotEqual(t, e.keyOf(t, early), e.keyOf(t, chat("it was 08:15")))
	before, _ := e.history(t, early)
	now, _ := e.history(t, late)
	require.NotEqual(t, before, now)
}

func TestADialogContinuesTheRecordedCallThatSaidMostOfIt(t *testing.T) {
	t.Parallel()
	for _, history := range []string{"", record.HistoryTemplate} {
		t.Run("history "+history, func(t *testing.T) {
			t.Parallel()
			e := newTestEnv(t, history)
			first := e.reply(t, chat("a"), "1")
			second := e.reply(t, chat("a", "1", "b"), "2")
			for range 2 {
				for _, want := range []struct {
					parent int
					texts  []string
				}{
					{1, []string{"a", "1", "b", "2", "c"}},
					{1, []string{"a", " 1\n", "b", "2 ", "c"}}, // clients trim
					{0, []string{"a", "1", "x", "2", "c"}},
					{-1, []string{"a", "9", "b", "2", "c"}},
					{-1, []string{"x"}},
				} {
					prompt, seq := e.history(t, chat(want.texts...))
					require.Equal(t, want.parent, seq, want.texts)
					if want.parent >= 0 {
						parent := []*conversation.Call{first, second}[want.parent]
						require.Equal(t, append(append([]int32{}, parent.Prompt...), parent.Completion...), prompt[:len(parent.Prompt)+len(parent.Completion)])
					}
				}
				e.restore(t) // and once more as read from the journal
			}
		})
	}
}

func TestCallsThatContinueEachOtherShareTheirTokens(t *testing.T) {
	t.Parallel()
	const turns = 40
	e := newTestEnv(t, "")
	var texts []string
	var calls []*conversation.Call
	for turn := range turns {
		texts = append(texts, fmt.Sprint(turn, strings.Repeat(" word", 400)))
		calls = append(calls, e.reply(t, chat(texts...), "ok"))
		texts = append(texts, "ok")
	}
	tokens := len(calls[turns-1].Prompt)
	require.Less(t, e.Weight(), int64(4*4*tokens+turns*4<<10), "no turn's tokens are kept %d times", turns)
	for i, c := range calls {
		require.Equal(t, e.calls[i].Prompt, c.Prompt, "nobody wrote over the tokens of call %d", i)
		require.Equal(t, e.calls[i].Completion, c.Completion)
	}
	// A second child has an array of its own, and leaves the first one's alone.
	fork := e.reply(t, chat(texts[0], "ok", "another question"), "no")
	require.Equal(t, 0, fork.Parent)
	require.Equal(t, e.calls[1].Prompt, calls[1].Prompt)
	live := e.Weight()
	e.restore(t)
	require.InDelta(t, live, e.Weight(), float64(live)/20, "what is restored weighs the same")
}
