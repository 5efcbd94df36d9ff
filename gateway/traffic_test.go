package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// trafficVersions are versions whose conversations are recorded, of which another may be
// promoted.
type trafficVersions struct {
	recording model.Recording
	deliver   bool
	promoted  atomic.Int32
	collected atomic.Int32 // a version whose files are gone
	prompts   atomic.Pointer[string]
	redactor  []string
	maxCalls  int
}

func (v *trafficVersions) Resolve(_ context.Context, name string) (model.Served, error) {
	out := model.Served{
		VersionID: model.VersionID{Run: "demo", Policy: "main", Number: int(v.promoted.Load())}, Codec: "compact",
		Recording: v.recording, DeliverUnrecorded: v.deliver, Redactor: v.redactor, MaxCalls: v.maxCalls,
	}
	if digest := v.prompts.Load(); digest != nil {
		out.Prompts, out.PromptsNumber = *digest, 4
	}
	reference, version, numbered := strings.Cut(name, "@")
	if _, policy, ok := strings.Cut(reference, ":"); ok {
		out.Policy = policy
	}
	if numbered && version != "promoted" {
		out.Pinned = true
		if _, err := fmt.Sscanf(version, "%d", &out.Number); err != nil {
			return out, fmt.Errorf("version %q: %w", name, record.ErrNotFound)
		}
	}
	out.Collected = int(v.collected.Load()) == out.Number
	return out, nil
}

func (*trafficVersions) List(context.Context) ([]string, error) { return []string{"demo"}, nil }

// traffic is a gateway that records conversations in a store.
type traffic struct {
	*testEnv
	store    database
	versions *trafficVersions
}

func newTraffic(t *testing.T, configure ...func(*gateway.Config)) traffic {
	t.Helper()
	s := traffic{store: openDatabase(t), versions: &trafficVersions{recording: model.RecordAll}}
	s.versions.promoted.Store(5)
	s.versions.collected.Store(-1)
	_, _, err := s.store.CreateRun(t.Context(), record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "x", SpecDigest: "d"})
	require.NoError(t, err)
	s.testEnv = newTestEnv(t, nil, append([]func(*gateway.Config){func(c *gateway.Config) {
		c.Journal, c.Conversations, c.Versions, c.Keys = s.store, s.store.Store, s.versions, clients{}
	}}, configure...)...)
	return s
}

// clients are the keys of clients, which are their names.
type clients struct{}

func (clients) Key(_ context.Context, presented string) (record.ServingKey, bool, error) {
	switch presented {
	case "web", "app":
		return record.ServingKey{Name: presented, Scopes: []string{"serve"}}, true, nil
	case "willing":
		return record.ServingKey{Name: presented, Scopes: []string{"serve", record.ScopeConsent}}, true, nil
	case "broken":
		return record.ServingKey{}, false, errors.New("database gone")
	}
	return record.ServingKey{}, false, nil
}

// say asks a version for a reply to the messages.
func (s traffic) say(t *testing.T, messages []string, headers ...string) answer {
	t.Helper()
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+strings.Join(messages, ",")+`]}`, headers...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	return a
}

// calls returns the calls of a conversation, and the conversation.
func (s traffic) calls(t *testing.T, number int) (record.Conversation, []record.Exchange) {
	t.Helper()
	c, err := s.store.Conversation(t.Context(), "demo", number)
	require.NoError(t, err)
	calls, err := s.store.Exchanges(t.Context(), c.Address())
	require.NoError(t, err)
	require.Len(t, calls, c.Calls)
	return c, calls
}

// requireConversations asserts how many calls the conversations have, and that there are no
// others.
func (s traffic) requireConversations(t *testing.T, calls ...int) {
	t.Helper()
	for n, want := range calls {
		c, err := s.store.Conversation(t.Context(), "demo", n)
		require.NoError(t, err)
		require.Equal(t, want, c.Calls, "conversation %d", n)
	}
	_, err := s.store.Conversation(t.Context(), "demo", len(calls))
	require.ErrorIs(t, err, record.ErrNotFound)
}

