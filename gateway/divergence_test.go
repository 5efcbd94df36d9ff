package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
)

// divergences returns the divergences that are recorded with the calls of an attempt.
func (s *testEnv) divergences(t *testing.T, attempt int) []record.Divergence {
	t.Helper()
	found := []record.Divergence{}
	for _, c := range s.calls(t, attempt) {
		if c.Divergence != nil {
			found = append(found, *c.Divergence)
		}
	}
	return found
}

const weather = `{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\",\"at\":\"10:00\"}"}}]}`

func TestWhereAnAttemptLeavesTheRecordIsPutInWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for name, c := range map[string]struct{ before, now, words string }{
		"text": {
			request(message("system", "It is 14:01. "+long), message("user", "q")),
			request(message("system", "It is 14:59. "+long), message("user", "q")),
			`messages[0].content (system) was "It is 14:01. ` + long[:44] + `…", is "It is 14:59. ` + long[:44] + `…"`,
		},
		"text far into it": {
			request(message("user", long+"é1")), request(message("user", long+"é2")),
			`messages[0].content (user) was "…` + long[:30] + `é1", is "…` + long[:30] + `é2"`,
		},
		"role":          {request(message("user", "q")), request(message("system", "q")), `messages[0].role was "user", is "system"`},
		"another turn":  {request(message("user", "q")), request(message("user", "q"), message("user", "r")), `messages[1] (user) is new: "r"`},
		"missing turn":  {request(message("user", "q"), message("user", "r")), request(message("user", "q")), `messages[1] (user) is missing, it was "r"`},
		"arguments":     {request(weather), request(strings.Replace(weather, "10:00", "11:00", 1)), `messages[0].tool_calls[0].function.arguments was "{\"at\":\"10:00\",\"city\":\"Oslo\"}", is "{\"at\":\"11:00\",\"city\":\"Oslo\"}"`},
		"tool":          {request(weather), request(strings.Replace(weather, `"weather"`, `"news"`, 1)), `messages[0].tool_calls[0].function.name was "weather", is "news"`},
		"tool calls":    {request(weather), request(message("assistant", "")), `messages[0].tool_calls were 1, are 0`},
		"answered call": {request(weather, `{"role":"tool","tool_call_id":"c1","content":"r"}`), request(weather, `{"role":"tool","tool_call_id":"c2","content":"r"}`), `messages[1].tool_call_id answered "0.0", answers "c2"`},
		"max tokens":    {`{"max_tokens":5,"messages":[` + message("user", "q") + `]}`, request(message("user", "q")), `max_tokens was 5, is 32`},
		"tool choice":   {`{"tool_choice":"none","messages":[` + message("user", "q") + `]}`, request(message("user", "q")), `tool_choice "none" was true, is false`},
		"tools": {
			`{"tools":[{"type":"function","function":{"name":"a","description":"Adds."}}],"messages":[` + message("user", "q") + `]}`,
			`{"tools":[{"type":"function","function":{"name":"a","description":"Adds two."}}],"messages":[` + message("user", "q") + `]}`,
			`tools[0].function.description was "Adds.", is "Adds two."`,
		},
		"number of tools": {
			request(message("user", "q")),
			`{"tools":[{"type":"function","function":{"name":"a"}}],"messages":[` + message("user", "q") + `]}`,
			`there were 0 tools, there are 1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, nil)
			s.ask(t, 1, ask("same"))
			before := s.ask(t, 1, c.before)
			require.Equal(t, http.StatusOK, before.status, before.body)
			s.next(t, 2)
			s.ask(t, 2, ask("same"))
			now := s.ask(t, 2, c.now)
			require.Equal(t, http.StatusOK, now.status, now.body)
			s.ask(t, 2, ask("and on"))
			require.Equal(t, []record.Divergence{{Earlier: 1, EarlierSeq: 1, Difference: c.words}}, s.divergences(t, 2))
			require.NotNil(t, s.calls(t, 2)[1].Divergence, "the first call that is another")
		})
	}
}

func TestTheNearestRecordedRequestIsComparedWith(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	for _, q := range []string{"a", "b", "c"} {
		s.ask(t, 1, request(message("system", q), message("user", q)))
	}
	s.next(t, 2)
	s.ask(t, 2, request(message("system", "b"), message("user", "other")))
	require.Equal(t, []record.Divergence{{Earlier: 1, EarlierSeq: 1, Difference: `messages[1].content (user) was "b", is "other"`}}, s.divergences(t, 2))
}

func TestARequestMadeOnceMoreThanBeforeDiverges(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.ask(t, 1, ask("poll"))
	s.ask(t, 1, ask("done"))
	s.next(t, 2)
	s.ask(t, 2, ask("poll"))
	s.ask(t, 2, ask("poll"))
	require.Equal(t, []record.Divergence{{Earlier: 1, EarlierSeq: 1, Difference: "the same request is made once more than before (1)"}}, s.divergences(t, 2))
}

func TestGoingOnWhereTheRecordEndsIsNoDivergence(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.converse(t, 1, 2)
	s.next(t, 2)
	s.converse(t, 2, 4)
	s.ask(t, 2, ask("something else"))
	require.Empty(t, s.divergences(t, 2))
}

func TestACallInFlightThatWasLostIsNoDivergence(t *testing.T) {
	t.Parallel()
	d := openDatabase(t)
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Journal = d })
	d.Begin(s.attempts[address])
	s.ask(t, 1, ask("b")) // at the same time as "a", which was lost
	s.ask(t, 1, ask("c"))
	s.next(t, 2)
	for _, q := range []string{"a", "b", "c"} {
		s.ask(t, 2, ask(q))
	}
	require.Equal(t, []int{0, 1, 1}, s.from(t, 2))
	remaining, err := d.Divergences(t.Context(), address.Run)
	require.NoError(t, err)
	require.Empty(t, remaining, "all that was recorded has been replayed")
}

func TestALostOccurrenceIsNoDivergence(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.ask(t, 1, ask("a"))
	s.ask(t, 1, ask("a"))
	s.ask(t, 1, ask("b"))
	s.memory.calls[at(1)] = s.memory.calls[at(1)][1:] // the first was in flight when all died
	s.next(t, 2)
	s.ask(t, 2, ask("a"))
	require.Empty(t, s.divergences(t, 2))
	s.ask(t, 2, ask("a"))
	require.Equal(t, []int{0, 1}, s.from(t, 2))
}

// dated is an agent that writes the time into its system prompt, as many do.
func dated(s *testEnv, t *testing.T, attempt int, when string, turns int) []string {
	t.Helper()
	replies, dialog := []string{}, []string{message("system", "Now: "+when+"."), message("user", "go")}
	for turn := range turns {
		a := s.ask(t, attempt, request(dialog...))
		require.Equal(t, http.StatusOK, a.status, a.body)
		replies = append(replies, a.body)
		dialog = append(dialog, message("assistant", content(t, a.body)), message("user", fmt.Sprintf("turn %d at %s", turn, when)))
	}
	return replies
}

func TestADateInARequestEndsReplayUnlessItIsIgnored(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	before := dated(s, t, 1, "2026-11-20", 2)
	s.next(t, 2)
	require.NotEqual(t, before, dated(s, t, 2, "2026-11-21", 2))
	require.Equal(t, []int{0, 0}, s.from(t, 2))
	require.Equal(t, []record.Divergence{{Earlier: 1, Difference: `messages[0].content (system) was "Now: 2026-11-20.", is "Now: 2026-11-21."`}}, s.divergences(t, 2))

	s = newTestEnv(t, func(a *record.Attempt) { a.Terms.Ignore = []string{`\d{4}-\d\d-\d\d`} })
	before = dated(s, t, 1, "2026-11-20", 2)
	s.next(t, 2)
	now := dated(s, t, 2, "2026-11-21", 3)
	require.Equal(t, before, now[:2])
	require.Equal(t, []int{1, 1, 0}, s.from(t, 2))
	require.Empty(t, s.divergences(t, 2))
	calls := s.calls(t, 2)
	require.Equal(t, s.calls(t, 1)[1].Prompt, calls[1].Prompt, "the prompt of a replay is as it was sampled after")
	require.Len(t, record.Merge(record.Calls(calls)), 1, "the fresh call continues it")
	require.Contains(t, text(calls[2].Prompt), "Now: 2026-11-20.")
	require.Contains(t, text(calls[2].Prompt), "turn 1 at 2026-11-21")
}

func TestIgnoredTextIsStillReadByThePolicy(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.Ignore = []string{`\d\d:\d\d`} })
	first := s.ask(t, 1, request(message("user", "at 10:00")))
	s.ask(t, 1, request(message("user", "at 11:00")))
	asked := s.requests()
	require.Len(t, asked, 2, "it is the same request a second time, not a retry")
	require.Contains(t, text(asked[0].Prompt), "at 10:00")
	require.Contains(t, text(asked[1].Prompt), "at 11:00")
	require.Equal(t, s.recorded(t)[0].Key, s.recorded(t)[1].Key)
	require.NotEqual(t, asked[0].Seed, asked[1].Seed)
	// A dialog about 11:00 does not go on from the one about 10:00.
	s.ask(t, 1, request(message("user", "at 11:00"), message("assistant", content(t, first.body)), message("user", "?")))
	require.Contains(t, text(s.requests()[2].Prompt), "at 11:00")
	require.NotContains(t, text(s.requests()[2].Prompt), "at 10:00")
}

func TestIgnoredPatternsReachTheArgumentsOfTools(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.Ignore = []string{`\d\d:\d\d`} })
	s.ask(t, 1, request(weather))
	s.ask(t, 1, request(strings.Replace(weather, "10:00", "11:00", 1)))
	require.Equal(t, s.recorded(t)[0].Key, s.recorded(t)[1].Key)
}

func TestWhatCannotMatterDoesNotTellRequestsApart(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	want := s.ask(t, 1, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":1,"b":2}}}]}`)
	attempt := 2
	for _, body := range []string{
		`{"model":"other","temperature":0.2,"top_p":0.1,"seed":7,"n":1,"stream":false,"store":true,"user":"u","metadata":{"session_id":"x"},"session_id":"y","safety_identifier":"z","prompt_cache_key":"k","x_unknown":[1],
		"messages":[{"role":"developer","name":"boss","content":[{"type":"text","text":"s","cache_control":{}}]},{"role":"user","content":"a"}],
		"tools":[{"function":{"parameters":{"b":2, "a":1},"name":"f","strict":true}}],"tool_choice":"auto","max_tokens":900}`,
	} {
		s.next(t, attempt)
		require.Equal(t, want.body, s.ask(t, attempt, body, "X-Request-Id", "r", "OpenAI-Organization", "o").body)
		attempt++
	}
	require.Len(t, s.requests(), 1)
}

func TestTermsWithAPatternThatIsNoneAreAFault(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.Ignore = []string{`(`} })
	require.Equal(t, http.StatusServiceUnavailable, s.ask(t, 1, ask("a")).status)
}
