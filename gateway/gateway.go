package gateway

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Journal records what attempts do. Its errors wrap record.ErrNotFound,
// record.ErrFenced and record.ErrConflict; any other is taken for a fault of ours.
type Journal interface {
	conversation.Journal
	PutReward(ctx context.Context, reward record.Reward) error
	PutEvent(ctx context.Context, event record.Event) error
	// PutSpans records each span once. The attempt may be over.
	PutSpans(ctx context.Context, address record.Address, spans []record.Span) error
	// AddRefusal counts a refused call or reward. The attempt may be over. If AddRefusal fails, the
	// call is refused all the same.
	AddRefusal(ctx context.Context, refusal record.Refusal) error
}

// Versions finds the versions that can be served outside attempts.
type Versions interface {
	// Resolve reads "RUN@promoted", "RUN@12" or "RUN:POLICY@12"; the error wraps
	// record.ErrNotFound if there is no such version, and model.ErrJoint if it has several
	// policies.
	Resolve(ctx context.Context, name string) (model.Served, error)
	// List returns the names that clients are meant to use. Resolve finds each of them.
	List(ctx context.Context) ([]string, error)
}

// Config is the configuration of a gateway. Journal and Sampler are required.
type Config struct {
	Journal Journal
	Sampler model.Sampler
	// Versions are served at /v1; nil serves none.
	Versions Versions
	// ServingKey must be presented at /v1; empty lets everyone in, unless Closed is set.
	ServingKey string
	// Keys finds the serving keys of clients, which open /v1 in addition to ServingKey, each
	// within its scopes and limit. Nil finds none.
	Keys Keys
	// Feedback keeps what people say of recorded replies; nil takes no feedback.
	Feedback Feedback
	// Closed says why /v1 answers nobody while there is no ServingKey, and what to do about
	// it, in the words of the process's command line; empty, /v1 is open. Attempts have keys
	// of their own, and are answered either way.
	Closed string
	// Codecs finds a codec by its name in a spec; nil is dialog.Named.
	Codecs func(name string) (dialog.Codec, error)
	// Prompts finds prompts by their digest. It is needed if attempts have prompts in their
	// terms, or runs whose versions are served have prompts.
	Prompts func(digest string) (prompts.Set, error)
	// Attempts bounds how many attempts without a request in flight are kept in memory; 0
	// is 4096. An attempt that is needed again is read from the journal.
	Attempts int
	// Memory is the most bytes that attempts in memory may take; above it, attempts
	// without a request in flight are dropped. 0 is 1 GiB, or half of Go's memory limit
	// (GOMEMLIMIT) if that is less. Recorded conversations with versions may take a quarter
	// of it in addition.
	Memory int64
	// Idle is how long an attempt without a request in flight is kept; 0 is 10 minutes.
	Idle time.Duration
	// BodyBytes is the most bytes of a request; 0 is 32 MiB.
	BodyBytes int64
	// Keepalive is how long a stream may be silent before the gateway writes a keepalive;
	// 0 is 10 seconds.
	Keepalive time.Duration
	// Conversations records conversations with versions, as their runs say; nil records none.
	// The calls of a conversation are in Journal.
	Conversations Conversations
	// Redact rewrites a text by the program of a command before it is recorded. It is needed if
	// runs have a redactor: without it, nothing of them can be recorded.
	Redact func(ctx context.Context, command []string, timeout time.Duration, text string) (string, error)
	// Experiments decides which new conversations the candidate of a run answers; nil gives it
	// none.
	Experiments Experiments
	// Embeddings is the server to which requests for embeddings are passed on.
	Embeddings Embeddings
	// NoReplay samples calls again that an earlier attempt recorded, and does not answer
	// retries from the record. It defeats the purpose of the journal. It exists so that
	// tests can show that they detect this.
	NoReplay bool
	// Metrics counts the calls that are being sampled; nil counts none.
	Metrics *metrics.Metrics
	// Now is the clock of records and logs; nil is time.Now.
	Now func() time.Time
	// Log receives faults of ours; nil drops them.
	Log *zap.Logger
}

// Gateway answers model calls. It is safe for concurrent use and starts no
// goroutine that outlives its request.
type Gateway struct {
	config        Config
	mux           *http.ServeMux
	calls         *conversation.Maker
	conversations *table
	served        *table       // conversations with served versions
	unrecorded    atomic.Int64 // when an unrecorded reply was last logged, in seconds since 1970
	keys          keyCache
	limits        rateLimits
}

var _ http.Handler = (*Gateway)(nil)