// odd is a reply whose text "1" is spelled by its byte, which no encoding of the text does.
func odd() []int32 { return say(int32(32+'1'), tokenizer.End) }

// requireContinued asserts that each call begins with the exact tokens of the one before.
func requireContinued(t *testing.T, calls []record.Exchange) {
	t.Helper()
	for i, c := range calls {
		require.Equal(t, i-1, c.Parent)
		require.Len(t, c.Logprobs, len(c.Completion))
		if i > 0 {
			before := append(append([]int32{}, calls[i-1].Prompt...), calls[i-1].Completion...)
			require.Equal(t, before, c.Prompt[:len(before)])
		}
	}
}

func idOf(t *testing.T, a answer) string {
	t.Helper()
	var reply struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &reply))
	return reply.ID
}

func TestConversationsInEveryAPIAreRecordedAndContinuedByTheirTokens(t *testing.T) {
	t.Parallel()
	for path, turns := range map[string][2]string{
		"/v1/chat/completions": {
			`"messages":[{"role":"user","content":"a"}]`,
			`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":" 1\n"},{"role":"user","content":"b"}]`,
		},
		"/v1/responses": {
			`"input":"a","instructions":"be brief"`,
			`"instructions":"be brief","input":[{"role":"user","content":"a"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"1"}]},{"role":"user","content":"b"}]`,
		},
		"/v1/messages": {
			`"max_tokens":9,"messages":[{"role":"user","content":"a"}]`,
			`"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"1"}]},{"role":"user","content":"b"}]`,
		},
	} {
		for _, stream := range []string{"", `"stream":true,`} {
			t.Run(path+stream, func(t *testing.T) {
				t.Parallel()
				s := newTraffic(t)
				s.replies = [][]int32{odd(), say("2", tokenizer.End)}
				for i, turn := range turns {
					a := s.post(t, s.url+path, `{`+stream+`"model":"demo@promoted",`+turn+`}`, "Authorization", "Bearer web")
					require.Equal(t, http.StatusOK, a.status, a.body)
					require.Contains(t, a.body, []string{"1", "2"}[i])
					require.Equal(t, "demo/served-0/0/0/1", a.header.Get("X-Fulgurite-Conversation"))
					require.Equal(t, "demo@5", a.header.Get("X-Fulgurite-Version"))
					s.restart(t)
				}
				c, calls := s.calls(t, 0)
				require.Equal(t, "web", c.Key)
				require.Equal(t, 5, c.Version)
				require.Len(t, calls, 2)
				requireContinued(t, calls)
				for i, call := range calls {
					require.Equal(t, s.requests()[i].Prompt, call.Prompt)
					require.Equal(t, 5, call.Version)
				}
				require.Len(t, record.Merge(record.Calls(calls)), 1)
				s.requireConversations(t, 2)
			})
		}
	}
	t.Run("completions", func(t *testing.T) {
		t.Parallel()
		s := newTraffic(t)
		for i, stream := range []string{"", `"stream":true,`} {
			a := s.post(t, s.url+"/v1/completions", `{`+stream+`"model":"demo","prompt":"a"}`, "X-Fulgurite-Conversation", fmt.Sprint("t", i))
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Equal(t, fmt.Sprint("t", i), a.header.Get("X-Fulgurite-Conversation"))
		}
		s.requireConversations(t, 1, 1)
		_, calls := s.calls(t, 1)
		require.Equal(t, "a", text(calls[0].Prompt))
	})
}

func TestAStreamIsRecordedWithTheIDThatItsClientSaw(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	a := s.post(t, s.url+"/v1/chat/completions", `{"stream":true,"seed":7,"model":"demo","messages":[`+message("user", "a")+`]}`)
	require.Equal(t, http.StatusOK, a.status)
	id := a.header.Get("X-Request-Id")
	require.Contains(t, a.body, id)
	c, call, err := s.store.ServedReply(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 0, c.Number)
	require.Equal(t, uint64(7), call.Seed)
}

