package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/gateway/redactor"
	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
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
	Prompts *Prompts
	// Metrics counts what the parts do; nil counts nothing.
	Metrics *metrics.Metrics
	// private are the directories of store and blobs on this machine.
	private []string
	// engine samples and trains in this process. It keeps one copy of a base that
	// adapters share, so there is one engine.
	engine *native.Engine
	// engines are those with their own process, which sampler and trainer share.
	engines *opened
	// redactors are the programs that rewrite texts of conversations.
	redactors *redactor.Set
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
	private := []string{b.Directory()}
	if file, err := store.FilePath(storeURL); err == nil && file != "" {
		private = append(private, filepath.Dir(file)) // SQLite makes more files beside it
	}
	for i, path := range private {
		if private[i], err = filepath.Abs(path); err != nil {
			return Records{}, errors.Join(fmt.Errorf("find %s: %w", path, err), s.Close())
		}
	}
	return Records{
		private: private,
		Store:   s, Blobs: b, Catalog: catalog.Catalog{Store: s, Blobs: b}, Codecs: NewCodecs(b), Prompts: NewPrompts(b),
		engine: native.New(native.Options{}), engines: &opened{engines: map[string]model.Engine{}}, redactors: &redactor.Set{},
	}, nil
}

// Measured returns the records with parts that count in m what they do. Call it before
// the first use.
func (r Records) Measured(m *metrics.Metrics) Records {
	r.Metrics = m
	r.Store.Measure(m)
	r.Blobs.Metrics = m
	return r
}

// Close ends the engines that have their own process and the redactors, and closes the store.
func (r Records) Close() error {
	r.redactors.Close()
	r.engines.close()
	return r.Store.Close()
}

// Gateway returns a gateway, which answers the calls of agents. It adds journal,
// conversations, experiments, versions, codecs, prompts, redactors and metrics to the config.
func (r Records) Gateway(c gateway.Config) *gateway.Gateway {
	c.Experiments = newExperiments(r.Store)
	c.Journal, c.Conversations, c.Versions, c.Codecs, c.Prompts, c.Metrics = r.Store, r.Store, r.Catalog, r.Codecs.Named, r.Prompts.Set, r.Metrics
	c.Keys, c.Feedback = store.ServingKeys{Store: r.Store}, r.Store
	c.Redact = r.redactors.Redact
	return gateway.New(c)
}

// Coordinator returns the activities of the training queue. Commands in a workflow's
// input that have no directory run where this process was started. sampler answers from
// versions, and is where they are made ready.
func (r Records) Coordinator(c client.Client, namespace string, sampler remote.Sampler) (*activities.Coordinator, error) {
	directory, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	return &activities.Coordinator{
		Runs: r.Store, Ledger: r.Store, Attempts: r.Store, Blobs: r.Blobs, Publisher: sampler,
		Traffic: r.Store, Segments: Starter{c}, Experiments: r.Store, Shadows: r.Store, Sampler: sampler, Redact: r.redactors.Redact,
		Cluster: Cluster{c, namespace}, Starter: Starter{c}, Codecs: r.Codecs.Named, Directory: directory, Reflectors: Reflector,
		Collector: &retention.Collector{Store: r.Store, Blobs: r.Blobs}, Pruner: Pruner{r}, WhyNotIsolated: r.WhyNotIsolated, FindContainer: FindContainer,
	}, nil
}

// WhyNotIsolated returns why this machine can't isolate an agent that is a command, or "" if it
// can. An error means that it could not find out.
func (r Records) WhyNotIsolated(ctx context.Context, a spec.Agent) (string, error) {
	if reason := sandbox.Unfit(a.Directory, a.Command, r.private); reason != "" {
		return reason, nil
	}
	err := sandbox.Check(ctx)
	if errors.Is(err, sandbox.ErrUnavailable) {
		return err.Error(), nil
	}
	return "", err
}

// Pruner prunes the runs on record.
type Pruner struct{ records Records }

// Prune removes what a rule says is no longer needed of runs that have ended, and makes the
// database overwrite removed rows. On a dry run it changes nothing.
func (p Pruner) Prune(ctx context.Context, rule retention.PruneRule, by string, dryRun bool) (retention.PruneReport, error) {
	return p.records.Prune(ctx, rule, by, dryRun, func(retention.PruneReport) error { return nil })
}

// Prune does what the method of Pruner does. It calls before with what it is about to
// remove; an error ends it with nothing removed.
func (r Records) Prune(ctx context.Context, rule retention.PruneRule, by string, dryRun bool, before func(retention.PruneReport) error) (retention.PruneReport, error) {
	f := retention.Forgetter{Store: r.Store, Blobs: r.Blobs} // histories stay
	report, err := f.Prune(ctx, rule, by, dryRun, before)
	if err != nil || dryRun || !rule.Records {
		return report, err
	}
	if err := r.Store.Scrub(ctx, false); err != nil {
		return report, fmt.Errorf("rows are removed, but their bytes may still be in the database; prune again: %w", err)
	}
	return report, nil
}

// Runner returns the activities of the rollout queues.
func (r Records) Runner(forwarder activities.Forwarder, functions agent.Registry) *activities.Runner {
	return &activities.Runner{
		Runs: r.Store, Attempts: r.Store, Blobs: r.Blobs, Forwarder: forwarder, Launchers: r.Launchers(functions),
	}
}

