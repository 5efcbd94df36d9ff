package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

func TestAConversationKeepsItsVersionWhenAnotherIsPromoted(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.replies = [][]int32{odd(), odd(), say("3", tokenizer.End), say("3", tokenizer.End), say("4", tokenizer.End)}
	first := []string{message("user", "a")}
	next := append(first, message("assistant", "1"), message("user", "b"))
	s.say(t, first)
	s.say(t, first, "X-Fulgurite-Conversation", "named")
	s.versions.promoted.Store(6)
	s.restart(t)
	for _, headers := range [][]string{nil, {"X-Fulgurite-Conversation", "named"}} {
		a := s.say(t, next, headers...)
		require.Equal(t, "demo@5", a.header.Get("X-Fulgurite-Version"))
	}
	require.Equal(t, "demo@6", s.say(t, first).header.Get("X-Fulgurite-Version"))
	s.requireConversations(t, 2, 2, 1)
	for n := range 2 {
		_, calls := s.calls(t, n)
		requireContinued(t, calls)
		require.Equal(t, []int{5, 5}, []int{calls[0].Version, calls[1].Version})
	}
	require.Equal(t, []int{5, 5, 5, 5, 6}, []int{s.version[0].Number, s.version[1].Number, s.version[2].Number, s.version[3].Number, s.version[4].Number})
}

func TestAConversationWhoseVersionIsGoneEnds(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.replies = [][]int32{odd(), odd()}
	first := []string{message("user", "a")}
	next := append(first, message("assistant", "1"), message("user", "b"))
	s.say(t, first)
	s.say(t, first, "X-Fulgurite-Conversation", "named")
	s.versions.promoted.Store(6)
	s.versions.collected.Store(5)
	require.Equal(t, "demo@6", s.say(t, next).header.Get("X-Fulgurite-Version"), "another begins")
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+strings.Join(next, ",")+`]}`, "X-Fulgurite-Conversation", "named")
	requireRefusal(t, a, http.StatusGone, "version_gone", "X-Fulgurite-Conversation")
	s.requireConversations(t, 1, 1, 1)
}

func TestVersionsAndPoliciesByNumberHaveConversationsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	body := func(model string) string {
		return `{"model":"` + model + `","messages":[` + message("user", "a") + `]}`
	}
	for _, name := range []string{"demo@5", "demo@promoted", "demo@6", "demo:writer@5", "demo@5"} {
		require.Equal(t, http.StatusOK, s.post(t, s.url+"/v1/chat/completions", body(name), "X-Fulgurite-Conversation", "x").status)
	}
	s.requireConversations(t, 2, 1, 1, 1)
	c, calls := s.calls(t, 3)
	require.Equal(t, "writer", c.Policy)
	require.Equal(t, "writer", calls[0].Policy)
	require.True(t, c.Pinned)
	c, _ = s.calls(t, 1)
	require.False(t, c.Pinned)
}

func TestEqualRequestsAreTwoSamplesUnlessTheClientAsksAgain(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	first := []string{message("user", "a")}
	a, b := s.say(t, first), s.say(t, first)
	require.NotEqual(t, idOf(t, a), idOf(t, b))
	require.Equal(t, idOf(t, b), idOf(t, s.say(t, first, "X-Stainless-Retry-Count", "1")), "the last one is asked for again")
	s.requireConversations(t, 1, 1)

	next := append(first, message("assistant", content(t, a.body)), message("user", "b"))
	c, d := s.say(t, next), s.say(t, next)
	require.NotEqual(t, idOf(t, c), idOf(t, d))
	require.Equal(t, idOf(t, d), idOf(t, s.say(t, next, "X-Stainless-Retry-Count", "2")))
	require.Len(t, s.requests(), 4)
	total := 0
	for n := range 2 {
		_, calls := s.calls(t, n)
		total += len(calls)
	}
	require.Equal(t, 4, total)
}

func TestUsersOfOneKeyHaveConversationsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	first := []string{message("user", "a")}
	next := append(first, message("assistant", "1"), message("user", "b"))
	for _, turn := range [][]string{first, next} {
		for _, user := range []string{"ann", "bob"} {
			s.replies = [][]int32{odd()}
			s.say(t, turn, "X-Fulgurite-User", user, "Authorization", "Bearer web")
		}
	}
	s.requireConversations(t, 2, 2)
	for n, user := range []string{"ann", "bob"} {
		hash, err := s.store.HashUser(t.Context(), user)
		require.NoError(t, err)
		c, calls := s.calls(t, n)
		require.Equal(t, hash, c.User)
		requireContinued(t, calls)
	}
	s.say(t, next, "X-Fulgurite-User", "ann", "Authorization", "Bearer app")
	s.requireConversations(t, 2, 2, 1)
}

func TestAnEditedHistoryBeginsAConversation(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.replies = [][]int32{odd()}
	s.say(t, []string{message("user", "a")})
	s.say(t, []string{message("user", "a"), message("assistant", "2"), message("user", "b")})
	s.say(t, []string{message("user", "A"), message("assistant", "1"), message("user", "b")})
	s.requireConversations(t, 1, 1, 1)
}

