package torch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// fileOpening is the body of the verb open for a model whose weights lie in files that only
// the program reads.
type fileOpening struct {
	Config json.RawMessage `json:"config"`
	Unused []int           `json:"unused,omitempty"` // as in opening
	// Directory holds the weights, and the moments if there are any, by their names in a
	// version. It is empty for a new adapter.
	Directory string      `json:"directory"`
	Decoder   bool        `json:"decoder,omitempty"`
	LoRA      *model.LoRA `json:"lora,omitempty"`
	Seed      uint64      `json:"seed,omitempty"` // of a new adapter
	Base      string      `json:"base,omitempty"` // digest
	// BaseDirectory is set if the program has asked for the base.
	BaseDirectory string `json:"base_directory,omitempty"`
}

// fileSaving is the body of the verb save for such a model.
type fileSaving struct {
	Directory string `json:"directory"`
	Optimizer bool   `json:"optimizer"`
}

// Model is what the program reports about a model from its config.json.
type Model struct {
	// Parameters is the number of parameters of the whole model, Trained the number of
	// those that an update changes.
	Parameters int64 `json:"parameters"`
	Trained    int64 `json:"trained"`
	// Targets are the linear layers that an adapter adapts.
	Targets []string `json:"targets"`
}

// Inspect asks the program about a model with Config and, if l is not nil, about an
// adapter of it. It needs no weights. The error says what the installed transformers
// lacks, or which linear layers the model has.
func (e *Engine) Inspect(ctx context.Context, a model.Architecture, l *model.LoRA) (Model, error) {
	var m Model
	if err := a.CheckConfig(); err != nil {
		return m, err
	}
	p, err := e.running()
	if err != nil {
		return m, err
	}
	t := &trainer{process: p, ranks: 1}
	err = t.request(ctx, "inspect", fileOpening{Config: json.RawMessage(a.Config), LoRA: l}, &m)
	return m, err
}

// checkPolicy reports why a can't be a policy of this engine.
func checkPolicy(a model.Architecture) error {
	if a.Config != "" {
		return a.CheckConfig()
	}
	return a.CheckPolicy()
}

// openFiles passes c to the program, and the base of c if the program does not have it.
// The files are copied, so that their digests are checked and nobody can change what the
// program reads.
func (t *trainer) openFiles(ctx context.Context, c model.Checkpoint, what purpose) (err error) {
	if t.ranks > 1 {
		return fmt.Errorf("a model of this model_type is trained by one rank, and there are %d: give %s=1, or a model of a type that engine native has", t.ranks, EnvRanks)
	}
	if c.Moments != model.MomentsF32 {
		return fmt.Errorf("training.optimizer.moments: a model of this model_type has moments only in F32, not %s: leave it out", c.Moments)
	}
	dir, err := os.MkdirTemp(t.process.dir, "open-")
	if err != nil {
		return t.missing(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	body := fileOpening{Config: json.RawMessage(c.Architecture.Config), Unused: unused(c.Architecture), Decoder: what == forSampling, Seed: c.Seed >> 1} // PyTorch's seeds are signed
	if c.Files != nil {
		files := map[string]model.Content{}
		for name, f := range c.Files.Weights {
			files[name] = f
		}
		if c.Updates > 0 && what == forTraining {
			files[model.OptimizerFile] = c.Files.Optimizer
		}
		if body.Directory, err = t.copyFiles(ctx, dir, "weights", c.Architecture, files); err != nil {
			return err
		}
	}
	if c.Adapter != nil {
		body.LoRA, body.Base = &c.Adapter.LoRA, c.Adapter.Base.Digest
	}
	t.handle = t.process.newHandle()
	var opened opened
	if err := t.request(ctx, "open", body, &opened); err != nil {
		return err
	}
	if opened.Missing {
		if body.BaseDirectory, err = t.copyFiles(ctx, dir, "base", c.Architecture, c.Adapter.Base.Files); err != nil {
			return fmt.Errorf("base %s: %w", c.Adapter.Base.Digest, err)
		}
		if err := t.request(ctx, "open", body, &opened); err != nil {
			return err
		}
	}
	t.tokens = opened.most(t.tokens)
	if c.Adapter != nil { // the names that it has; in a checkpoint the usual names may stand for all linear layers
		adapter := *c.Adapter
		adapter.Targets = opened.Targets
		t.of.Adapter = &adapter
	}
	return nil
}

// copyFiles writes config.json and files into a directory of that name.
func (t *trainer) copyFiles(ctx context.Context, dir, name string, a model.Architecture, files map[string]model.Content) (string, error) {
	dir = filepath.Join(dir, name)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, model.ConfigFile), []byte(a.Config), 0o600)
	}
	if err == nil {
		err = model.CopyFiles(ctx, dir, files)
	}
	if err != nil {
		return "", fmt.Errorf("give the program its files: %w", t.missing(err))
	}
	return dir, nil
}

// saveFiles lets the program write the current state. The files lie in the program's
// directory until they are released.
func (t *trainer) saveFiles(ctx context.Context) (c model.Checkpoint, err error) {
	dir, err := os.MkdirTemp(t.process.dir, "save-")
	if err != nil {
		return c, t.missing(err)
	}
	release := sync.OnceFunc(func() { _ = os.RemoveAll(dir) }) // the program removes what is left
	if err := t.request(ctx, "save", fileSaving{Directory: dir, Optimizer: t.updates > 0}, nil); err != nil {
		release()
		return c, err
	}
	c = t.of
	c.Updates = t.updates
	name := model.WeightsFile
	if c.Adapter != nil {
		name = model.AdapterFile
	}
	c.Files = &model.Files{Weights: map[string]model.Content{name: model.StoredFile(filepath.Join(dir, name))}, Release: release}
	if t.updates > 0 {
		c.Files.Optimizer = model.StoredFile(filepath.Join(dir, model.OptimizerFile))
	}
	return c, nil
}