// Launchers returns launchers whose isolated agents see neither store nor blobs.
func (r Records) Launchers(functions agent.Registry) Launchers {
	return Launchers{Functions: functions, Hidden: r.private}
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
		Engines: shared, Codecs: r.Codecs.Named, Constrain: r.Codecs.Constrain, Metrics: r.Metrics,
	}
}

// CheckBlobs refuses a directory of blobs that is not that of the store. A process with
// another directory would wait for ever for what lies in the right one. A store that has
// no id yet has no directory yet.
func (r Records) CheckBlobs(ctx context.Context) error {
	if r.Store.Ready(ctx) != nil {
		return nil // the error comes again where tables are needed
	}
	id, err := r.Store.ID(ctx)
	if err != nil || id == "" {
		return err
	}
	owner, err := r.Blobs.Owner()
	switch {
	case err != nil:
		return err
	case owner == id:
		return nil
	case owner == "":
		return fmt.Errorf("%w with this directory of blobs: %s has no file %q with the store's id: name the directory that the store's processes share (--blobs, FULGURITE_BLOBS), or mount it; "+
			"if its blobs are lost, or are these, `echo %s > %s` says so", store.ErrUnusable, r.Blobs.Directory(), "store", id, shell.Quote(r.Blobs.Directory()+"/store"))
	}
	return fmt.Errorf("%w with this directory of blobs: %s has the blobs of another store (%s, and this one is %s): name the directory that the store's processes share (--blobs, FULGURITE_BLOBS)",
		store.ErrUnusable, r.Blobs.Directory(), owner, id)
}

// CheckMended refuses a store that was restored from a backup and whose runs have not been
// compared with Temporal since: they could wait for ever for what only one of the two knows.
func (r Records) CheckMended(ctx context.Context) error {
	mended, err := r.Store.Mended(ctx)
	if err == nil && !mended {
		err = fmt.Errorf("%w yet: it was restored from a backup, and Temporal may know more or less of its runs than it does: `fulgurite-worker mend` lets them go on", store.ErrUnusable)
	}
	return err
}

// Migrate makes the tables of an empty store and pairs it with the directory of blobs. A
// new store takes over a directory that holds blobs only if the directory is its own, as
// that of a stack is: then the store before it was lost.
func (r Records) Migrate(ctx context.Context, own bool) error {
	if err := r.Store.Migrate(ctx); err != nil {
		return err
	}
	id, err := r.Store.ID(ctx)
	if err != nil {
		return err
	}
	if id != "" {
		return r.CheckBlobs(ctx)
	}
	if err := r.Blobs.Claim(rand.Text()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	owner, err := r.Blobs.Owner()
	if err != nil {
		return err
	}
	empty, err := r.Blobs.Empty()
	if err != nil {
		return err
	}
	if !own && !empty {
		return fmt.Errorf("%w with this directory of blobs: %s has blobs, and the store is new: name an empty directory (--blobs, FULGURITE_BLOBS), or the store that these blobs belong to",
			store.ErrUnusable, r.Blobs.Directory())
	}
	return r.Store.SetID(ctx, owner)
}

// Codecs finds codecs by the names in the terms of attempts: built-in ones, and those of
// published models, which are made from the bundle that the run stored. Making one takes
// a second, so they are cached.
type Codecs struct {
	blobs interface {
		Get(ctx context.Context, digest string) ([]byte, error)
	}

	mu   sync.Mutex
	made map[string]*madeCodec
}

// NewCodecs returns the codecs of runs whose bundles are in blobs.
func NewCodecs(blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}) *Codecs {
	return &Codecs{blobs: blobs, made: map[string]*madeCodec{}}
}

// madeCodec is a codec that one caller makes while the others wait.
type madeCodec struct {
	once  sync.Once
	codec dialog.Codec
	err   error
}

// Named returns the codec called name.
func (c *Codecs) Named(name string) (dialog.Codec, error) {
	if !strings.HasPrefix(name, dialog.TemplatePrefix) {
		return dialog.Named(name)
	}
	c.mu.Lock()
	m, ok := c.made[name]
	if !ok {
		m = &madeCodec{}
		c.made[name] = m
	}
	c.mu.Unlock()
	m.once.Do(func() { m.codec, m.err = c.make(name) })
	if m.err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.made[name] == m {
			delete(c.made, name) // the store may be back next time
		}
	}
	return m.codec, m.err
}

func (c *Codecs) make(name string) (dialog.Codec, error) {
	encoded, err := c.blobs.Get(context.Background(), strings.TrimPrefix(name, dialog.TemplatePrefix))
	if err != nil {
		return nil, fmt.Errorf("read codec %s: %w", name, err)
	}
	bundle, err := dialog.DecodeBundle(encoded)
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", name, err)
	}
	return bundle.Codec(name)
}

// Constrain returns the constraint of a form, made by the codec that the form names.
func (c *Codecs) Constrain(form model.Form) (model.Constraint, error) {
	codec, err := c.Named(form.Codec)
	if err != nil {
		return nil, err
	}
	return codec.Constrain(form)
}