func TestAConversationIsFoundByItsAddressOnlyByItsClient(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.replies = [][]int32{odd()}
	first := []string{message("user", "a")}
	address := s.say(t, first, "Authorization", "Bearer web", "X-Fulgurite-User", "ann").header.Get("X-Fulgurite-Conversation")
	a := s.say(t, append(first, message("assistant", "edited"), message("user", "b")), "Authorization", "Bearer web", "X-Fulgurite-User", "ann", "X-Fulgurite-Conversation", address)
	require.Equal(t, address, a.header.Get("X-Fulgurite-Conversation"))
	s.requireConversations(t, 2)
	for _, headers := range [][]string{
		{"Authorization", "Bearer app", "X-Fulgurite-User", "ann"}, {"Authorization", "Bearer web"}, {"Authorization", "Bearer web", "X-Fulgurite-User", "bob"},
	} {
		a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+first[0]+`]}`, append(headers, "X-Fulgurite-Conversation", address)...)
		requireRefusal(t, a, http.StatusNotFound, "conversation_not_found", "X-Fulgurite-Conversation")
	}
	for _, name := range []string{"demo/served-0/7/0/1", "demo/train-0/0/0/1", "other/served-0/0/0/1", "a/b"} {
		a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+first[0]+`]}`, "X-Fulgurite-Conversation", name)
		requireRefusal(t, a, http.StatusNotFound, "conversation_not_found", "X-Fulgurite-Conversation")
	}
	for _, name := range []string{strings.Repeat("x", 129), "a b", `a"`, "é"} {
		a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+first[0]+`]}`, "X-Fulgurite-Conversation", name)
		requireRefusal(t, a, http.StatusBadRequest, "invalid_value", "X-Fulgurite-Conversation")
	}
	s.requireConversations(t, 2)
}

func TestAConversationHasNoURLOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	address := s.say(t, []string{message("user", "a")}).header.Get("X-Fulgurite-Conversation")
	for _, key := range []string{key, "web", "x"} {
		for _, path := range []string{"/v1/chat/completions", "/rewards", "/v1/traces"} {
			a := s.post(t, s.url+"/r/"+address+path, ask("a"), "Authorization", "Bearer "+key)
			require.Equal(t, http.StatusNotFound, a.status, path)
			require.Contains(t, a.body, "X-Fulgurite-Conversation")
		}
	}
	s.requireConversations(t, 1)
}

