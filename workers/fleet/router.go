package fleet

import (
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
	"github.com/fulgurite/fulgurite/spec"
)

// Router samples where a run's spec says: at the built-in sampler, or at external
// servers (sampling.server). Runs whose specs name the same servers share one client.
type Router struct {
	builtin remote.Sampler
	records Records

	mu      sync.Mutex
	runs    map[string]remote.Sampler
	servers map[string]*upstream.Sampler // by the JSON of their settings
}

var _ remote.Sampler = (*Router)(nil)

// Route returns a router in front of the built-in sampler, which may be nil if nothing is
// sampled.
func (r Records) Route(builtin remote.Sampler) *Router {
	return &Router{builtin: builtin, records: r, runs: map[string]remote.Sampler{}, servers: map[string]*upstream.Sampler{}}
}

// Sample implements model.Sampler.
func (r *Router) Sample(ctx context.Context, v model.VersionID, request model.DecodeRequest) (model.Completion, string, error) {
	s, err := r.samplerOf(ctx, v.Run)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	return s.Sample(ctx, v, request)
}

// Publish makes a version ready where its run is sampled.
func (r *Router) Publish(ctx context.Context, v model.VersionID) error {
	on, err := r.records.Store.Version(ctx, v)
	if err == nil && !on.Collected.IsZero() {
		return nil // the run was reset to before v: all that it sampled from v is on record
	}
	s, err := r.samplerOf(ctx, v.Run)
	if err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	return s.Publish(ctx, v)
}

// Sleep makes the servers of a run that share the trainer's GPU free its memory. It
// returns a function that wakes them, or nil if there are no such servers.
func (r *Router) Sleep(ctx context.Context, run string) (wake func(context.Context) error, err error) {
	s, err := r.samplerOf(ctx, run)
	if err != nil {
		return nil, err
	}
	shared, ok := s.(*upstream.Sampler)
	if !ok || !shared.SharesGPU() {
		return nil, nil
	}
	if err := shared.Sleep(ctx); err != nil {
		return nil, fmt.Errorf("servers of run %s: %w", run, err)
	}
	return shared.Wake, nil
}

// Close closes the connections to external servers.
func (r *Router) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.servers {
		s.Close()
	}
}

// samplerOf returns the sampler of a run. A run's spec never changes, so it is read once.
func (r *Router) samplerOf(ctx context.Context, run string) (remote.Sampler, error) {
	r.mu.Lock()
	s, ok := r.runs[run]
	r.mu.Unlock()
	if ok {
		return s, nil
	}
	on, err := r.records.Store.Run(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", run, err)
	}
	sp, err := spec.Stored(on.Spec)
	if err != nil {
		return nil, fmt.Errorf("spec of run %s: %w", run, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, err = r.open(sp); err != nil {
		return nil, fmt.Errorf("servers of run %s: %w", run, err)
	}
	r.runs[run] = s
	return s, nil
}

// open returns the sampler of a spec, which it makes if there is none. The caller holds
// mu.
func (r *Router) open(sp spec.Spec) (remote.Sampler, error) {
	server := sp.Sampling.Server
	if server == nil {
		return r.builtin, nil
	}
	key, err := json.Marshal(struct {
		*spec.Server
		Base, Codec string
		Temperature *float64
		Lag         int
	}{server, sp.Model.Base, sp.Model.Codec, sp.Sampling.Temperature, sp.Training.Lag})
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
		Lag: sp.Training.Lag, Tolerance: server.Tolerance, Adapter: r.adapter, Unused: unused, Constrain: r.records.Codecs.Constrain,
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
