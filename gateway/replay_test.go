package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// owner is a journal in which attempts can be begun.
type owner interface {
	gateway.Journal
	Begin(record.Attempt)
}

func at(attempt int) record.Address {
	return record.Address{RolloutID: address.RolloutID, Attempt: attempt}
}

// next begins an attempt under the terms of the testEnv, with a new gateway that has
// nothing in memory.
func (s *testEnv) next(t *testing.T, attempt int, change ...func(*record.Terms)) {
	t.Helper()
	a := s.attempts[address]
	a.Address = at(attempt)
	for _, c := range change {
		c(&a.Terms)
	}
	s.config.Journal.(owner).Begin(a)
	s.restart(t)
}

// ask makes a call of an attempt.
func (s *testEnv) ask(t *testing.T, attempt int, body string, headers ...string) answer {
	t.Helper()
	return s.post(t, s.url+"/r/"+at(attempt).String()+"/v1/chat/completions", body, headers...)
}

// calls returns the calls of an attempt that the journal has.
func (s *testEnv) calls(t *testing.T, attempt int) []record.Exchange {
	t.Helper()
	calls, err := s.config.Journal.Exchanges(t.Context(), at(attempt))
	require.NoError(t, err)
	return calls
}

// from lists which attempt sampled each call of an attempt.
func (s *testEnv) from(t *testing.T, attempt int) []int {
	t.Helper()
	from := []int{}
	for _, c := range s.calls(t, attempt) {
		from = append(from, c.ReplayedFrom)
	}
	return from
}

// converse is an agent whose requests are a function of the replies: it makes
// turns calls, each of which continues the one before, and returns the replies.
func (s *testEnv) converse(t *testing.T, attempt, turns int) []string {
	t.Helper()
	replies, dialog := []string{}, []string{message("system", "s"), message("user", "go")}
	for turn := range turns {
		a := s.ask(t, attempt, request(dialog...))
		require.Equal(t, http.StatusOK, a.status, a.body)
		replies = append(replies, a.body)
		dialog = append(dialog, message("assistant", content(t, a.body)), message("user", fmt.Sprintf("turn %d", turn)))
	}
	return replies
}

func message(role, content string) string {
	return fmt.Sprintf(`{"role":%q,"content":%q}`, role, content)
}

func request(messages ...string) string {
	return `{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`
}

// onJournals tests a claim on the journal in memory and on the store that runs use.
func onJournals(t *testing.T, claim func(t *testing.T, s *testEnv)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		claim(t, newTestEnv(t, nil))
	})
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		d := openDatabase(t)
		s := newTestEnv(t, nil, func(c *gateway.Config) { c.Journal = d })
		d.Begin(s.attempts[address])
		claim(t, s)
	})
}

// asSampled removes from calls what distinguishes a replay from the sampled call.
func asSampled(calls []record.Exchange) []record.Exchange {
	for i := range calls {
		c := &calls[i]
		c.Attempt, c.ReplayedFrom, c.Recorded, c.Started, c.Duration = 0, 0, start, start, 0
	}
	return calls
}

func TestAnAgentKilledInAnyTurnIsReplayedToWhereItDied(t *testing.T) {
	t.Parallel()
	const turns = 5
	for died := range turns + 1 {
		t.Run(fmt.Sprint(died), func(t *testing.T) {
			t.Parallel()
			undisturbed := newTestEnv(t, nil)
			want := undisturbed.converse(t, 1, turns)
			onJournals(t, func(t *testing.T, s *testEnv) {
				require.Equal(t, want[:died], s.converse(t, 1, died))
				s.next(t, 2)
				require.Equal(t, want, s.converse(t, 2, turns))
				require.Len(t, s.requests(), turns, "no call was sampled twice")
				require.Empty(t, cmp.Diff(asSampled(undisturbed.calls(t, 1)), asSampled(s.calls(t, 2))))
				from := make([]int, turns)
				for i := range died {
					from[i] = 1
				}
				require.Equal(t, from, s.from(t, 2))
				require.Len(t, record.Merge(record.Calls(s.calls(t, 2))), 1)
			})
		})
	}
}

