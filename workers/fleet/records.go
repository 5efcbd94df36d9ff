package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// Records are the durable state that every process shares, and the parts that
// are made on it.
type Records struct {
	Store   *store.Store
	Blobs   *blob.Store
	Catalog catalog.Catalog
	Codecs  *Codecs
	// engine samples and trains in this process. It keeps one copy of a base that
	// adapters share, so there is one engine.
	engine *native.Engine
	// engines are those with their own process, which sampler and trainer share.
	engines *opened
}

// Open opens the store at a URL and its directory of blobs. It makes no tables, and refuses
// the directory of another store.
func Open(ctx context.Context, storeURL, blobs string, log *zap.Logger) (Records, error) {
	r, err := Connect(ctx, storeURL, blobs, log)
	if err != nil {
		return r, err
	}
	if err := r.CheckBlobs(ctx); err != nil {
		return Records{}, errors.Join(err, r.Close())
	}
	return r, nil
}

// Connect does the same as Open for any directory of blobs.
func Connect(ctx context.Context, storeURL, blobs string, log *zap.Logger) (Records, error) {
	s, err := store.Open(ctx, storeURL, log)
	if err != nil {
		return Records{}, err
	}
	b, err := blob.Open(blobs)
	if err != nil {
		return Records{}, errors.Join(err, s.Close())
	}
	s.Files = b
	return Records{s, b, catalog.Catalog{Store: s, Blobs: b}, NewCodecs(b), native.New(native.Options{}), &opened{engines: map[string]model.Engine{}}}, nil
}

// Close ends the engines that have their own process, and closes the store.
func (r Records) Close() error {
	r.engines.close()
	return r.Store.Close()
}

// Sampler returns a sampler in this process. It samples with the engine that the spec of
// a run names, and keeps resident versions of each engine in memory.
func (r Records) Sampler(resident int) *Builtin {
	return &Builtin{
		records: r, resident: resident, native: r.sampler(r.engine, resident),
		others: map[string]*serve.Sampler{}, engines: map[string]string{},
	}
}

func (r Records) sampler(e model.Engine, resident int) *serve.Sampler {
	s := serve.New(e, r.Catalog, resident)
	s.Constrain = r.Codecs.Constrain
	return s
}

// Gateway returns a gateway, which answers the calls of agents. It adds journal, versions
// and codecs to the config.
func (r Records) Gateway(c gateway.Config) *gateway.Gateway {
	c.Journal, c.Versions, c.Codecs = r.Store, r.Catalog, r.Codecs.Named
	return gateway.New(c)
}

// Coordinator returns the activities of the training queue. Commands in a workflow's
// input that have no directory run where this process was started.
func (r Records) Coordinator(c client.Client, namespace string, publisher activities.Publisher) (*activities.Coordinator, error) {
	directory, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	return &activities.Coordinator{
		Runs: r.Store, Ledger: r.Store, Attempts: r.Store, Blobs: r.Blobs, Publisher: publisher,
		Cluster: Cluster{c, namespace}, Codecs: r.Codecs.Named, Directory: directory,
		Collector: &retention.Collector{Store: r.Store, Blobs: r.Blobs},
	}, nil
}

// Runner returns the activities of the rollout queues.
func (r Records) Runner(forwarder activities.Forwarder, functions agent.Registry) *activities.Runner {
	return &activities.Runner{
		Runs: r.Store, Attempts: r.Store, Blobs: r.Blobs, Forwarder: forwarder, Launchers: Launchers(functions),
	}
}

// Trainer returns the activities of the queue "train-gpu".
func (r Records) Trainer(engines func(name string) (model.Engine, error)) *activities.Trainer {
	shared := func(name string) (model.Engine, error) {
		e, err := r.engines.open(name, engines)
		if err == nil && name == r.engine.Name() {
			return r.engine, nil
		}
		return e, err
	}
	return &activities.Trainer{
		Runs: r.Store, Versions: r.Store, Attempts: r.Store, Blobs: r.Blobs,
		Engines: shared, Codecs: r.Codecs.Named, Constrain: r.Codecs.Constrain,
	}
}