// New returns a gateway.
func New(config Config) *Gateway {
	if config.Codecs == nil {
		config.Codecs = dialog.Named
	}
	if config.Attempts == 0 {
		config.Attempts = 4096
	}
	if config.Memory == 0 {
		config.Memory = min(1<<30, debug.SetMemoryLimit(-1)/2)
	}
	if config.Idle == 0 {
		config.Idle = 10 * time.Minute
	}
	if config.BodyBytes == 0 {
		config.BodyBytes = maxBody
	}
	if config.Keepalive == 0 {
		config.Keepalive = 10 * time.Second
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	if config.Embeddings.Client == nil {
		config.Embeddings.Client = newEmbeddingsClient()
	}
	calls := conversation.New(conversation.Config{
		Journal: config.Journal, Sampler: config.Sampler, Codecs: config.Codecs, Prompts: config.Prompts, Metrics: config.Metrics, NoReplay: config.NoReplay, Now: config.Now, Log: config.Log,
	})
	g := &Gateway{
		config: config, calls: calls, mux: http.NewServeMux(),
		conversations: newTable(config.Attempts, config.Memory, config.Idle, calls.Open),
		served:        newTable(config.Attempts, config.Memory/4, config.Idle, calls.Open),
		keys:          keyCache{keys: config.Keys},
	}
	g.routes()
	return g
}

// routes registers all routes. An error is written in the shape of the API that the route
// belongs to, if it belongs to one.
func (g *Gateway) routes() {
	apis := []struct {
		api  wire.API
		path string
	}{
		{wire.Chat, "/v1/chat/completions"}, {wire.Completions, "/v1/completions"},
		{wire.Responses, "/v1/responses"}, {wire.Messages, "/v1/messages"},
	}
	const attempt = "/r/{run}/{step}/{task}/{sample}/{attempt}"
	for _, base := range []string{attempt, attempt + "/n/{agent}"} {
		for _, one := range apis {
			g.route("POST "+base+one.path, one.api, g.inCall(g.ask(one.api)))
			g.route(base+one.path, one.api, g.inCall(outOfAttempt(postsOnly)))
		}
		g.route("POST "+base+"/v1/messages/count_tokens", wire.Messages, g.inCall(whileOpen(g.countTokens)))
		g.route("GET "+base+"/v1/responses/{id}", wire.Responses, g.inCall(whileOpen(recall((*conversation.Call).Body))))
		g.route("DELETE "+base+"/v1/responses/{id}", wire.Responses, g.inCall(whileOpen(recall(forget))))
		g.route("GET "+base+"/v1/responses/{id}/input_items", wire.Responses, g.inCall(whileOpen(recall((*conversation.Call).InputItems))))
		g.route("GET "+base+"/v1/models", "", g.inCall(whileOpen(g.attemptModels)))
		g.route("GET "+base+"/v1/models/{id...}", "", g.inCall(whileOpen(g.attemptModel)))
		g.route("POST "+base+"/v1/embeddings", "", g.inCall(whileOpen(outOfAttempt(g.embeddings))))
		g.route("GET "+base+"/prompts/{name}", "", g.inCall(whileOpen(prompt)))
		g.route("GET "+base+"/v1/prompts/{name}", "", g.inCall(whileOpen(prompt))) // below what clients know as the base URL
		g.route("POST "+base+"/rewards", "", g.inAttempt(g.reward))
		g.route("POST "+base+"/events", "", g.inAttempt(g.event))
		g.exports("POST "+base+"/v1/traces", g.inAttempt(g.spans))
		g.exports("POST "+base+"/otlp/v1/traces", g.inAttempt(g.spans))
		g.route(base+"/v1/messages/count_tokens", wire.Messages, g.inCall(outOfAttempt(postsOnly)))
		g.route(base+"/v1/embeddings", "", g.inCall(outOfAttempt(postsOnly)))
		g.route(base+"/{rest...}", "", g.inCall(outOfAttempt(unknownEndpoint)))
	}
	for _, base := range []string{"", "/n/{agent}"} {
		for _, one := range apis {
			g.route("POST "+base+one.path, one.api, g.serving(g.serve(one.api)))
			g.route(base+one.path, one.api, g.serving(postsOnly))
		}
		g.route("POST "+base+"/v1/messages/count_tokens", wire.Messages, g.serving(g.serveCount))
		g.route("POST "+base+"/v1/embeddings", "", g.serving(g.embeddings))
		g.route("GET "+base+"/v1/models", "", g.serving(g.models))
		g.route("GET "+base+"/v1/models/{id...}", "", g.serving(g.model))
		g.route("GET "+base+"/prompts/{name}", "", g.serving(g.servedPrompt))
		g.route("GET "+base+"/v1/prompts/{name}", "", g.serving(g.servedPrompt))
		g.route(base+"/v1/messages/count_tokens", wire.Messages, g.serving(postsOnly))
		g.route(base+"/v1/embeddings", "", g.serving(postsOnly))
		g.route("POST "+base+"/v1/feedback", "", g.judging(g.feedback))
		g.route(base+"/v1/feedback", "", g.judging(postsOnly))
		g.exports("POST "+base+"/v1/logs", g.judging(g.logs))
		g.route(base+"/v1/logs", "", g.judging(postsOnly))
	}
	g.exports("POST /v1/traces", g.spansOfNamed)
	g.route("GET /healthz", "", func(w http.ResponseWriter, _ *http.Request) error {
		return write(w, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	g.route("/", "", unknownEndpoint)
}

// Stats counts what a gateway did since it was made.
type Stats = conversation.Stats

// Stats returns the counts of this moment.
func (g *Gateway) Stats() Stats { return g.calls.Stats() }

// ServeHTTP implements http.Handler. A path with empty segments is served, not redirected:
// many clients don't follow a redirect with a body.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u := protocol.WithoutEmptySegments(r.URL); u != r.URL {
		r = r.WithContext(r.Context()) // a copy
		r.URL = u
	}
	g.mux.ServeHTTP(w, r)
}

// route adds a handler. It explains the handler's errors in the shape of api, or if api
// is empty, of the API that the client speaks.
func (g *Gateway) route(pattern string, api wire.API, handle func(http.ResponseWriter, *http.Request) error) {
	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		shape := api
		if shape == "" {
			shape = shapeOf(r)
		}
		tracked := &trackedWriter{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				g.answerPanic(tracked, r, shape, p)
			}
		}()
		if err := handle(tracked, r); err != nil {
			g.answerError(tracked, r, shape, err)
		}
	})
}

