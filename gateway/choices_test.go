package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

func several(n int) string {
	return fmt.Sprintf(`{"model":"m","n":%d,"messages":[{"role":"user","content":"a"}]}`, n)
}

func choices(t *testing.T, body string) []string {
	t.Helper()
	var reply openai.ChatCompletionResponse
	require.NoError(t, json.Unmarshal([]byte(body), &reply))
	var all []string
	for i, c := range reply.Choices {
		require.Equal(t, i, c.Index)
		all = append(all, c.Message.Content)
	}
	return all
}

func TestSeveralChoicesAreSeveralCalls(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		a := s.ask(t, 1, several(3))
		require.Equal(t, http.StatusOK, a.status, a.body)
		all := choices(t, a.body)
		require.Len(t, all, 3)
		require.Len(t, map[string]bool{all[0]: true, all[1]: true, all[2]: true}, 3)
		calls := s.calls(t, 1)
		require.Len(t, calls, 3)
		said := map[int]string{}
		for _, c := range calls {
			require.Equal(t, calls[0].Key, c.Key)
			said[c.Occurrence] = content(t, string(c.Response))
		}
		require.Equal(t, map[int]string{0: all[0], 1: all[1], 2: all[2]}, said)
		require.NotEqual(t, all[0], choices(t, s.ask(t, 1, several(1)).body)[0], "one more is one more sample")
		require.Len(t, s.calls(t, 1), 4)

		s.next(t, 2)
		require.Equal(t, a.body, s.ask(t, 2, several(3)).body)
		require.Equal(t, []int{1, 1, 1}, s.from(t, 2))
	})
}

func TestARetryOfSeveralChoicesGetsThemAll(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]string{
		"by the forwarder": {requestName, "e1", retry, "1"},
		"by the SDK":       {"X-Stainless-Retry-Count", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onJournals(t, func(t *testing.T, s *testEnv) {
				first := s.ask(t, 1, several(3), requestName, "e1")
				require.Equal(t, first.body, s.ask(t, 1, several(3), headers...).body)
				s.restart(t)
				require.Equal(t, first.body, s.ask(t, 1, several(3), headers...).body)
				require.Len(t, s.requests(), 3)
			})
		})
	}
}

func TestARetryOfSeveralChoicesInFlightJoinsThemAll(t *testing.T) {
	t.Parallel()
	s, gate := newUnservedEnv(nil), newSamplingGate()
	s.gate = gate.gate
	g := gateway.New(s.config)
	p := protocols()[0]
	first := listen(t.Context(), g, address, p.path, several(3), requestName, "e1")
	for range 3 {
		<-gate.arrived
	}
	inside := make(chan struct{})
	again := listen(watched{t.Context(), inside}, g, address, p.path, several(3), requestName, "e1", retry, "1")
	<-inside
	for range 3 {
		gate.pass <- struct{}{}
	}
	require.Len(t, choices(t, first.all()), 3)
	require.Equal(t, first.String(), again.all())
	require.Len(t, s.requests(), 3)
	require.Len(t, s.recorded(t), 3)
}

func TestSeveralChoicesAreStreamedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	body := strings.Replace(several(3), `"n"`, `"stream":true,"n"`, 1)
	streamed := s.ask(t, 1, body, requestName, "e1")
	require.Equal(t, http.StatusOK, streamed.status, streamed.body)
	whole := s.ask(t, 1, several(3), requestName, "e1", retry, "1")
	said, last := make([]string, 3), 0
	for _, e := range events(t, streamed.body) {
		for _, c := range e["choices"].([]any) {
			i := int(c.(map[string]any)["index"].(float64))
			text := textAt(c, "delta", "content")
			said[i] += text
			if text != "" {
				require.GreaterOrEqual(t, i, last)
				last = i
			}
		}
	}
	require.Equal(t, choices(t, whole.body), said)
	s.restart(t)
	require.Equal(t, streamed.body, s.ask(t, 1, body, requestName, "e1", retry, "1").body)
	require.Len(t, s.requests(), 3)
}

func TestEachChoiceCountsAsACall(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.MaxCalls = 4 })
	require.Equal(t, http.StatusOK, s.ask(t, 1, several(3)).status)
	requireRefusal(t, s.ask(t, 1, several(2)), http.StatusBadRequest, "call_limit", "")
	require.Len(t, s.requests(), 3, "nothing was sampled in part")
	require.Equal(t, http.StatusOK, s.ask(t, 1, several(1)).status)
	require.Len(t, s.recorded(t), 4)
}

func TestAChoiceThatFailsFailsTheReplyAndARetryKeepsTheOthers(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("1", tokenizer.End), append([]int32{poison}, say(tokenizer.End)...), say("3", tokenizer.End)}
	a := s.ask(t, 1, several(3), requestName, "e1")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Len(t, s.recorded(t), 2)
	again := s.ask(t, 1, several(3), requestName, "e1", retry, "1")
	require.Equal(t, http.StatusOK, again.status, again.body)
	require.Len(t, s.recorded(t), 3)
	require.Len(t, s.requests(), 4)
	require.Subset(t, choices(t, again.body), []string{"1", "3"})
}

func TestDialogsContinueTheChoiceThatTheyRepeat(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	all := choices(t, s.ask(t, 1, several(3)).body)
	s.ask(t, 1, request(message("user", "a"), message("assistant", all[1]), message("user", "?")))
	calls := s.recorded(t)
	require.Equal(t, 1, calls[calls[3].Parent].Occurrence)
}