func TestNothingIsRecordedUnlessTheRunSaysSo(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	for _, header := range []string{"true", "false", "", "maybe"} {
		s.versions.recording = model.RecordNothing
		a := s.say(t, []string{message("user", "a")}, "X-Fulgurite-Consent", header, "X-Fulgurite-Conversation", "one", "Authorization", "Bearer willing")
		require.Empty(t, a.header.Get("X-Fulgurite-Conversation"))
	}
	s.requireConversations(t)
	a := s.post(t, s.url+"/v1/responses", `{"model":"demo","input":"b","previous_response_id":"resp_1"}`)
	requireRefusal(t, a, http.StatusBadRequest, "invalid_value", "previous_response_id")
}

func TestConsentDecidesWhatIsRecorded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recording   model.Recording
		key, header string
		recorded    bool
	}{
		{model.RecordAll, "web", "", true},
		{model.RecordAll, "web", "true", true},
		{model.RecordAll, "web", "false", false},
		{model.RecordAll, "willing", "false", false},
		{model.RecordConsent, "web", "", false},
		{model.RecordConsent, "web", "true", true},
		{model.RecordConsent, "willing", "", true},
		{model.RecordConsent, "willing", "false", false},
		{model.RecordConsent, "none", "", false},
		{model.RecordConsent, "none", "true", true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			s := newTraffic(t)
			s.versions.recording = c.recording
			a := s.say(t, []string{message("user", "a")}, "Authorization", "Bearer "+c.key, "X-Fulgurite-Consent", c.header)
			require.Equal(t, c.recorded, a.header.Get("X-Fulgurite-Conversation") != "")
			if c.recorded {
				s.requireConversations(t, 1)
			} else {
				s.requireConversations(t)
			}
		})
	}
	s := newTraffic(t)
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+message("user", "a")+`]}`, "X-Fulgurite-Consent", "no")
	requireRefusal(t, a, http.StatusBadRequest, "invalid_value", "X-Fulgurite-Consent")
	a = s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+message("user", "a")+`]}`, "Authorization", "Bearer broken")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	s.requireConversations(t)
}

func TestClientsSettingsAreOnRecord(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	url, hi := s.url+"/v1/chat/completions", `"model":"demo","messages":[`+message("user", "hi")+`]}`
	for _, body := range []string{`{"temperature":0.5,"top_p":0.9,"max_tokens":4096,"seed":-3,"n":2,`, `{"temperature":0,"seed":9,`, `{"top_p":1,`} {
		require.Equal(t, http.StatusOK, s.post(t, url, body+hi, "X-Fulgurite-Conversation", "x").status)
	}
	_, calls := s.calls(t, 0)
	require.Len(t, calls, 4)
	asked := map[uint64]model.DecodeRequest{}
	for _, r := range s.requests() {
		asked[r.Seed] = r
	}
	seed := int64(-3)
	want := []struct {
		seed              uint64
		temperature, topP float64
		most              int
	}{{uint64(seed), 0.5, 0.9, 4096}, {uint64(seed) + 1, 0.5, 0.9, 4096}, {9, 0, 0, 1024}, {calls[3].Seed, 1, 0, 1024}}
	seen := map[string]bool{}
	for i, w := range want {
		c := calls[i]
		if i < 2 && c.Seed != w.seed {
			c = calls[1-i] // the choices of a request are recorded in any order
		}
		require.Equal(t, w.seed, c.Seed)
		require.InDelta(t, w.temperature, c.Temperature, 0)
		require.InDelta(t, w.topP, c.TopP, 0)
		r := asked[w.seed]
		require.InDelta(t, w.temperature, r.Temperature, 0)
		require.InDelta(t, w.topP, r.TopP, 0)
		require.Equal(t, w.most, r.MaxTokens)
		require.False(t, seen[c.ID])
		seen[c.ID] = true
	}
	refused := s.post(t, url, `{"temperature":3,`+hi)
	requireRefusal(t, refused, http.StatusBadRequest, "invalid_value", "temperature")
}

// flaky is a journal that fails when it is told to.
type flaky struct {
	database
	before, after atomic.Pointer[error] // of a commit
}

func (f *flaky) AppendCall(ctx context.Context, c *record.Exchange) error {
	if err := f.before.Load(); err != nil {
		return *err
	}
	if err := f.database.AppendCall(ctx, c); err != nil {
		return err
	}
	if err := f.after.Load(); err != nil {
		return *err
	}
	return nil
}