func TestEveryAttemptBuildsOnAllEarlierOnes(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		want := s.converse(t, 1, 2)
		s.next(t, 2)
		require.Equal(t, want[:1], s.converse(t, 2, 1), "this one died before it came as far")
		s.next(t, 3)
		want = append(want, s.converse(t, 3, 3)[2])
		s.next(t, 4)
		require.Equal(t, want, s.converse(t, 4, 3))
		require.Equal(t, []int{1}, s.from(t, 2))
		require.Equal(t, []int{1, 1, 0}, s.from(t, 3))
		require.Equal(t, []int{1, 1, 3}, s.from(t, 4))
		require.Len(t, s.requests(), 3)
	})
}

func TestAReplayGoesOnWhenTheGatewayDiesInIt(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		want := s.converse(t, 1, 4)
		s.next(t, 2)
		dialog := []string{message("system", "s"), message("user", "go")}
		for turn, reply := range want {
			a := s.ask(t, 2, request(dialog...))
			require.Equal(t, reply, a.body)
			s.restart(t)
			require.Equal(t, reply, s.ask(t, 2, request(dialog...), "X-Fulgurite-Retry", "1").body, "asked again")
			dialog = append(dialog, message("assistant", content(t, a.body)), message("user", fmt.Sprintf("turn %d", turn)))
		}
		require.Equal(t, []int{1, 1, 1, 1}, s.from(t, 2))
		require.Len(t, s.requests(), 4)
	})
}

func TestConcurrentCallsAreReplayedInAnyOrder(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		branches := []string{"a", "b", "c"}
		agent := func(attempt int, order ...int) map[string][2]string {
			replies := map[string][2]string{}
			for _, i := range order {
				first := s.ask(t, attempt, request(message("user", branches[i])))
				replies[branches[i]] = [2]string{first.body}
			}
			for _, i := range order {
				b := branches[i]
				opening := replies[b][0]
				second := s.ask(t, attempt, request(message("user", b), message("assistant", content(t, opening)), message("user", "?")))
				replies[b] = [2]string{opening, second.body}
			}
			return replies
		}
		want := agent(1, 0, 1, 2)
		s.next(t, 2)
		require.Equal(t, want, agent(2, 2, 0, 1))
		require.Equal(t, []int{1, 1, 1, 1, 1, 1}, s.from(t, 2))
		require.Len(t, s.requests(), 6)
		require.Len(t, record.Merge(record.Calls(s.calls(t, 2))), 3, "each continues its own parent")
		require.Equal(t, []int{-1, -1, -1, 0, 1, 2}, []int{
			s.calls(t, 2)[0].Parent, s.calls(t, 2)[1].Parent, s.calls(t, 2)[2].Parent,
			s.calls(t, 2)[3].Parent, s.calls(t, 2)[4].Parent, s.calls(t, 2)[5].Parent,
		})
	})
}

func TestTheSameRequestTwiceOnPurposeIsReplayedAsTwo(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		first, second := s.ask(t, 1, ask("a")), s.ask(t, 1, ask("a"))
		require.NotEqual(t, first.body, second.body)
		s.next(t, 2)
		require.Equal(t, first.body, s.ask(t, 2, ask("a")).body)
		require.Equal(t, second.body, s.ask(t, 2, ask("a")).body)
		third := s.ask(t, 2, ask("a"))
		require.NotContains(t, []string{first.body, second.body}, third.body)
		require.Equal(t, []int{1, 1, 0}, s.from(t, 2))
	})
}

