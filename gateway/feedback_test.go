package gateway_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// servingEnv is a gateway that serves versions, has serving keys and takes feedback, with a
// store of its own.
type servingEnv struct {
	*testEnv
	store *store.Store
	rows  *sql.DB
	mu    sync.Mutex
	time  time.Time
}

// operatorKey is the serving key of the process.
const operatorKey = "sk-serving-operator"

func newServingEnv(t *testing.T, configure ...func(*gateway.Config)) *servingEnv {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := store.Open(t.Context(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	rows, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rows.Close()) })
	s := &servingEnv{store: db, rows: rows, time: start}
	for _, run := range []string{"demo", "other"} {
		_, _, err = db.CreateRun(t.Context(), record.Run{Name: run, WorkflowID: run, ExecutionID: "x"})
		require.NoError(t, err)
		require.NoError(t, db.FinishRun(t.Context(), run, record.Completed, nil))
	}
	s.testEnv = newTestEnv(t, nil, append([]func(*gateway.Config){serveVersions, func(c *gateway.Config) {
		c.ServingKey, c.Keys, c.Feedback = operatorKey, store.ServingKeys{Store: db}, db
		c.Now = func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.time
		}
	}}, configure...)...)
	return s
}

// later moves the clock of the gateway.
func (s *servingEnv) later(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.time = s.time.Add(d)
}

// key makes a serving key.
func (s *servingEnv) key(t *testing.T, name string, perMinute int, scopes ...string) string {
	t.Helper()
	secret, err := s.store.CreateServingKey(t.Context(), record.ServingKey{Name: name, Scopes: scopes, PerMinute: perMinute})
	require.NoError(t, err)
	return secret
}