func TestAReplyThatWasCommittedIsFoundAgainByAnotherGateway(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	f := &flaky{database: s.store}
	killed := errors.New("killed")
	s.config.Journal = f
	s.restart(t)
	body := func(messages ...string) string {
		return `{"model":"demo","messages":[` + strings.Join(messages, ",") + `]}`
	}
	dialogue := []string{message("user", "a")}
	for range 2 {
		f.after.Store(&killed) // the commit is done, and its client gets no answer
		lost := s.post(t, s.url+"/v1/chat/completions", body(dialogue...))
		require.Equal(t, http.StatusServiceUnavailable, lost.status)
		f.after.Store(nil)
		s.restart(t)
		again := s.say(t, dialogue, "X-Stainless-Retry-Count", "1")
		dialogue = append(dialogue, message("assistant", content(t, again.body)), message("user", "b"))
	}
	_, calls := s.calls(t, 0)
	requireContinued(t, calls)
	require.Len(t, s.requests(), 2)
	s.requireConversations(t, 2)
}

func TestGatewaysAtOnceRecordAllCallsOfAConversation(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	urls := []string{s.url}
	s.restart(t)
	urls = append(urls, s.url)
	const all = 12
	ids, errs := make([]string, all), make([]error, all)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			a, err := s.try(t.Context(), http.MethodPost, urls[i%2]+"/v1/chat/completions", `{"model":"demo","messages":[`+message("user", fmt.Sprint(i/4))+`]}`, "X-Fulgurite-Conversation", "x")
			if err == nil && a.status != http.StatusOK {
				err = errors.New(a.body)
			}
			ids[i], errs[i] = a.header.Get("X-Request-Id"), err
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	_, calls := s.calls(t, 0)
	require.Len(t, calls, all)
	recorded := map[string]bool{}
	for _, c := range calls {
		recorded[c.ID] = true
	}
	for _, id := range ids {
		require.True(t, recorded[id], "a client has a reply that is not on record")
	}
	s.requireConversations(t, all)
}

func TestAnUnrecordedReplyIsRefusedOrServedAsTheRunSays(t *testing.T) {
	t.Parallel()
	gone := errors.New("disk on fire")
	for _, stream := range []string{"", `"stream":true,`} {
		for _, deliver := range []bool{false, true} {
			t.Run(fmt.Sprint(stream, deliver), func(t *testing.T) {
				t.Parallel()
				core, logs := observer.New(zap.WarnLevel)
				m := metrics.New("test")
				s := newTraffic(t, func(c *gateway.Config) { c.Log, c.Metrics = zap.New(core), m })
				s.versions.deliver = deliver
				f := &flaky{database: s.store}
				f.before.Store(&gone)
				s.config.Journal = f
				s.restart(t)
				ask := func() (answer, error) {
					return s.try(t.Context(), http.MethodPost, s.url+"/v1/chat/completions", `{`+stream+`"model":"demo","messages":[`+message("user", "a")+`]}`)
				}
				for range 2 {
					a, err := ask()
					switch {
					case deliver:
						require.NoError(t, err)
						require.Equal(t, http.StatusOK, a.status, a.body)
						require.Contains(t, a.body, "stop")
					case stream == "":
						require.NoError(t, err)
						require.Equal(t, http.StatusServiceUnavailable, a.status)
						require.Contains(t, a.body, `"error"`)
					default: // it had begun
						require.Error(t, err)
						require.Contains(t, a.body, `"error"`)
					}
				}
				s.requireConversations(t, 0, 0)
				served := logs.FilterMessage("served without a record").Len()
				f.before.Store(nil)
				a, err := ask()
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, a.status)
				s.requireConversations(t, 0, 0, 1)
				require.InDelta(t, 1, counted(t, m, "recorded"), 0)
				if deliver {
					require.Equal(t, 1, served, "once a minute")
					require.InDelta(t, 2, counted(t, m, "unrecorded"), 0)
				} else {
					require.Zero(t, served)
					require.Zero(t, counted(t, m, "unrecorded"))
				}
			})
		}
	}
}

