package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

func TestAgentsRewardThemselves(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, ask("a"))
	id := s.recorded(t)[0].ID
	url := s.base() + "/rewards"
	for _, body := range []string{`{"reward":0.5}`, `{"name":"final","value":5e-1}`, `{"name":"format","value":-1,"call_id":"` + id + `"}`} {
		a := s.post(t, url, body)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	require.Empty(t, cmp.Diff(map[string]record.Reward{
		"final":           {Address: address, Name: "final", Value: 0.5, Source: "agent"},
		"format of " + id: {Address: address, Name: "format", Value: -1, CallID: id, Source: "agent"},
	}, s.rewards[address]))
	requireRefusal(t, s.post(t, url, `{"reward":1}`), http.StatusConflict, "conflict", "")
	require.JSONEq(t, `{"name":"x","value":1,"source":"agent"}`, s.post(t, s.base()+"/n/writer/rewards", `{"name":"x","value":1}`).body)
}

// An agent may reward each of its calls, and then itself.
func TestEachCallHasItsOwnRewards(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, ask("a"))
	s.chat(t, ask("b"))
	first, second := s.recorded(t)[0].ID, s.recorded(t)[1].ID
	for _, body := range []string{`{"reward":0.25,"call_id":"` + first + `"}`, `{"reward":0.75,"call_id":"` + second + `"}`, `{"reward":0.75,"call_id":"` + second + `"}`, `{"reward":1}`} {
		a := s.post(t, s.base()+"/rewards", body)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	got := s.rewards[address]
	require.Len(t, got, 3)
	require.InDelta(t, 1, got["final"].Value, 0)
	require.InDelta(t, 0.25, got["final of "+first].Value, 0)
	require.InDelta(t, 0.75, got["final of "+second].Value, 0)
	again := s.post(t, s.base()+"/rewards", `{"reward":0,"call_id":"`+first+`"}`)
	requireRefusal(t, again, http.StatusConflict, "conflict", "")
	require.Contains(t, again.body, "of the call "+first+" was given before, with another value")
}

func TestWhatIsNoRewardIsRefusedByField(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	for body, field := range map[string]string{
		`{}`:                        "value",
		`{"value":null}`:            "value",
		`{"value":"1"}`:             "value",
		`{"value":true}`:            "value",
		`{"value":[1]}`:             "value",
		`{"value":NaN}`:             "value",
		`{"value":-Infinity}`:       "value",
		`{"value":1e999}`:           "value",
		`{"reward":1e999}`:          "reward",
		`{"reward":"x"}`:            "reward",
		`{"reward":1,"value":1}`:    "reward",
		`{"name":"","value":1}`:     "name",
		`{"name":7,"value":1}`:      "name",
		`{"value":1,"call_id":"x"}`: "call_id",
	} {
		requireRefusal(t, s.post(t, s.base()+"/rewards", body), http.StatusBadRequest, "invalid_value", field)
	}
	requireRefusal(t, s.post(t, s.base()+"/rewards", `{"value":}`), http.StatusBadRequest, "invalid_json", "")
	require.Empty(t, s.rewards)
}

func TestRewardsBeyondTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.RewardLimit = 2.5 })
	for body, field := range map[string]string{`{"reward":2.6}`: "reward", `{"name":"x","value":-1e9}`: "value"} {
		a := s.post(t, s.base()+"/rewards", body)
		requireRefusal(t, a, http.StatusBadRequest, "invalid_value", field)
		require.Contains(t, a.body, "from -2.5 to 2.5 (grader.limit)")
	}
	require.Empty(t, s.rewards)
	require.Equal(t, http.StatusOK, s.post(t, s.base()+"/rewards", `{"reward":-2.5}`).status)
}

func TestGradedAttemptsTakeNoFinalRewardOfAgents(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.Graded = true })
	s.chat(t, ask("a"))
	id := s.recorded(t)[0].ID
	for _, body := range []string{`{"reward":1}`, `{"name":"final","value":1}`, `{"reward":NaN}`} {
		requireRefusal(t, s.post(t, s.base()+"/rewards", body), http.StatusForbidden, "graded", "")
	}
	require.Empty(t, s.rewards)
	for _, body := range []string{`{"name":"style","value":1}`, `{"name":"step","value":1,"call_id":"` + id + `"}`} {
		require.Equal(t, http.StatusOK, s.post(t, s.base()+"/rewards", body).status, body)
	}
	require.Len(t, s.rewards[address], 2)
}

