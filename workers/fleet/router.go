package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
)

// Router samples every version where the spec of its run says: at external servers
// (sampling.server), or with an engine (sampling.engine) in this process, or in the
// processes that hold a sampler's lease. A spec never changes, so it is read once for each
// policy. Policies whose specs name the same servers share one client.
type Router struct {
	records  Records
	local    *local    // nil if other processes sample
	samplers *Samplers // those processes; nil if there are none

	mu      sync.Mutex
	routes  map[policyID]route
	servers map[string]*upstream.Sampler // by the JSON of their settings
}

// policyID names a policy of a run.
type policyID struct{ run, policy string }

// route says where a policy is sampled: at servers, or if that is nil, with an engine.
type route struct {
	servers *upstream.Sampler
	engine  string
	// policies are those that the policy stands for; nil unless its versions are joint ones.
	policies []string
}

var _ remote.Sampler = (*Router)(nil)

// Route returns a router for a process in which nothing is sampled: others do that.
// samplers may be nil if only the versions of external servers are asked for.
func (r Records) Route(samplers *Samplers) *Router {
	return &Router{records: r, samplers: samplers, routes: map[policyID]route{}, servers: map[string]*upstream.Sampler{}}
}

// RouteLocally returns a router that samples in this process. It keeps resident versions
// of each engine in memory.
func (r Records) RouteLocally(resident int) *Router {
	router := r.Route(nil)
	router.local = newLocal(r, resident)
	return router
}

// Sample implements model.Sampler. A joint version can't be sampled from: the error wraps
// model.ErrJoint.
func (r *Router) Sample(ctx context.Context, v model.VersionID, request model.DecodeRequest) (model.Completion, string, error) {
	s, err := r.samplerOf(ctx, v)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	if s == remote.Sampler(r.samplers) { // the process that samples counts the request
		return s.Sample(ctx, v, request)
	}
	done, answered := r.records.Metrics.Request(), -1
	defer func() { done(len(request.Prompt), answered) }()
	c, weights, err := s.Sample(ctx, v, request)
	if err == nil {
		answered = len(c.Tokens)
	}
	return c, weights, err
}