func (g *Gateway) answerError(w http.ResponseWriter, r *http.Request, shape wire.API, err error) {
	f := explain(shape, err)
	g.logFault(r, f, err)
	var call *callError
	if errors.As(err, &call) && counts(r, f) {
		defer g.countRefusal(r, call.conversation.Address(), f)()
	}
	if errors.Is(err, errBrokenOff) {
		panic(http.ErrAbortHandler)
	}
	refuse(w, shape, f)
}

// answerPanic reports a fault of ours to the client. If the reply has begun, it breaks
// the connection.
func (g *Gateway) answerPanic(w *trackedWriter, r *http.Request, shape wire.API, p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // it is the value that was thrown
		panic(p)
	}
	g.config.Log.Error("handler panicked", zap.String("path", r.URL.Path), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	refuse(w, shape, fault(fmt.Errorf("panic: %v", p)))
}

// trackedWriter records whether a reply has begun.
type trackedWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *trackedWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackedWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b) //nolint:wrapcheck // a writer adds nothing
}

// Unwrap lets http.ResponseController reach the connection.
func (w *trackedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// postsOnly refuses other methods at an endpoint.
func postsOnly(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Allow", http.MethodPost)
	return &wire.Failure{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Message: fmt.Sprintf("%s %s is not served here: use POST", r.Method, endpoint(r)),
	}
}

// unknownEndpoint refuses paths that are not served.
func unknownEndpoint(_ http.ResponseWriter, r *http.Request) error {
	at := endpoint(r)
	if !strings.HasPrefix(at, "/v1/") {
		return unknownURL(nil, "%s %s is not served here: base URLs of OpenAI's clients end in /v1, as OPENAI_BASE_URL does, and those of Anthropic's before it", r.Method, at)
	}
	return unknownURL(nil, "%s %s is not served here", r.Method, at)
}

// endpoint returns the path of a request below the base URL of its attempt, or of what
// serves versions, and below the agent's name.
func endpoint(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.Path, "/r/")
	if ok {
		for range 5 { // run, step, task, sample, attempt
			_, rest, _ = strings.Cut(rest, "/")
		}
	} else {
		rest = strings.TrimPrefix(rest, "/")
	}
	if named, ok := strings.CutPrefix(rest, "n/"); ok {
		_, rest, _ = strings.Cut(named, "/")
	}
	return "/" + rest
}

// maxAgent is the most bytes of an agent's name in a path.
const maxAgent = 128

// checkAgent refuses a name of an agent in the path that is too long.
func checkAgent(r *http.Request) error {
	if len(r.PathValue("agent")) > maxAgent {
		return unknownURL(nil, "the agent's name has more than %d bytes", maxAgent)
	}
	return nil
}

// attemptHandler answers a request below the path of an attempt.
type attemptHandler func(http.ResponseWriter, *http.Request, *conversation.Conversation) error