// A refused reward may decide the outcome of the attempt, so each is on record, whichever
// way the agent gave it.
func TestRefusedRewardsAreOnRecord(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.RewardLimit = 2 })
	for _, body := range []string{`{"reward":NaN}`, `{"value":"1"}`, `{"reward":null}`, `{"reward":3}`, `{"reward":true}`, `{`} {
		require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/rewards", body).status, body)
	}
	for _, body := range []string{`{"event_type":"reward","data":{"value":"x"}}`, `{"event_type": "reward", "data": {"value": NaN}}`} {
		require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/events", body).status, body)
	}
	require.Equal(t, map[string]int{"final_reward_refused": 8}, s.refused(t))
	for _, body := range []string{`{"name":"style","value":NaN}`, `{"value":1,"call_id":"nobody"}`} {
		require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/rewards", body).status, body)
	}
	// Nobody can say which reward NaN was to be, since that body is no JSON.
	require.Equal(t, map[string]int{"final_reward_refused": 9, "reward_refused": 1}, s.refused(t))
}

func TestARewardIsRefusedOnlyWhenThatIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.refuse = func(context.Context) error { return errors.New("disk on fire") }
	require.Equal(t, http.StatusServiceUnavailable, s.post(t, s.base()+"/rewards", `{"reward":"x"}`).status)
	s.refuse = nil
	require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/rewards", `{"reward":"x"}`).status)
}

func TestEventsAreKept(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	require.Equal(t, http.StatusOK, s.post(t, s.base()+"/events", `{"name":"handoff","fields":{"to":"writer"}}`).status)
	require.Equal(t, http.StatusOK, s.post(t, s.base()+"/events", `{"name":"done"}`).status)
	require.Empty(t, cmp.Diff([]record.Event{
		{Address: address, Seq: 0, Name: "handoff", Fields: map[string]any{"to": "writer"}, At: start},
		{Address: address, Seq: 1, Name: "done", At: start},
	}, s.events[address]))
	requireRefusal(t, s.post(t, s.base()+"/events", `{"fields":{}}`), http.StatusBadRequest, "invalid_value", "name")
	requireRefusal(t, s.post(t, s.base()+"/events", `{"name":"x","fields":[]}`), http.StatusBadRequest, "invalid_value", "fields")
}

func TestReportsOfAttemptsThatAreOverAreRefused(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, ask("a"))
	s.Seal(address, record.OutcomeCompleted)
	requireRefusal(t, s.post(t, s.base()+"/rewards", `{"reward":1}`), http.StatusConflict, "attempt_fenced", "")
	requireRefusal(t, s.post(t, s.base()+"/events", `{"name":"x"}`), http.StatusConflict, "attempt_fenced", "")
	sampled := len(s.requests())
	requireRefusal(t, s.chat(t, ask("b")), http.StatusConflict, "attempt_fenced", "")
	require.Len(t, s.requests(), sampled)
}

func TestAgentsWrittenForAgentLightningReportAsTheyDo(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	url := s.base() + "/events"
	a := s.post(t, url, `{"event_type":"reward","data":{"value":0.75,"reason":"close"}}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, map[string]record.Reward{"final": {Address: address, Name: "final", Value: 0.75, Source: "agent"}}, s.rewards[address])
	require.Empty(t, s.events[address])
	requireRefusal(t, s.post(t, url, `{"event_type":"reward","data":{"value":"x"}}`), http.StatusBadRequest, "invalid_value", "value")
	requireRefusal(t, s.post(t, url, `{"event_type":"reward"}`), http.StatusBadRequest, "invalid_json", "")
	require.Equal(t, http.StatusOK, s.post(t, url, `{"event_type":"agent_output","data":{"answer":42}}`).status)
	require.Equal(t, "agent_output", s.events[address][0].Name)
	graded := newTestEnv(t, func(a *record.Attempt) { a.Terms.Graded = true })
	requireRefusal(t, graded.post(t, graded.base()+"/events", `{"event_type":"reward","data":{"value":1}}`), http.StatusForbidden, "graded", "")
}

func TestARewardThatTheGraderGivesIsRefused(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.Graded, a.Terms.GradedRewards = true, []string{"verdict"} })
	s.chat(t, ask("a"))
	a := s.post(t, s.base()+"/rewards", `{"name":"verdict","value":1}`)
	requireRefusal(t, a, http.StatusForbidden, "graded", "")
	require.Contains(t, a.body, `a grader gives the reward \"verdict\" of this attempt (grader.rewards)`)
	for _, body := range []string{`{"name":"brevity","value":1}`, `{"name":"verdict","value":1,"call_id":"` + s.recorded(t)[0].ID + `"}`} {
		require.Equal(t, http.StatusOK, s.post(t, s.base()+"/rewards", body).status, body)
	}
}