// record puts a conversation on record, with a reply for each id. All ids that end in the
// same letter answer the same request.
func (s *servingEnv) record(t *testing.T, run string, number int, client, name string, ids ...string) {
	t.Helper()
	_, err := s.rows.ExecContext(t.Context(), `INSERT INTO conversations (run, number, name, client, person, policy, version, pinned, experiment, candidate, redacted, begun, last)
VALUES ($1, $2, $3, $4, '', 'main', $5, 0, 0, 0, 0, 1, $6)`, run, number, name, client, 3+number, number+1)
	require.NoError(t, err)
	address, err := s.store.BeginAttempt(t.Context(), record.ConversationAddress(run, number).RolloutID, "", record.Terms{Policy: "main", Version: 3}, "")
	require.NoError(t, err)
	for seq, id := range ids {
		request := id[len(id)-1:]
		require.NoError(t, s.store.AppendCall(t.Context(), &record.Exchange{
			Call: record.Call{
				Address: address, Seq: seq, ID: id, Parent: -1, Policy: "main", Version: 3, Key: fmt.Sprintf("%s in conversation %d", request, number), Occurrence: seq,
				Prompt: []int32{int32(request[0])}, Completion: []int32{int32(seq)}, Logprobs: []float32{-0.5}, Finish: "stop",
			}, Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`),
		}))
	}
}

// say posts feedback with a key.
func (s *servingEnv) say(t *testing.T, key, body string, headers ...string) answer {
	t.Helper()
	return s.post(t, s.url+"/v1/feedback", body, append(headers, "Authorization", "Bearer "+key)...)
}

func (s *servingEnv) feedback(t *testing.T, run string, number int) []record.Feedback {
	t.Helper()
	all, err := s.store.Feedback(t.Context(), run, number)
	require.NoError(t, err)
	return all
}

func TestFeedbackOfAReplyIsRecordedOnce(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	app := s.key(t, "app", 0, record.ScopeServe, record.ScopeFeedback)
	s.record(t, "demo", 0, "app", "support", "chatcmpl-a", "chatcmpl-b")
	s.record(t, "demo", 1, "app", "", "chatcmpl-xa")
	const whole = `{"id":"k1","reply":"chatcmpl-a","reward":-0.25,"thumb":"down","corrected_text":"so","preferred_over":"chatcmpl-xa","labels":["rude","late"],"user":"ann","comment":"no"}`
	a := s.say(t, app, whole)
	require.Equal(t, http.StatusCreated, a.status, a.body)
	require.JSONEq(t, `{"id":"k1","run":"demo","conversation":"demo/served-0/0/0/1","reply":"chatcmpl-a","status":"recorded"}`, a.body)
	s.later(72 * time.Hour) // feedback comes late, and is doubled
	a = s.say(t, app, whole)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, a.body, `"status":"known"`)
	requireRefusal(t, s.say(t, app, `{"id":"k1","reply":"chatcmpl-a","thumb":"up"}`), http.StatusConflict, "conflict", "id")
	a = s.say(t, app, `{"reply":"chatcmpl-b","thumb":"up","user":"bob"}`, "Idempotency-Key", "k2", "X-Fulgurite-User", "ann")
	require.Equal(t, http.StatusCreated, a.status, a.body)
	for _, body := range []string{`{"conversation":"demo/served-0/0/0/1","reward":1}`, `{"conversation":"support","model":"demo","reward":0.5}`, `{"conversation":"support","model":"demo@3","reward":0.5}`} {
		a = s.say(t, app, body)
		require.Equal(t, http.StatusCreated, a.status, a.body)
	}

	ann, err := s.store.HashUser(t.Context(), "ann")
	require.NoError(t, err)
	all := s.feedback(t, "demo", 0)
	require.Len(t, all, 5)
	reward, corrected := -0.25, "so"
	require.Empty(t, cmp.Diff(record.Feedback{
		Run: "demo", ID: "app/k1", CallID: "chatcmpl-a", Reward: &reward, Thumb: "down", CorrectedText: &corrected, PreferredOver: "chatcmpl-xa",
		Labels: []string{"rude", "late"}, User: ann, Comment: "no", Key: "app", At: start,
	}, all[0]))
	second := all[1:]
	require.Condition(t, func() bool { return anyFeedback(second, "app/k2", ann) }, "the header wins over the body: %v", second)
	require.Empty(t, s.feedback(t, "demo", 1))
}

func anyFeedback(all []record.Feedback, id, user string) bool {
	for _, f := range all {
		if f.ID == id {
			return f.User == user
		}
	}
	return false
}

func TestFeedbackThatIsNotClearNamesTheField(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	s.record(t, "demo", 0, "", "support", "chatcmpl-a", "chatcmpl-b")
	labels := `"` + strings.Repeat(`x","`, 1) + `x"`
	for _, c := range []struct{ body, field string }{
		{`{"thumb":"up"}`, "reply"},
		{`{"reply":"chatcmpl-a"}`, "reward"},
		{`{"reply":"chatcmpl-a","reward":1.5}`, "reward"},
		{`{"reply":"chatcmpl-a","reward":-1.01}`, "reward"},
		{`{"reply":"chatcmpl-a","reward":"1"}`, "reward"},
		{`{"reply":"chatcmpl-a","thumb":"sideways"}`, "thumb"},
		{`{"reply":"chatcmpl-a","thumb":"up","reward":-1}`, "thumb"},
		{`{"reply":"chatcmpl-a","thumbs":"up"}`, "thumbs"},
		{`{"reply":"chatcmpl-a","Thumb":"up"}`, "Thumb"},
		{`{"reply":"chatcmpl-a","corrected_text":""}`, "corrected_text"},
		{`{"conversation":"support","model":"demo","corrected_text":"x"}`, "corrected_text"},
		{`{"conversation":"support","model":"demo","preferred_over":"chatcmpl-a"}`, "preferred_over"},
		{`{"conversation":"support","thumb":"up"}`, "model"},
		{`{"reply":"chatcmpl-a","model":"demo","thumb":"up"}`, "model"},
		{`{"reply":"chatcmpl-a","preferred_over":"chatcmpl-a"}`, "preferred_over"},
		{`{"reply":"chatcmpl-a","preferred_over":"chatcmpl-b"}`, "preferred_over"},
		{`{"reply":"chatcmpl-a","labels":[""]}`, "labels"},
		{`{"reply":"chatcmpl-a","labels":["a\nb"]}`, "labels"},
		{`{"reply":"chatcmpl-a","labels":[` + labels + `]}`, "labels"},
		{`{"reply":"chatcmpl-a","labels":["` + strings.Repeat("x", 65) + `"]}`, "labels"},
		{`{"reply":"chatcmpl-a","labels":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 33), ",") + `]}`, "labels"},
		{`{"reply":"chatcmpl-a","comment":"` + strings.Repeat("x", 16<<10+1) + `"}`, "comment"},
		{`{"reply":"chatcmpl-a","corrected_text":"` + strings.Repeat("x", 256<<10+1) + `"}`, "corrected_text"},
		{`{"reply":"chatcmpl-a","thumb":"up","user":"` + strings.Repeat("x", 257) + `"}`, "user"},
		{`{"reply":"` + strings.Repeat("x", 129) + `","thumb":"up"}`, "reply"},
		{`{"id":"a/b","reply":"chatcmpl-a","thumb":"up"}`, "id"},
		{`{"id":"` + strings.Repeat("x", 129) + `","reply":"chatcmpl-a","thumb":"up"}`, "id"},
	} {
		requireRefusal(t, s.say(t, operatorKey, c.body), http.StatusBadRequest, "invalid_value", c.field)
	}
	requireRefusal(t, s.say(t, operatorKey, `{"id":"a","reply":"chatcmpl-a","thumb":"up"}`, "Idempotency-Key", "b"), http.StatusBadRequest, "invalid_value", "id")
	requireRefusal(t, s.say(t, operatorKey, `{"reply":"chatcmpl-a","reward":NaN}`), http.StatusBadRequest, "invalid_json", "")
	requireRefusal(t, s.say(t, operatorKey, `[]`), http.StatusBadRequest, "invalid_body", "")
	got, err := s.try(t.Context(), http.MethodGet, s.url+"/v1/feedback", "", "Authorization", "Bearer "+operatorKey)
	require.NoError(t, err)
	requireRefusal(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "")
	require.Empty(t, s.feedback(t, "demo", 0))
}

func TestNobodyLearnsOfRepliesThatAreNotTheirs(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	app, rival := s.key(t, "app", 0, record.ScopeServe, record.ScopeFeedback), s.key(t, "rival", 0, record.ScopeServe, record.ScopeFeedback)
	collector := s.key(t, "collector", 0, record.ScopeFeedbackAny)
	s.record(t, "demo", 0, "app", "support", "chatcmpl-a", "chatcmpl-ca")
	s.record(t, "demo", 1, "rival", "support", "chatcmpl-ra")
	// What exists and is another client's is answered exactly as what does not exist.
	same := func(foreign, unknown string, code, field string) {
		t.Helper()
		a, b := s.say(t, rival, foreign), s.say(t, rival, unknown)
		requireRefusal(t, a, http.StatusNotFound, code, field)
		requireRefusal(t, b, http.StatusNotFound, code, field)
		require.Equal(t, strings.NewReplacer("chatcmpl-a", "X", "demo/served-0/0/0/1", "X").Replace(a.body), strings.NewReplacer("chatcmpl-z", "X", "demo/served-0/9/0/1", "X").Replace(b.body))
	}
	same(`{"reply":"chatcmpl-a","thumb":"up"}`, `{"reply":"chatcmpl-z","thumb":"up"}`, "reply_not_found", "reply")
	same(`{"conversation":"demo/served-0/0/0/1","thumb":"up"}`, `{"conversation":"demo/served-0/9/0/1","thumb":"up"}`, "conversation_not_found", "conversation")
	same(`{"reply":"chatcmpl-ra","preferred_over":"chatcmpl-a"}`, `{"reply":"chatcmpl-ra","preferred_over":"chatcmpl-z"}`, "reply_not_found", "preferred_over")
	require.Equal(t, http.StatusCreated, s.say(t, rival, `{"conversation":"support","model":"demo","thumb":"up"}`).status)
	require.Len(t, s.feedback(t, "demo", 1), 1, "its own conversation of the name")
	require.Empty(t, s.feedback(t, "demo", 0))

	// The same ids of feedback of two clients are two.
	require.Equal(t, http.StatusCreated, s.say(t, app, `{"id":"1","reply":"chatcmpl-a","thumb":"up"}`).status)
	require.Equal(t, http.StatusCreated, s.say(t, rival, `{"id":"1","reply":"chatcmpl-ra","thumb":"down"}`).status)
	for _, key := range []string{collector, operatorKey} {
		a := s.say(t, key, `{"reply":"chatcmpl-a","thumb":"down"}`)
		require.Equal(t, http.StatusCreated, a.status, a.body)
	}
	require.Len(t, s.feedback(t, "demo", 0), 3)
}

func TestAReplyIsJudgedInItsOwnConversation(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	s.record(t, "demo", 0, "", "", "chatcmpl-a")
	s.record(t, "other", 0, "", "", "chatcmpl-b")
	requireRefusal(t, s.say(t, operatorKey, `{"reply":"chatcmpl-a","conversation":"other/served-0/0/0/1","thumb":"up"}`), http.StatusNotFound, "reply_not_found", "reply")
	a := s.say(t, operatorKey, `{"reply":"chatcmpl-a","conversation":"demo/served-0/0/0/1","thumb":"up"}`)
	require.Equal(t, http.StatusCreated, a.status, a.body)
	require.Len(t, s.feedback(t, "demo", 0), 1)
	require.Empty(t, s.feedback(t, "other", 0))
}

func TestEachUserHasConversationsOfANameForThemselves(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	for number, user := range []string{"ann", "bob"} {
		s.record(t, "demo", number, "", fmt.Sprintf("support %d", number), "chatcmpl-a")
		hash, err := s.store.HashUser(t.Context(), user)
		require.NoError(t, err)
		_, err = s.rows.ExecContext(t.Context(), `UPDATE conversations SET person = $1, name = 'support' WHERE number = $2`, hash, number)
		require.NoError(t, err)
	}
	requireRefusal(t, s.say(t, operatorKey, `{"conversation":"support","model":"demo","thumb":"up"}`), http.StatusConflict, "ambiguous_conversation", "conversation")
	requireRefusal(t, s.say(t, operatorKey, `{"conversation":"support","model":"demo","thumb":"up","user":"eve"}`), http.StatusNotFound, "conversation_not_found", "conversation")
	require.Equal(t, http.StatusCreated, s.say(t, operatorKey, `{"conversation":"support","model":"demo","thumb":"up","user":"ann"}`).status)
	require.Len(t, s.feedback(t, "demo", 0), 1)
}

func TestFeedbackOnWhatWasRemovedIsToldSo(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	s.record(t, "demo", 0, "app", "", "chatcmpl-a")
	app := s.key(t, "app", 0, record.ScopeServe, record.ScopeFeedback)
	require.Equal(t, http.StatusCreated, s.say(t, app, `{"reply":"chatcmpl-a","thumb":"up"}`).status)
	require.NoError(t, s.store.RemoveConversation(t.Context(), "demo", 0))
	requireRefusal(t, s.say(t, operatorKey, `{"conversation":"demo/served-0/0/0/1","thumb":"up"}`), http.StatusGone, "removed", "")
	requireRefusal(t, s.say(t, app, `{"conversation":"demo/served-0/0/0/1","thumb":"up"}`), http.StatusNotFound, "conversation_not_found", "conversation")
	a := s.say(t, app, `{"reply":"chatcmpl-a","thumb":"up"}`)
	requireRefusal(t, a, http.StatusNotFound, "reply_not_found", "reply")
	require.Contains(t, a.body, "or was removed since")
	require.Empty(t, s.feedback(t, "demo", 0))
	requireRefusal(t, s.say(t, app, `{"conversation":"demo/served-0/1/0/1","thumb":"up"}`), http.StatusNotFound, "conversation_not_found", "conversation")
}

func TestContradictoryPairsOfOneUserAreRefused(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	s.record(t, "demo", 0, "", "", "chatcmpl-1a", "chatcmpl-2a", "chatcmpl-b")
	require.Equal(t, http.StatusCreated, s.say(t, operatorKey, `{"reply":"chatcmpl-1a","preferred_over":"chatcmpl-2a","user":"ann"}`).status)
	requireRefusal(t, s.say(t, operatorKey, `{"reply":"chatcmpl-2a","preferred_over":"chatcmpl-1a","user":"ann"}`), http.StatusConflict, "contradictory_feedback", "preferred_over")
	require.Equal(t, http.StatusCreated, s.say(t, operatorKey, `{"reply":"chatcmpl-2a","preferred_over":"chatcmpl-1a","user":"bob"}`).status, "people differ")
	require.Equal(t, http.StatusCreated, s.say(t, operatorKey, `{"reply":"chatcmpl-2a","preferred_over":"chatcmpl-1a"}`).status, "nobody knows whether it is the same person")
}

// unreadBody is a body of so many bytes that counts how many were read.
type unreadBody struct {
	left int
	read atomic.Int64 // also after the reply, by what sends the request
}

func (e *unreadBody) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	for i := range n {
		b[i] = ' '
	}
	e.left -= n
	e.read.Add(int64(n))
	return n, nil
}

