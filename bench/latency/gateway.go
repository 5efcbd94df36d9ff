package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// key is the key of every attempt.
const key = "sk-latency"

// agents is how many attempts make the calls, one after the other: agents do not share one.
const agents = 128

func address(i int) record.Address {
	return record.Address{RolloutID: record.RolloutID{Run: "latency", Kind: record.Train, Step: 1, Task: i % agents}, Attempt: 1}
}

// newGateway returns a gateway in front of the upstream, with one attempt begun for each
// agent. If durable is true, calls are committed to a SQLite file before they are
// answered. Otherwise nothing is kept.
func newGateway(ctx context.Context, upstream, directory string, durable bool) (http.Handler, error) {
	sum := sha256.Sum256([]byte(key))
	terms := record.Terms{Policy: "main", Codec: "compact", Temperature: 1, MaxTokens: 64}
	config := gateway.Config{Sampler: remote.NewClient(upstream, remote.Options{}), Log: zap.NewNop(), Journal: discardJournal{terms, hex.EncodeToString(sum[:])}}
	if durable {
		db, err := store.Open(ctx, filepath.Join(directory, "store.db"), zap.NewNop())
		if err != nil {
			return nil, err
		}
		if err := db.Migrate(ctx); err != nil {
			return nil, err
		}
		for i := range agents {
			if _, err := db.BeginAttempt(ctx, address(i).RolloutID, fmt.Sprint(i), terms, hex.EncodeToString(sum[:])); err != nil {
				return nil, err
			}
		}
		config.Journal = db
	}
	return gateway.New(config), nil
}

// discardJournal is a journal that keeps nothing.
type discardJournal struct {
	terms record.Terms
	hash  string
}

func (o discardJournal) Attempt(_ context.Context, a record.Address) (record.Attempt, error) {
	return record.Attempt{Address: a, Terms: o.terms, KeyHash: o.hash}, nil
}
func (discardJournal) AttemptEnd(context.Context, record.Address) (time.Time, error) {
	return time.Time{}, nil
}
func (discardJournal) AppendCall(context.Context, *record.Exchange) error { return nil }
func (discardJournal) Exchanges(context.Context, record.Address) ([]record.Exchange, error) {
	return nil, nil
}
func (discardJournal) EarlierExchanges(context.Context, record.Address) ([]record.Exchange, error) {
	return nil, nil
}
func (discardJournal) PutReward(context.Context, record.Reward) error { return nil }
func (discardJournal) PutEvent(context.Context, record.Event) error   { return nil }
func (discardJournal) PutSpans(context.Context, record.Address, []record.Span) error {
	return nil
}

func (discardJournal) AddRefusal(context.Context, record.Refusal) error { return nil }

// serial makes each request different, because the gateway treats equal requests as the
// same dialog.
var serial struct {
	sync.Mutex
	n int
}

func nextSerial() int {
	serial.Lock()
	defer serial.Unlock()
	serial.n++
	return serial.n
}

// answer is the constant answer of the upstream.
const answer = "twenty tokens long.."

// canned is a sampler that takes a fixed time and always gives the same reply. The tokens
// arrive evenly spread over the delay, the last one at its end.
type canned struct{ delay time.Duration }

var _ remote.Sampler = canned{}

func (c canned) Sample(ctx context.Context, _ model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	codec := dialog.Compact()
	tokens := append(codec.Encode(answer), codec.Stop()[0])
	out := model.Completion{Tokens: tokens, Logprobs: make([]float32, len(tokens)), Finish: "stop"}
	err := c.pace(ctx, len(tokens), r.Emit != nil, func(i int) { r.Emit(tokens[i], 0) })
	return out, "canned", err
}

func (canned) Publish(context.Context, model.VersionID) error { return nil }

// pace spreads n pieces evenly over the delay, or only waits for its end.
func (c canned) pace(ctx context.Context, n int, pieces bool, piece func(int)) error {
	begin := time.Now()
	wait := func(until time.Duration) error {
		timer := time.NewTimer(time.Until(begin.Add(until)))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !pieces {
		return wait(c.delay)
	}
	for i := range n {
		if err := wait(c.delay * time.Duration(i+1) / time.Duration(n)); err != nil {
			return err
		}
		piece(i)
	}
	return nil
}

// upstream serves the sampler in two ways: by token ids, for the gateway, and as OpenAI's
// chat completions, for the other targets.
func upstream(delay time.Duration) http.Handler {
	sampler := canned{delay}
	mux := http.NewServeMux()
	mux.Handle("/", remote.NewServer(sampler, nil))
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Stream bool `json:"stream"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if in.Stream {
			sampler.stream(w, r)
			return
		}
		if sampler.pace(r.Context(), 1, false, nil) == nil {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"canned","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`, answer)
		}
	})
	return mux
}

func (c canned) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	chunk := func(delta, finish string) {
		fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"canned\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
		_ = out.Flush()
	}
	letters := strings.Split(answer, "")
	if c.pace(r.Context(), len(letters), true, func(i int) { chunk(fmt.Sprintf(`{"role":"assistant","content":%q}`, letters[i]), "null") }) == nil {
		chunk("{}", `"stop"`)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// proxy passes requests on to the upstream, and each part of a reply when it arrives.
func proxy(upstream string) (http.Handler, error) {
	address, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(address) },
		Transport:     newClient().Transport,
		FlushInterval: -1,
	}, nil
}
