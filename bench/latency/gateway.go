package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
)

// key is the key of every attempt.
const key = "sk-latency"

// agents is how many attempts make the calls, one after the other: agents do not share one.
const agents = 128

func address(i int) trace.Address {
	return trace.Address{RolloutID: trace.RolloutID{Run: "latency", Kind: trace.Train, Step: 1, Task: i % agents}, Attempt: 1}
}

// newGateway returns a gateway in front of the upstream, with one attempt begun for each
// agent. If durable is true, calls are committed to a SQLite file before they are
// answered. Otherwise nothing is kept.
func newGateway(ctx context.Context, upstream, directory string, durable bool) (http.Handler, error) {
	sum := sha256.Sum256([]byte(key))
	terms := trace.Terms{Policy: "main", Codec: "compact", Temperature: 1, MaxTokens: 64}
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
	terms trace.Terms
	hash  string
}

func (o discardJournal) Attempt(_ context.Context, a trace.Address) (trace.Attempt, error) {
	return trace.Attempt{Address: a, Terms: o.terms, KeyHash: o.hash}, nil
}
func (discardJournal) AppendCall(context.Context, *trace.Exchange) error { return nil }
func (discardJournal) Exchanges(context.Context, trace.Address) ([]trace.Exchange, error) {
	return nil, nil
}
func (discardJournal) EarlierExchanges(context.Context, trace.Address) ([]trace.Exchange, error) {
	return nil, nil
}
func (discardJournal) PutReward(context.Context, trace.Reward) error { return nil }
func (discardJournal) PutEvent(context.Context, trace.Event) error   { return nil }
func (discardJournal) PutSpans(context.Context, trace.Address, []trace.Span) error {
	return nil
}

func (discardJournal) AddRefusal(context.Context, trace.Refusal) error { return nil }

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
