package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// newJudgedTraffic is newTraffic with feedback, for which everybody has all scopes.
func newJudgedTraffic(t *testing.T) traffic {
	t.Helper()
	s := newTraffic(t)
	s.config.Feedback = s.store.Store
	s.restart(t)
	return s
}

func (s traffic) choose(t *testing.T, n string, headers ...string) (id string, texts []string) {
	t.Helper()
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","n":`+n+`,"messages":[{"role":"user","content":"a"}]}`, headers...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	return idOf(t, a), choices(t, a.body)
}

// judge posts feedback.
func (s traffic) judge(t *testing.T, body string) answer {
	t.Helper()
	return s.post(t, s.url+"/v1/feedback", body)
}

// textOf returns what the recorded reply of an id says.
func (s traffic) textOf(t *testing.T, id string) string {
	t.Helper()
	of, err := s.store.ConversationWithReply(t.Context(), id)
	require.NoError(t, err)
	_, calls := s.calls(t, of.Number)
	for _, c := range calls {
		if c.ID == id {
			return content(t, string(c.Response))
		}
	}
	require.Fail(t, "no such call", id)
	return ""
}

func judgedReply(t *testing.T, a answer) string {
	t.Helper()
	require.Contains(t, []int{http.StatusOK, http.StatusCreated}, a.status, a.body)
	var out struct {
		Reply string `json:"reply"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &out))
	return out.Reply
}

func TestEachChoiceOfAReplyCanBeJudged(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	s.choose(t, "2") // an equal request before it
	id, texts := s.choose(t, "3")
	require.Len(t, texts, 3)
	for i, choice := range []string{id + "#0", id + "#1", id + "#2"} {
		require.Equal(t, texts[i], s.textOf(t, judgedReply(t, s.judge(t, `{"reply":"`+choice+`","thumb":"up"}`))))
	}
	require.Equal(t, id, judgedReply(t, s.judge(t, `{"reply":"`+id+`#0","thumb":"up"}`)))
	pair := s.judge(t, `{"id":"pair","reply":"`+id+`#2","preferred_over":"`+id+`","user":"ann"}`)
	second := judgedReply(t, pair)
	of, err := s.store.ConversationWithReply(t.Context(), id)
	require.NoError(t, err)
	all, err := s.store.Feedback(t.Context(), "demo", of.Number)
	require.NoError(t, err)
	var preferred []record.Feedback
	for _, f := range all {
		if f.PreferredOver != "" {
			preferred = append(preferred, f)
		}
	}
	require.Len(t, preferred, 1)
	require.Equal(t, second, preferred[0].CallID)
	require.Equal(t, id, preferred[0].PreferredOver)
	requireRefusal(t, s.judge(t, `{"reply":"`+id+`","preferred_over":"`+id+`#2","user":"ann"}`), http.StatusConflict, "contradictory_feedback", "preferred_over")
	requireRefusal(t, s.judge(t, `{"reply":"`+id+`","preferred_over":"`+id+`#0"}`), http.StatusBadRequest, "invalid_value", "preferred_over")
}

func TestASegmentLearnsWhichChoiceIsBetter(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	id, texts := s.choose(t, "2")
	judgedReply(t, s.judge(t, `{"reply":"`+id+`#1","preferred_over":"`+id+`"}`))
	of, err := s.store.ConversationWithReply(t.Context(), id)
	require.NoError(t, err)
	calls, err := s.store.Calls(t.Context(), of.Address())
	require.NoError(t, err)
	feedback, err := s.store.Feedback(t.Context(), "demo", of.Number)
	require.NoError(t, err)
	codec, err := dialog.Named("compact")
	require.NoError(t, err)
	all := []update.Conversation{{Conversation: of, Calls: calls, Feedback: feedback}}
	r := update.NewReplies(spec.ObjectivePreference, codec, 1024, all, 10)
	require.Equal(t, 1, r.Count())
	require.Empty(t, r.LeftOut)
	made, err := update.NewSegmentBatch(model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: codec.VocabSize()}, all, r)
	require.NoError(t, err)
	require.Len(t, made.Batch.Rows, 2)
	for i, want := range []string{texts[1], texts[0]} { // the better one is first
		require.Equal(t, i == 0, made.Batch.Rows[i].Chosen)
		require.Contains(t, text(made.Batch.Rows[i].Tokens), want+"<end>")
	}
}

func TestAChoiceThatThereIsNotIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	id, _ := s.choose(t, "2")
	second := judgedReply(t, s.judge(t, `{"reply":"`+id+`#1","thumb":"up"}`))
	for _, name := range []string{id + "#2", id + "#127", id + "#128", second + "#1", "chatcmpl-x#1"} {
		requireRefusal(t, s.judge(t, `{"reply":"`+name+`","thumb":"up"}`), http.StatusNotFound, "reply_not_found", "reply")
		requireRefusal(t, s.judge(t, `{"reply":"`+id+`","preferred_over":"`+name+`"}`), http.StatusNotFound, "reply_not_found", "preferred_over")
	}
	for _, name := range []string{id + "#", id + "#-1", id + "#01", id + "#one", id + "#1#1"} {
		requireRefusal(t, s.judge(t, `{"reply":"`+name+`","thumb":"up"}`), http.StatusBadRequest, "invalid_value", "reply")
	}
}

// poisonable is a journal that can't record a reply that begins with poison.
type poisonable struct{ database }

func (p poisonable) AppendCall(ctx context.Context, c *record.Exchange) error {
	if c.Completion[0] == poison {
		return errors.New("disk full")
	}
	return p.database.AppendCall(ctx, c) //nolint:wrapcheck // it stands for the store
}

func TestChoicesKeepTheirNumbersWhenARequestIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	s.config.Journal = poisonable{s.store}
	s.restart(t)
	s.replies = [][]int32{append([]int32{poison}, say(tokenizer.End)...), say("2", tokenizer.End), say("3", tokenizer.End)}
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","n":3,"messages":[{"role":"user","content":"a"}]}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	id, texts := s.choose(t, "3", "X-Stainless-Retry-Count", "1")
	require.Subset(t, texts, []string{"2", "3"}, "what was sampled before is not lost")
	for i, n := range []string{"#0", "#1", "#2"} {
		require.Equal(t, texts[i], s.textOf(t, judgedReply(t, s.judge(t, `{"reply":"`+id+n+`","reward":0.5}`))))
	}
	s.restart(t)
	again, same := s.choose(t, "3", "X-Stainless-Retry-Count", "2")
	require.Equal(t, id, again)
	require.Equal(t, texts, same)
	require.Len(t, s.requests(), 4)
}

func TestAChoiceThatAnsweredARequestAnswersNoOther(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	s.config.Journal = poisonable{s.store}
	s.restart(t)
	s.replies = [][]int32{append([]int32{poison}, say(tokenizer.End)...), say("2", tokenizer.End), say("3", tokenizer.End)}
	named := []string{"X-Fulgurite-Conversation", "x"}
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","n":3,"messages":[{"role":"user","content":"a"}]}`, named...)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	_, one := s.choose(t, "1", named...)
	require.Contains(t, []string{"2", "3"}, one[0], "a reply that nobody got answers the next equal request")
	_, texts := s.choose(t, "3", named...)
	require.NotContains(t, texts, one[0])
}

func TestEqualRequestsHaveChoicesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	first, texts := s.choose(t, "2")
	second, others := s.choose(t, "2")
	require.NotEqual(t, first, second)
	for id, texts := range map[string][]string{first: texts, second: others} {
		require.Equal(t, texts[1], s.textOf(t, judgedReply(t, s.judge(t, `{"reply":"`+id+`#1","thumb":"down"}`))))
	}
	require.Len(t, s.requests(), 4)
}

func TestStreamedChoicesHaveTheNumbersOfTheirReply(t *testing.T) {
	t.Parallel()
	s := newJudgedTraffic(t)
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","n":2,"stream":true,"messages":[{"role":"user","content":"a"}]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	texts, id := make([]string, 2), ""
	for _, e := range events(t, a.body) {
		id = e["id"].(string)
		for _, c := range e["choices"].([]any) {
			texts[int(c.(map[string]any)["index"].(float64))] += textAt(c, "delta", "content")
		}
	}
	require.True(t, strings.HasPrefix(id, "chatcmpl-"))
	for i, n := range []string{"#0", "#1"} {
		require.Equal(t, texts[i], s.textOf(t, judgedReply(t, s.judge(t, `{"reply":"`+id+n+`","thumb":"up"}`))))
	}
}