// inAttempt admits requests that present the key of the attempt in their path.
func (g *Gateway) inAttempt(handle attemptHandler) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var parts []string
		for _, name := range []string{"run", "step", "task", "sample", "attempt"} {
			parts = append(parts, r.PathValue(name))
		}
		address, err := record.ParseAddress(strings.Join(parts, "/"))
		if err != nil {
			return unknownURL(err, "no attempt has this URL: use the base URL that the agent is given (OPENAI_BASE_URL)")
		}
		if err := checkAgent(r); err != nil {
			return err
		}
		if address.Kind == record.Served {
			return unknownURL(nil, "a conversation with a served version has no URL of its own: use the base URL /v1, and the header %s", protocol.ConversationHeader)
		}
		key := protocol.PresentedKey(r)
		if key == "" {
			return missingKey()
		}
		c := g.conversations.enter(address, g.config.Now())
		defer func() { g.conversations.leave(address, g.config.Now(), !c.Exists()) }()
		if err := c.Enter(r.Context(), key); err != nil {
			return err
		}
		g.conversations.weigh(address, g.config.Now())
		return handle(w, r, c)
	}
}

// whileOpen refuses requests after the end of the attempt, when its key has expired. It is for
// handlers that write nothing to the journal, which otherwise refuses.
func whileOpen(handle attemptHandler) attemptHandler {
	return func(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
		end, err := c.End(r.Context())
		if err != nil {
			return err
		}
		if !end.IsZero() {
			return fmt.Errorf("attempt %s: %w", c.Address(), record.ErrFenced)
		}
		return handle(w, r, c)
	}
}

// outOfAttempt adapts a handler that does not depend on the attempt.
func outOfAttempt(handle func(http.ResponseWriter, *http.Request) error) attemptHandler {
	return func(w http.ResponseWriter, r *http.Request, _ *conversation.Conversation) error { return handle(w, r) }
}

func missingKey() *wire.Failure {
	return &wire.Failure{
		Status: http.StatusUnauthorized, Code: protocol.CodeInvalidKey,
		Message: "no valid API key: send it as Authorization: Bearer KEY, or as X-Api-Key",
	}
}

// wrongKey refuses a key that does not belong to the attempt.
func wrongKey() *wire.Failure {
	return &wire.Failure{
		Status: http.StatusUnauthorized, Code: protocol.CodeInvalidKey,
		Message: "the API key is not that of this attempt: use the one that the agent is given (OPENAI_API_KEY)",
	}
}

// table holds the conversations in memory. It drops the least recently used ones when they
// are too many, take too much memory, or have been idle for long. It never drops one with
// a request in flight, because a second copy of it would count calls separately.
type table struct {
	limit  int
	memory int64 // the most bytes that conversations may take
	idle   time.Duration
	open   func(record.Address) *conversation.Conversation

	mu      sync.Mutex
	entries map[record.Address]*list.Element
	recent  *list.List // of *entry, most recently used in front
	weight  int64      // of all entries
}

type entry struct {
	conversation *conversation.Conversation
	users        int
	used         time.Time
	weight       int64 // as it was when a request last began or ended
}

func newTable(limit int, memory int64, idle time.Duration, open func(record.Address) *conversation.Conversation) *table {
	return &table{limit: limit, memory: memory, idle: idle, open: open, entries: map[record.Address]*list.Element{}, recent: list.New()}
}

// enter returns the conversation, which stays in memory until leave has been called as often
// as enter.
func (t *table) enter(address record.Address, now time.Time) *conversation.Conversation {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[address]
	if !ok {
		e = t.recent.PushFront(&entry{conversation: t.open(address)})
		t.entries[address] = e
	}
	p := e.Value.(*entry)
	p.users++
	p.used = now
	t.recent.MoveToFront(e)
	t.sweep(now)
	return p.conversation
}

// weigh makes room for a conversation that was read from the journal.
func (t *table) weigh(address record.Address, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update(t.entries[address].Value.(*entry))
	t.sweep(now)
}

func (t *table) update(p *entry) {
	t.weight -= p.weight
	p.weight = p.conversation.Weight()
	t.weight += p.weight
}

// leave ends what enter began. With forget, it drops the conversation if no request is in
// flight any more.
func (t *table) leave(address record.Address, now time.Time, forget bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[address]
	p := e.Value.(*entry)
	p.users--
	p.used = now
	t.update(p)
	if forget && p.users == 0 {
		t.drop(e)
	}
	t.sweep(now)
}

func (t *table) sweep(now time.Time) {
	for e := t.recent.Back(); e != nil; {
		p, before := e.Value.(*entry), e.Prev()
		if len(t.entries) <= t.limit && t.weight <= t.memory && now.Sub(p.used) <= t.idle {
			return
		}
		if p.users == 0 {
			t.drop(e)
		}
		e = before
	}
}

func (t *table) drop(e *list.Element) {
	p := e.Value.(*entry)
	t.weight -= p.weight
	delete(t.entries, p.conversation.Address())
	t.recent.Remove(e)
}