func TestLargeFeedbackIsRefusedUnread(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	for _, length := range []int64{10 << 20, -1} { // announced, and in chunks
		body := &unreadBody{left: 10 << 20}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/feedback", body)
		require.NoError(t, err)
		request.ContentLength = length
		request.Header.Set("Authorization", "Bearer "+operatorKey)
		reply, err := http.DefaultClient.Do(request)
		if err == nil { // otherwise the connection was closed while the rest was sent
			require.Equal(t, http.StatusRequestEntityTooLarge, reply.StatusCode)
			require.NoError(t, reply.Body.Close())
		}
		require.Less(t, body.read.Load(), int64(9<<20), "the rest is not read")
	}
}

func TestAServingKeyOpensItsScopes(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	s.record(t, "demo", 0, "app", "", "chatcmpl-a")
	const hi = `{"model":"demo@3","messages":[{"role":"user","content":"hi"}]}`
	ask := func(key string) answer {
		return s.post(t, s.url+"/v1/chat/completions", hi, "Authorization", "Bearer "+key)
	}
	app, judge := s.key(t, "app", 0, record.ScopeServe), s.key(t, "judge", 0, record.ScopeFeedbackAny)
	require.Equal(t, http.StatusOK, ask(app).status)
	a := s.say(t, app, `{"reply":"chatcmpl-a","thumb":"up"}`)
	requireRefusal(t, a, http.StatusForbidden, "missing_scope", "")
	require.Contains(t, a.body, "has not the scope feedback")
	a = ask(judge)
	requireRefusal(t, a, http.StatusForbidden, "missing_scope", "")
	require.Contains(t, a.body, "has not the scope serve")
	require.Equal(t, http.StatusCreated, s.say(t, judge, `{"reply":"chatcmpl-a","thumb":"up"}`).status)
	require.Equal(t, http.StatusOK, ask(operatorKey).status)

	forged := app[:len(app)-1] + map[bool]string{true: "b", false: "a"}[strings.HasSuffix(app, "a")]
	for _, key := range []string{"", "fulgurite-", "app", forged} {
		requireRefusal(t, ask(key), http.StatusUnauthorized, "invalid_api_key", "")
		requireRefusal(t, s.say(t, key, `{"reply":"chatcmpl-a","thumb":"up"}`), http.StatusUnauthorized, "invalid_api_key", "")
	}

	require.NoError(t, s.store.RevokeServingKey(t.Context(), "app"))
	s.later(time.Second)
	requireRefusal(t, ask(app), http.StatusUnauthorized, "invalid_api_key", "")
}