func TestAReplyOfResponsesIsContinuedByItsID(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.replies = [][]int32{odd(), say("2", tokenizer.End)}
	first := s.post(t, s.url+"/v1/responses", `{"model":"demo","input":"a"}`, "Authorization", "Bearer web")
	next := `{"model":"demo","input":"b","previous_response_id":"` + idOf(t, first) + `"}`
	s.restart(t)
	a := s.post(t, s.url+"/v1/responses", next, "Authorization", "Bearer web")
	require.Equal(t, http.StatusOK, a.status, a.body)
	_, calls := s.calls(t, 0)
	requireContinued(t, calls)
	for _, headers := range [][]string{{"Authorization", "Bearer app"}, {"Authorization", "Bearer web", "X-Fulgurite-User", "ann"}} {
		requireRefusal(t, s.post(t, s.url+"/v1/responses", next, headers...), http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
	}
	requireRefusal(t, s.post(t, s.url+"/v1/responses", next, "Authorization", "Bearer web", "X-Fulgurite-Consent", "false"), http.StatusBadRequest, "invalid_value", "previous_response_id")
	s.requireConversations(t, 2)
}

func TestAfterARemovalAnotherConversationBegins(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	for n, headers := range [][]string{{"X-Fulgurite-Conversation", "x"}, nil} {
		s.replies = [][]int32{odd()}
		s.say(t, []string{message("user", "a")}, headers...)
		require.NoError(t, s.store.RemoveConversation(t.Context(), "demo", 2*n)) // the gateway still has it in memory
		s.say(t, []string{message("user", "a"), message("assistant", "1"), message("user", "b")}, headers...)
		_, calls := s.calls(t, 2*n+1)
		require.Len(t, calls, 1)
		require.Equal(t, -1, calls[0].Parent)
	}
}

// lagging finds conversations once that are removed by the time that they are entered.
type lagging struct {
	gateway.Conversations
	store  database
	armed  atomic.Bool
	number int
}

func (l *lagging) NamedConversation(ctx context.Context, c record.Conversation) (record.Conversation, error) {
	out, err := l.Conversations.NamedConversation(ctx, c)
	if err == nil && l.armed.CompareAndSwap(true, false) {
		l.number = out.Number
		err = l.store.RemoveConversation(ctx, "demo", out.Number)
	}
	return out, err
}

func TestAConversationThatIsRemovedUnderARequestIsBegunAgainForItsUser(t *testing.T) {
	t.Parallel()
	l := &lagging{}
	s := newTraffic(t, func(c *gateway.Config) { l.Conversations, c.Conversations = c.Conversations, l })
	l.store = s.store
	ask := func() {
		a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","user":"ann","messages":[`+message("user", "a")+`]}`, "X-Fulgurite-Conversation", "x")
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	ask()
	l.armed.Store(true)
	ask()
	require.Zero(t, l.number)
	hash, err := s.store.HashUser(t.Context(), "ann")
	require.NoError(t, err)
	c, calls := s.calls(t, 1)
	require.Equal(t, hash, c.User)
	require.Contains(t, string(calls[0].Request), hash)
}

// half is an experiment whose candidate answers one user.
type half struct {
	control int
	asked   []string
}

func (h *half) Candidate(_ context.Context, run, policy, unit string) (version, experiment int, candidate bool, err error) {
	h.asked = append(h.asked, run+" "+policy+" "+unit)
	if strings.HasPrefix(unit, "c") {
		return 9, 9, true, nil
	}
	return h.control, 9, false, nil
}

func TestAnExperimentGivesNewConversationsToItsCandidate(t *testing.T) {
	t.Parallel()
	h := &half{control: 5}
	s := newTraffic(t, func(c *gateway.Config) { c.Experiments = h })
	s.replies = [][]int32{odd(), odd()}
	first := []string{message("user", "a")}
	next := append(first, message("assistant", "1"), message("user", "b"))
	for _, turn := range [][]string{first, next} {
		require.Equal(t, "demo@9", s.say(t, turn, "X-Fulgurite-Conversation", "c1").header.Get("X-Fulgurite-Version"))
		require.Equal(t, "demo@5", s.say(t, turn, "X-Fulgurite-Conversation", "x1").header.Get("X-Fulgurite-Version"))
	}
	require.Equal(t, []string{"demo main c1", "demo main x1"}, h.asked)
	for n, candidate := range []bool{true, false} {
		c, calls := s.calls(t, n)
		require.Equal(t, candidate, c.Candidate)
		require.Equal(t, 9, c.Experiment)
		require.Equal(t, c.Version, calls[1].Version)
	}
	s.say(t, first, "X-Fulgurite-User", "ann")
	hash, err := s.store.HashUser(t.Context(), "ann")
	require.NoError(t, err)
	require.Equal(t, "demo main "+hash, h.asked[2])
	s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@5","messages":[`+first[0]+`]}`)
	require.Len(t, h.asked, 3, "a version by its number is no part of it")
}

// The experiment may have just ended, or a person may have moved the pointer.
func TestAConversationIsNoControlsIfAnotherVersionAnswersIt(t *testing.T) {
	t.Parallel()
	h := &half{control: 4}
	s := newTraffic(t, func(c *gateway.Config) { c.Experiments = h })
	s.replies = [][]int32{odd()}
	require.Equal(t, "demo@5", s.say(t, []string{message("user", "a")}, "X-Fulgurite-Conversation", "x1").header.Get("X-Fulgurite-Version"))
	c, _ := s.calls(t, 0)
	require.Equal(t, 5, c.Version)
	require.Zero(t, c.Experiment, "version 4 is the control")
}

func TestAConversationKeepsThePromptsThatItBeganWith(t *testing.T) {
	t.Parallel()
	old, young := promptSet(t, "Be brief.", prefixed("old")), promptSet(t, "Be long.", prefixed("old"))
	s := newTraffic(t, servingPrompts(old, young))
	digest, other := old.Digest(), young.Digest()
	s.versions.prompts.Store(&digest)
	s.replies = [][]int32{odd()}
	first := []string{message("system", "old"), message("user", "q")}
	a := s.say(t, first)
	require.Equal(t, "4", a.header.Get("X-Fulgurite-Prompts"))
	require.Equal(t, "1", a.header.Get("X-Fulgurite-Replaced"))
	s.versions.prompts.Store(&other)
	a = s.say(t, append(first, message("assistant", "1"), message("user", "b")))
	require.Empty(t, a.header.Get("X-Fulgurite-Prompts"), "they are no longer the promoted ones")
	s.say(t, first, "X-Fulgurite-Prompts", "none")
	s.requireConversations(t, 2, 1)
	_, calls := s.calls(t, 0)
	requireContinued(t, calls)
	require.True(t, strings.HasPrefix(text(calls[1].Prompt), "<system>Be brief.<end>"))
	require.Contains(t, string(calls[0].Request), "old", "the record has what the client sent")
	_, calls = s.calls(t, 1)
	require.True(t, strings.HasPrefix(text(calls[0].Prompt), "<system>old<end>"))
}

func TestEachTurnMayGoThroughAnotherGateway(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	urls := []string{s.url}
	s.restart(t)
	urls = append(urls, s.url)
	for _, headers := range [][]string{nil, {"X-Fulgurite-Conversation", "x"}} {
		dialogue := []string{message("user", "a")}
		for i := range 4 {
			s.replies, s.url = [][]int32{odd()}, urls[i%2]
			s.say(t, dialogue, headers...)
			dialogue = append(dialogue, message("assistant", "1"), message("user", "b"))
		}
	}
	s.requireConversations(t, 4, 4)
	for n := range 2 {
		_, calls := s.calls(t, n)
		requireContinued(t, calls)
	}
	require.Len(t, s.requests(), 8, "nothing is sampled twice")
}
