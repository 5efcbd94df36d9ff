package gateway

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// Journal keeps what attempts do. Its errors wrap trace.ErrNotFound,
// trace.ErrFenced and trace.ErrConflict; any other is taken for a fault of ours.
type Journal interface {
	Attempt(ctx context.Context, address trace.Address) (trace.Attempt, error)
	// AppendCall returns once the call is committed.
	AppendCall(ctx context.Context, call *trace.Call) error
	// Calls lists an attempt's calls by Seq.
	Calls(ctx context.Context, address trace.Address) ([]trace.Call, error)
	// EarlierCalls lists the calls that attempts before address sampled at the same
	// rollout, attempt after attempt, each by Seq.
	EarlierCalls(ctx context.Context, address trace.Address) ([]trace.Call, error)
	PutReward(ctx context.Context, reward trace.Reward) error
	PutEvent(ctx context.Context, event trace.Event) error
}

// Versions names what can be served outside attempts.
type Versions interface {
	// Resolve reads "RUN@promoted" or "RUN@12"; the error wraps
	// trace.ErrNotFound if there is no such version.
	Resolve(ctx context.Context, name string) (version model.VersionID, codec string, err error)
	// List gives the names that Resolve would find and people would use.
	List(ctx context.Context) ([]string, error)
}

// Config is what a gateway works with. Journal and Sampler are required.
type Config struct {
	Journal Journal
	Sampler model.Sampler
	// Versions are served at /v1; nil serves none.
	Versions Versions
	// ServingKey must be presented at /v1; empty lets everyone in.
	ServingKey string
	// Codecs finds a codec by its name in a spec; nil is dialog.Named.
	Codecs func(name string) (dialog.Codec, error)
	// Attempts bounds how many attempts without a request in flight are kept in
	// memory; 0 is 4096. One that is needed again is read from the journal.
	Attempts int
	// Idle is how long such an attempt is kept; 0 is 10 minutes.
	Idle time.Duration
	// NoReplay samples calls again that an earlier attempt recorded, and does not
	// answer retries from the record. It breaks what the journal is for and exists
	// to show that tests notice.
	NoReplay bool
	// Now is the clock of records and logs; nil is time.Now.
	Now func() time.Time
	// Log gets faults of ours; nil drops them.
	Log *zap.Logger
}

// Gateway answers model calls. It is safe for concurrent use and starts no
// goroutine that outlives its request.
type Gateway struct {
	config   Config
	attempts *table
	mux      *http.ServeMux
	count    counters
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
	if config.Idle == 0 {
		config.Idle = 10 * time.Minute
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	g := &Gateway{config: config, attempts: newTable(config.Attempts, config.Idle), mux: http.NewServeMux()}
	const attempt = "/r/{run}/{step}/{task}/{sample}/{attempt}"
	for _, base := range []string{attempt, attempt + "/n/{agent}"} {
		g.route("POST "+base+"/v1/chat/completions", g.inAttempt(g.chat))
		g.route("GET "+base+"/v1/models", g.inAttempt(g.attemptModels))
		g.route("GET "+base+"/v1/models/{id...}", g.inAttempt(g.attemptModel))
		g.route("POST "+base+"/rewards", g.inAttempt(g.reward))
		g.route("POST "+base+"/events", g.inAttempt(g.event))
	}
	g.route("POST /v1/chat/completions", g.serving(g.serve))
	g.route("GET /v1/models", g.serving(g.models))
	g.route("GET /v1/models/{id...}", g.serving(g.model))
	g.route("GET /healthz", func(w http.ResponseWriter, _ *http.Request) error {
		return write(w, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	g.route("/", func(_ http.ResponseWriter, r *http.Request) error {
		return &failure{status: http.StatusNotFound, code: "unknown_url", message: r.Method + " " + r.URL.Path + " is no endpoint of this gateway"}
	})
	return g
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// route adds a handler that leaves its errors to be explained.
func (g *Gateway) route(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		err := handle(w, r)
		if err == nil {
			return
		}
		f := explain(err)
		// A client that left can't be answered, and a call that it gave up is no
		// fault.
		if f.status >= http.StatusInternalServerError && r.Context().Err() == nil {
			g.config.Log.Warn("request failed", zap.String("path", r.URL.Path), zap.Error(err))
		}
		f.write(w)
	})
}