func TestAKeyIsLookedForOnceASecond(t *testing.T) {
	t.Parallel()
	counted := &countedKeys{}
	s := newServingEnv(t, func(c *gateway.Config) { counted.Keys = c.Keys; c.Keys = counted })
	app := s.key(t, "app", 0, record.ScopeServe)
	models := func(key string) int {
		a, err := s.try(t.Context(), http.MethodGet, s.url+"/v1/models", "", "Authorization", "Bearer "+key)
		require.NoError(t, err)
		return a.status
	}
	for range 5 {
		require.Equal(t, http.StatusOK, models(app))
		require.Equal(t, http.StatusUnauthorized, models("wrong"))
	}
	require.Equal(t, 2, counted.n)
	s.later(time.Second)
	require.Equal(t, http.StatusOK, models(app))
	require.Equal(t, 3, counted.n)
	s.later(-time.Hour) // a clock that was set back keeps nothing
	require.NoError(t, s.store.RevokeServingKey(t.Context(), "app"))
	require.Equal(t, http.StatusUnauthorized, models(app))
}

// countedKeys counts how often keys are looked for.
type countedKeys struct {
	gateway.Keys
	mu sync.Mutex
	n  int
}

func (k *countedKeys) Key(ctx context.Context, presented string) (record.ServingKey, bool, error) {
	k.mu.Lock()
	k.n++
	k.mu.Unlock()
	return k.Keys.Key(ctx, presented)
}