// Publish makes a version ready where it is sampled, so that the first request for it does
// not wait. Of a joint version it makes those of all policies ready.
func (r *Router) Publish(ctx context.Context, v model.VersionID) error {
	on, err := r.records.Store.Version(ctx, v)
	if err == nil && !on.Collected.IsZero() {
		return nil // the run was reset to before v: all that it sampled from v is on record
	}
	to, err := r.route(ctx, policyID{v.Run, v.Policy})
	if err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	if to.policies == nil {
		return r.publishOne(ctx, v)
	}
	for _, policy := range to.policies {
		if err := r.publishOne(ctx, model.VersionID{Run: v.Run, Policy: policy, Number: v.Number}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Router) publishOne(ctx context.Context, v model.VersionID) error {
	s, err := r.samplerOf(ctx, v)
	if err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	return s.Publish(ctx, v)
}

// Preload loads the newest version of each run that is under way and is sampled in this
// process, at most as many as stay in memory. A process that starts calls it, so that
// weights are read while the agents of the first calls still start. Only for a router of
// RouteLocally.
func (r *Router) Preload(ctx context.Context) error {
	runs, err := r.records.Store.Runs(ctx)
	if err != nil {
		return err
	}
	var all []error
	left := r.local.resident
	for _, run := range runs {
		if run.Status != record.Running || left == 0 || ctx.Err() != nil {
			continue
		}
		v, ok, err := r.newest(ctx, run)
		if err == nil && ok {
			left--
			err = r.Publish(ctx, v)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// newest returns the newest version of a run, unless an external server samples it or it
// has no version with weights yet.
func (r *Router) newest(ctx context.Context, run record.Run) (v model.VersionID, ok bool, err error) {
	sp, err := spec.Stored(run.Spec)
	if err != nil || sp.Sampling.Server != nil {
		return v, false, err
	}
	last, err := r.records.Store.LastVersion(ctx, run.Name, model.DefaultPolicy)
	if errors.Is(err, record.ErrNotFound) {
		return v, false, nil
	}
	return last.VersionID, last.Collected.IsZero(), err
}

// Loaded returns the versions that this process has in memory, engine by engine, the last
// used first. Only for a router of RouteLocally.
func (r *Router) Loaded() []model.VersionID { return r.local.loaded() }

// Sleep makes the servers of a run that share the trainer's GPU free its memory. It
// returns a function that wakes them, or nil if there are no such servers.
func (r *Router) Sleep(ctx context.Context, run string) (wake func(context.Context) error, err error) {
	to, err := r.route(ctx, policyID{run, model.DefaultPolicy})
	if err != nil {
		return nil, err
	}
	if to.servers == nil || !to.servers.SharesGPU() {
		return nil, nil
	}
	if err := to.servers.Sleep(ctx); err != nil {
		return nil, fmt.Errorf("servers of run %s: %w", run, err)
	}
	return to.servers.Wake, nil
}

// Close closes the connections to external servers. It ends the decoders of this process;
// requests under way fail. Engines go on.
func (r *Router) Close() {
	r.mu.Lock()
	for _, s := range r.servers {
		s.Close()
	}
	r.mu.Unlock()
	if r.local != nil {
		r.local.close()
	}
}

// samplerOf returns the sampler of a version of one policy.
func (r *Router) samplerOf(ctx context.Context, v model.VersionID) (remote.Sampler, error) {
	to, err := r.route(ctx, policyID{v.Run, v.Policy})
	switch {
	case err != nil:
		return nil, err
	case to.policies != nil:
		return nil, catalog.Joint(v, to.policies)
	case to.servers != nil:
		return to.servers, nil
	case r.local != nil:
		s, err := r.local.sampler(to.engine)
		if err != nil {
			return nil, fmt.Errorf("sampling.engine of run %s: %w", v.Run, err)
		}
		return s, nil
	case r.samplers != nil:
		return r.samplers, nil
	}
	return nil, ErrNoSampler
}

// route returns where a policy is sampled.
func (r *Router) route(ctx context.Context, p policyID) (route, error) {
	r.mu.Lock()
	to, ok := r.routes[p]
	r.mu.Unlock()
	if ok {
		return to, nil
	}
	on, err := r.records.Store.Run(ctx, p.run)
	if err != nil {
		return to, fmt.Errorf("read run %s: %w", p.run, err)
	}
	sp, err := spec.Stored(on.Spec)
	if err != nil {
		return to, fmt.Errorf("spec of run %s: %w", p.run, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	to.engine = cmp.Or(sp.Sampling.Engine, spec.EngineNative)
	if p.policy == model.DefaultPolicy {
		to.policies = sp.PolicyNames()
	}
	if sp.Sampling.Server != nil {
		if to.servers, err = r.connect(sp); err != nil {
			return to, fmt.Errorf("servers of run %s: %w", p.run, err)
		}
	}
	r.routes[p] = to
	return to, nil
}

// connect returns the client of a spec's servers, which it makes if there is none. The
// caller holds mu.
func (r *Router) connect(sp spec.Spec) (*upstream.Sampler, error) {
	server := sp.Sampling.Server
	key, err := json.Marshal(struct {
		*spec.Server
		Base, Codec string
		Temperature *float64
		Lag         int
		Policies    int
	}{server, sp.Model.Base, sp.Model.Codec, sp.Sampling.Temperature, sp.Training.Lag, len(sp.Policies)})
	if err != nil {
		return nil, err
	}
	if s, ok := r.servers[string(key)]; ok {
		return s, nil
	}
	unused, err := r.unused(sp.Model.Codec)
	if err != nil {
		return nil, err
	}
	temperature := 1.0
	if sp.Sampling.Temperature != nil {
		temperature = *sp.Sampling.Temperature
	}
	s, err := upstream.New(upstream.Options{
		Temperature: temperature,
		Type:        server.Type, URLs: server.URLs, Model: server.Model, Versions: server.Versions, Key: server.Key, Directory: server.Directory, ShareGPU: server.ShareGPU,
		Lag: sp.Training.Lag, Policies: len(sp.Policies), Tolerance: server.Tolerance, Adapter: r.adapter, Unused: unused, Constrain: r.records.Codecs.Constrain,
		Write: func(ctx context.Context, v model.VersionID, directory string) (string, error) {
			return r.write(ctx, v, sp.Model.Base, directory)
		},
	})
	if err != nil {
		return nil, err
	}
	r.servers[string(key)] = s
	return s, nil
}

// unused returns the ids without a token in the codec of a run.
func (r *Router) unused(name string) (model.TokenRanges, error) {
	if !strings.HasPrefix(name, dialog.TemplatePrefix) {
		return "", nil // the vocabulary of a built-in codec is the model's own
	}
	codec, err := r.records.Codecs.Named(name)
	if err != nil {
		return "", err
	}
	sparse, ok := codec.(dialog.Sparse)
	if !ok {
		return "", nil
	}
	return sparse.Unused(codec.VocabSize()), nil
}

// adapter returns the adapter of a version, nil if all weights of the version were
// trained.
func (r *Router) adapter(ctx context.Context, v model.VersionID) (*upstream.Adapter, error) {
	c, digest, err := r.records.Catalog.Load(ctx, v)
	if err != nil || c.Adapter == nil {
		return nil, err
	}
	if len(c.Adapter.Tokens) > 0 {
		return nil, fmt.Errorf("%w: version %s trains rows of tokens (model.lora.trainable_tokens), and vLLM loads adapters of linear layers only: leave sampling.server out, so that the built-in sampler samples", upstream.ErrVersion, v)
	}
	canary, err := r.records.Catalog.Canary(ctx, v)
	if err != nil {
		return nil, err
	}
	return &upstream.Adapter{Weights: digest, Rank: c.Adapter.Rank, Canary: canary, Write: func(directory string) error {
		if c.Files != nil {
			return hf.WriteFiles(context.WithoutCancel(ctx), directory, c, c.Adapter.Base.Digest)
		}
		return hf.WritePEFT(directory, c, c.Adapter.Base.Digest)
	}}, nil
}

// write writes a version for a server to load: its own weights, with everything else,
// such as the tokenizer, from the base model.
func (r *Router) write(ctx context.Context, v model.VersionID, base, directory string) (string, error) {
	c, digest, err := r.records.Catalog.Load(ctx, v)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	files, err := os.ReadDir(base)
	if err != nil {
		return "", fmt.Errorf("read the base model: %w", err)
	}
	for _, f := range files {
		if !f.Type().IsRegular() || f.Name() == model.ConfigFile || filepath.Ext(f.Name()) == ".safetensors" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(base, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, f.Name()), data, 0o644)
		}
		if err != nil {
			return "", errors.Join(fmt.Errorf("copy %s", f.Name()), err)
		}
	}
	if c.Files != nil {
		return digest, hf.WriteFiles(ctx, directory, c, "")
	}
	return digest, hf.WriteDirectory(directory, c.Architecture, c.Weights)
}
