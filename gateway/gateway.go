package gateway

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Journal records what attempts do. Its errors wrap trace.ErrNotFound,
// trace.ErrFenced and trace.ErrConflict; any other is taken for a fault of ours.
type Journal interface {
	conversation.Journal
	PutReward(ctx context.Context, reward trace.Reward) error
	PutEvent(ctx context.Context, event trace.Event) error
	// PutSpans records each span once. The attempt may be over.
	PutSpans(ctx context.Context, address trace.Address, spans []trace.Span) error
	// AddRefusal counts a refused call or reward. The attempt may be over. If AddRefusal fails, the
	// call is refused all the same.
	AddRefusal(ctx context.Context, refusal trace.Refusal) error
}

// Versions finds the versions that can be served outside attempts.
type Versions interface {
	// Resolve reads "RUN@promoted" or "RUN@12"; the error wraps
	// trace.ErrNotFound if there is no such version.
	Resolve(ctx context.Context, name string) (version model.VersionID, codec string, err error)
	// List returns the names that clients are meant to use. Resolve finds each of them.
	List(ctx context.Context) ([]string, error)
}

// Config is the configuration of a gateway. Journal and Sampler are required.
type Config struct {
	Journal Journal
	Sampler model.Sampler
	// Versions are served at /v1; nil serves none.
	Versions Versions
	// ServingKey must be presented at /v1; empty lets everyone in.
	ServingKey string
	// Codecs finds a codec by its name in a spec; nil is dialog.Named.
	Codecs func(name string) (dialog.Codec, error)
	// Attempts bounds how many attempts without a request in flight are kept in memory; 0
	// is 4096. An attempt that is needed again is read from the journal.
	Attempts int
	// Memory is the most bytes that attempts in memory may take; above it, attempts
	// without a request in flight are dropped. 0 is 1 GiB, or half of Go's memory limit
	// (GOMEMLIMIT) if that is less.
	Memory int64
	// Idle is how long an attempt without a request in flight is kept; 0 is 10 minutes.
	Idle time.Duration
	// BodyBytes is the most bytes of a request; 0 is 32 MiB.
	BodyBytes int64
	// Keepalive is how long a stream may be silent before the gateway writes a keepalive;
	// 0 is 10 seconds.
	Keepalive time.Duration
	// Embeddings is the server to which requests for embeddings are passed on.
	Embeddings Embeddings
	// NoReplay samples calls again that an earlier attempt recorded, and does not answer
	// retries from the record. It defeats the purpose of the journal. It exists so that
	// tests can show that they detect this.
	NoReplay bool
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
		Journal: config.Journal, Sampler: config.Sampler, Codecs: config.Codecs, NoReplay: config.NoReplay, Now: config.Now, Log: config.Log,
	})
	g := &Gateway{
		config: config, calls: calls, mux: http.NewServeMux(),
		conversations: newTable(config.Attempts, config.Memory, config.Idle, calls.Open),
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
		g.route("POST "+base+"/v1/messages/count_tokens", wire.Messages, g.inCall(g.countTokens))
		g.route("GET "+base+"/v1/responses/{id}", wire.Responses, g.inCall(recall((*conversation.Call).Body)))
		g.route("DELETE "+base+"/v1/responses/{id}", wire.Responses, g.inCall(recall(forget)))
		g.route("GET "+base+"/v1/responses/{id}/input_items", wire.Responses, g.inCall(recall((*conversation.Call).InputItems)))
		g.route("GET "+base+"/v1/models", "", g.inCall(g.attemptModels))
		g.route("GET "+base+"/v1/models/{id...}", "", g.inCall(g.attemptModel))
		g.route("POST "+base+"/v1/embeddings", "", g.inCall(outOfAttempt(g.embeddings)))
		g.route("POST "+base+"/rewards", "", g.inAttempt(g.reward))
		g.route("POST "+base+"/events", "", g.inAttempt(g.event))
		g.exports("POST "+base+"/v1/traces", g.inAttempt(g.spans))
		g.exports("POST "+base+"/otlp/v1/traces", g.inAttempt(g.spans))
		g.route(base+"/v1/messages/count_tokens", wire.Messages, g.inCall(outOfAttempt(postsOnly)))
		g.route(base+"/v1/embeddings", "", g.inCall(outOfAttempt(postsOnly)))
		g.route(base+"/{rest...}", "", g.inCall(outOfAttempt(unknownEndpoint)))
	}
	for _, one := range apis {
		g.route("POST "+one.path, one.api, g.serving(g.serve(one.api)))
		g.route(one.path, one.api, g.serving(postsOnly))
	}
	g.route("POST /v1/messages/count_tokens", wire.Messages, g.serving(g.serveCount))
	g.route("POST /v1/embeddings", "", g.serving(g.embeddings))
	g.route("GET /v1/models", "", g.serving(g.models))
	g.route("GET /v1/models/{id...}", "", g.serving(g.model))
	g.exports("POST /v1/traces", g.spansOfNamed)
	g.route("GET /healthz", "", func(w http.ResponseWriter, _ *http.Request) error {
		return write(w, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	g.route("/v1/messages/count_tokens", wire.Messages, g.serving(postsOnly))
	g.route("/v1/embeddings", "", g.serving(postsOnly))
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