func TestAFloodOfAKeyIsToldWhenToComeAgain(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t)
	s.record(t, "demo", 0, "app", "", "chatcmpl-a")
	app := s.key(t, "app", 4, record.ScopeServe, record.ScopeFeedback)
	other := s.key(t, "other", 4, record.ScopeServe, record.ScopeFeedback)
	var wait sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int{}
	for i := range 12 {
		wait.Go(func() {
			a, err := s.try(t.Context(), http.MethodPost, s.url+"/v1/feedback", fmt.Sprintf(`{"id":"%d","reply":"chatcmpl-a","thumb":"up"}`, i), "Authorization", "Bearer "+app)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			seen[a.status]++
			if a.status == http.StatusTooManyRequests {
				assert.Equal(t, "15", a.header.Get("Retry-After"))
				assert.Empty(t, a.header.Get("X-Should-Retry"), "clients may try again")
			}
		})
	}
	wait.Wait()
	require.Equal(t, map[int]int{http.StatusCreated: 4, http.StatusTooManyRequests: 8}, seen)
	require.Len(t, s.feedback(t, "demo", 0), 4)
	require.NotEqual(t, http.StatusTooManyRequests, s.say(t, other, `{}`).status, "another key has its own limit")
	s.later(15 * time.Second)
	require.Equal(t, http.StatusCreated, s.say(t, app, `{"id":"late","reply":"chatcmpl-a","thumb":"up"}`).status)
	require.Equal(t, http.StatusTooManyRequests, s.say(t, app, `{"id":"later","reply":"chatcmpl-a","thumb":"up"}`).status)
	s.later(-time.Hour)
	require.Equal(t, http.StatusTooManyRequests, s.say(t, app, `{"id":"later","reply":"chatcmpl-a","thumb":"up"}`).status, "a clock that was set back gives nothing")
	s.later(time.Hour)
	require.Equal(t, http.StatusCreated, s.say(t, app, `{"id":"later","reply":"chatcmpl-a","thumb":"up"}`).status)
}