func TestADialogContinuesTheLastOfEqualSamplesInWhicheverOrderTheyWereRecorded(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	odd := say(int32(32+'7'), tokenizer.End) // the same text, spelled by its byte
	s.replies = [][]int32{say("7", tokenizer.End), odd}
	s.ask(t, 1, ask("a"))
	s.ask(t, 1, ask("a"))
	first, second := s.recorded(t)[0], s.recorded(t)[1]
	first.Seq, second.Seq = 1, 0
	s.memory.calls[address] = []record.Exchange{second, first}
	s.restart(t)
	s.ask(t, 1, request(message("user", "a"), message("assistant", "7"), message("user", "?")))
	require.Equal(t, odd, s.requests()[2].Prompt[len(second.Prompt):][:len(odd)])
	require.Equal(t, 0, s.recorded(t)[2].Parent)
}

func TestReplayedCallsCountAsCalls(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*record.Terms){
		"call_limit":  func(t *record.Terms) { t.MaxCalls = 2 },
		"token_limit": func(t *record.Terms) { t.TokenBudget = 5 },
	} {
		s := newTestEnv(t, func(a *record.Attempt) { limit(&a.Terms) })
		want := s.converse(t, 1, 2)
		s.next(t, 2)
		require.Equal(t, want, s.converse(t, 2, 2))
		requireRefusal(t, s.ask(t, 2, ask("more")), http.StatusBadRequest, name, "")
		require.Len(t, s.requests(), 2)
	}
}

func TestUnderOtherTermsNothingIsReplayed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*record.Terms){
		"version":     func(t *record.Terms) { t.Version++ },
		"policy":      func(t *record.Terms) { t.Policy = "other" },
		"temperature": func(t *record.Terms) { t.Temperature = 0.5 },
		"max tokens":  func(t *record.Terms) { t.MaxTokens-- },
		"run seed":    func(t *record.Terms) { t.RunSeed++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, nil)
			s.converse(t, 1, 2)
			s.next(t, 2, change)
			s.converse(t, 2, 2)
			require.Equal(t, []int{0, 0}, s.from(t, 2))
			require.Len(t, s.requests(), 4)
		})
	}
}

func TestEarlierCallsAreReadOnceAndOnlyIfThereCanBeAny(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.converse(t, 1, 3)
	require.Zero(t, s.recalls)
	s.next(t, 2)
	s.converse(t, 2, 4)
	require.Equal(t, 1, s.recalls)
}

func TestAReplayThatCannotBeRecordedIsNotGiven(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	want := s.converse(t, 1, 1)
	s.next(t, 2)
	s.before = func() error { return fmt.Errorf("disk full") }
	a := s.ask(t, 2, request(message("system", "s"), message("user", "go")))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotEmpty(t, a.header.Get("X-Fulgurite-Fault"))
	require.NotContains(t, a.body, content(t, want[0]))
	s.before = nil
	require.Equal(t, want, s.converse(t, 2, 1))
	require.Len(t, s.requests(), 1)
}

func TestWithoutReplayEveryAttemptSamples(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.NoReplay = true })
	s.converse(t, 1, 2)
	s.next(t, 2)
	s.converse(t, 2, 2)
	require.Equal(t, []int{0, 0}, s.from(t, 2))
	require.Len(t, s.requests(), 4)
	s.ask(t, 2, ask("a"))
	s.ask(t, 2, ask("a"), "X-Fulgurite-Retry", "1")
	require.Len(t, s.requests(), 6, "a retry is one more sample")
}

func TestStatsTellSamplesFromReplays(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.converse(t, 1, 2)
	s.next(t, 2)
	g := gateway.New(s.config)
	s.serve(t, g)
	s.converse(t, 2, 3)
	s.before = func() error { return fmt.Errorf("disk full") }
	s.ask(t, 2, ask("lost"))
	s.before = nil
	s.ask(t, 2, ask("kept"))
	s.ask(t, 2, ask("kept"), "X-Fulgurite-Retry", "1")
	require.Equal(t, gateway.Stats{Sampled: 3, Unrecorded: 1, Replayed: 2, Rejoined: 1}, g.Stats())
}