// counted returns the metric of served calls with an outcome.
func counted(t *testing.T, m *metrics.Metrics, outcome string) float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "fulgurite_served_calls_total" {
			continue
		}
		for _, one := range f.GetMetric() {
			if one.GetLabel()[0].GetValue() == outcome {
				return one.GetCounter().GetValue()
			}
		}
	}
	require.Fail(t, "no such metric")
	return 0
}

// unreachable are conversations of a database that does not answer.
type unreachable struct{ gateway.Conversations }

func (unreachable) BeginConversation(context.Context, record.Conversation, record.Terms) (record.Conversation, bool, error) {
	return record.Conversation{}, false, errors.New("database gone")
}

func TestAConversationThatCantBeginIsRefusedOrServedAsTheRunSays(t *testing.T) {
	t.Parallel()
	s := newTraffic(t, func(c *gateway.Config) { c.Conversations = unreachable{c.Conversations} })
	for path, rest := range map[string]string{"/v1/chat/completions": `"messages":[{"role":"user","content":"a"}]`, "/v1/messages": `"max_tokens":9,"messages":[{"role":"user","content":"a"}]`} {
		s.versions.deliver = false
		a := s.post(t, s.url+path, `{"model":"demo",`+rest+`}`)
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.NotEmpty(t, a.header.Get("X-Fulgurite-Fault"))
		require.Contains(t, a.body, `"error"`)
		s.versions.deliver = true
		a = s.post(t, s.url+path, `{"model":"demo",`+rest+`}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Empty(t, a.header.Get("X-Fulgurite-Conversation"))
	}
}

func TestNoUserIsOnRecordByName(t *testing.T) {
	t.Parallel()
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"demo","user":"alice@example.com","safety_identifier":"alice@example.com","messages":[{"role":"user","content":"a"}]}`,
		"/v1/responses":        `{"model":"demo","user":"alice@example.com","input":"a"}`,
		"/v1/messages":         `{"model":"demo","max_tokens":9,"Metadata":{"user_id":"alice@example.com","x":1},"messages":[{"role":"user","content":"a"}]}`,
		"/v1/completions":      `{"model":"demo","safety_identifier":"alice@example.com","User":"alice@example.com","prompt":"a"}`,
	} {
		s := newTraffic(t)
		require.Equal(t, http.StatusOK, s.post(t, s.url+path, body).status)
		require.Equal(t, http.StatusOK, s.post(t, s.url+path, body, "X-Fulgurite-User", "carol").status)
		for n, user := range []string{"alice@example.com", "carol"} {
			hash, err := s.store.HashUser(t.Context(), user)
			require.NoError(t, err)
			c, calls := s.calls(t, n)
			require.Equal(t, hash, c.User, "the header wins")
			require.NotContains(t, string(calls[0].Request)+string(calls[0].Response), "alice", path)
			require.Contains(t, string(calls[0].Request), hash)
			require.Contains(t, string(calls[0].Request), `"model":"demo"`)
		}
	}
	s := newTraffic(t)
	body := `{ "model": "demo", "user": null, "messages":[{"role":"user","content":"a"}]}`
	require.Equal(t, http.StatusOK, s.post(t, s.url+"/v1/chat/completions", body).status)
	c, calls := s.calls(t, 0)
	require.Empty(t, c.User)
	require.Equal(t, body, string(calls[0].Request), "byte by byte if it names nobody")
	long := s.post(t, s.url+"/v1/chat/completions", body, "X-Fulgurite-User", strings.Repeat("u", 257))
	requireRefusal(t, long, http.StatusBadRequest, "invalid_value", "X-Fulgurite-User")
}

func TestConversationsAreRecordedAfterTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.replies = [][]int32{odd()}
	s.say(t, []string{message("user", "a")})
	require.NoError(t, s.store.FinishRun(t.Context(), "demo", record.Completed, nil))
	s.say(t, []string{message("user", "a"), message("assistant", "1"), message("user", "b")})
	s.restart(t)
	s.say(t, []string{message("user", "new")})
	s.requireConversations(t, 2, 1)
}