func TestWithoutAServingKeyEverybodyIsAdmitted(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t, func(c *gateway.Config) { c.ServingKey = "" })
	app := s.key(t, "app", 0, record.ScopeServe)
	s.record(t, "demo", 0, "app", "", "chatcmpl-a")
	s.record(t, "demo", 1, "", "", "chatcmpl-b")
	for _, key := range []string{"none", "fulgurite-none"} { // clients have to present something
		require.Equal(t, http.StatusCreated, s.say(t, key, `{"reply":"chatcmpl-b","thumb":"up"}`).status)
	}
	requireRefusal(t, s.say(t, app, `{"reply":"chatcmpl-a","thumb":"up"}`), http.StatusForbidden, "missing_scope", "")
	require.NoError(t, s.store.RevokeServingKey(t.Context(), "app"))
	s.later(time.Second)
	requireRefusal(t, s.say(t, app, `{"reply":"chatcmpl-b","thumb":"up"}`), http.StatusUnauthorized, "invalid_api_key", "")
}

func TestAClosedGatewayAnswersKeys(t *testing.T) {
	t.Parallel()
	s := newServingEnv(t, func(c *gateway.Config) { c.ServingKey, c.Closed = "", "no key" })
	app := s.key(t, "app", 0, record.ScopeServe)
	const hi = `{"model":"demo@3","messages":[{"role":"user","content":"hi"}]}`
	require.Equal(t, http.StatusOK, s.post(t, s.url+"/v1/chat/completions", hi, "Authorization", "Bearer "+app).status)
	requireRefusal(t, s.post(t, s.url+"/v1/chat/completions", hi, "Authorization", "Bearer none"), http.StatusForbidden, "serving_closed", "")
}

func TestAGatewayWithoutAStoreTakesNoFeedback(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	requireRefusal(t, s.post(t, s.url+"/v1/feedback", `{"reply":"chatcmpl-a","thumb":"up"}`), http.StatusNotFound, "unknown_url", "")
}
