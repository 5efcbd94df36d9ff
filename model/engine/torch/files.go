package torch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// opening is the body of the verb open.
type opening struct {
	Config json.RawMessage `json:"config"`           // config.json
	Unused []int           `json:"unused,omitempty"` // the first and the last id of each range without a token
	Critic bool            `json:"critic,omitempty"`
	// Decoder says that the model has no moments, and samples.
	Decoder bool `json:"decoder,omitempty"`
	// Frozen says that the model has no moments, and scores.
	Frozen bool        `json:"frozen,omitempty"`
	LoRA   *model.LoRA `json:"lora,omitempty"`
	Base   string      `json:"base,omitempty"` // digest
	// The files of tensors follow. BaseFile is set only if the program has asked for the
	// base.
	BaseFile string `json:"base_file,omitempty"`
	Weights  string `json:"weights"`
	Mean     string `json:"mean,omitempty"`
	Variance string `json:"variance,omitempty"`
	// Moments is the type in which the program holds them: model.MomentsF32 or
	// model.MomentsInt8.
	Moments string `json:"moments,omitempty"`
}

// saving is the body of the verb save: the paths of the files to write. Each rank adds
// its number to a path and writes the rows that it holds. A rank without rows writes no
// file.
type saving struct {
	Weights  string `json:"weights"`
	Mean     string `json:"mean"`
	Variance string `json:"variance"`
}

// unused returns the first and the last id of each range of ids without a token.
func unused(a model.Architecture) (ids []int) {
	a.Unused.Each(func(first, last int) { ids = append(ids, first, last) })
	return ids
}

// open passes c to the program, and the base of c if the program does not have it.
func (t *trainer) open(ctx context.Context, c model.Checkpoint, what purpose) (err error) {
	dir, err := os.MkdirTemp(t.process.dir, "open-")
	if err != nil {
		return t.missing(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	config, err := hf.WriteConfig(c.Architecture)
	if err != nil {
		return err
	}
	body := opening{Config: config, Unused: unused(c.Architecture), Critic: c.Architecture.ValueHead, Decoder: what == forSampling, Frozen: what == forScoring, Moments: c.Moments}
	files := map[string]*string{"weights": &body.Weights}
	if c.Updates > 0 || c.Mean != nil {
		files["mean"], files["variance"] = &body.Mean, &body.Variance
	}
	for name, w := range map[string]model.Weights{"weights": c.Weights, "mean": c.Mean, "variance": c.Variance} {
		if path := files[name]; path != nil {
			if *path, err = writeTensors(dir, name, w); err != nil {
				return err
			}
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
		if body.BaseFile, err = writeBase(dir, c.Adapter.Base); err != nil {
			return err
		}
		if err := t.request(ctx, "open", body, &opened); err != nil {
			return err
		}
	}
	t.tokens = opened.most(t.tokens)
	return nil
}

// opened is the program's reply to the verb open.
type opened struct {
	Missing bool     `json:"missing"` // the base is missing; nothing was opened
	Targets []string `json:"targets"`
	// Tokens is the largest number of tokens of a pass whose activations the program can
	// keep. It is 0 if these would be too few for a pass: the program then computes
	// activations twice, and the number does not matter.
	Tokens int `json:"tokens"`
}

// most returns the largest number of tokens of a pass, at most limit.
func (o opened) most(limit int) int {
	if o.Tokens == 0 {
		return limit
	}
	return min(o.Tokens, limit)
}

// missing returns the reason why the program's directory can't be used: a program that
// has ended removes it.
func (t *trainer) missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: its directory is gone", model.ErrEngineLost)
	}
	return err
}

// writeBase writes the base for the program, one tensor at a time, so this process never
// holds all of it.
func writeBase(dir string, b *model.Base) (path string, err error) {
	path = filepath.Join(dir, "base.safetensors")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("write base %s for the program: %w", b.Digest, err)
	}
	err = hf.WriteEach(f, b.Architecture.Tensors(), func(use func(model.Tensor) error) error {
		return b.Each(func(t model.Tensor) error {
			if err := t.CheckFinite(); err != nil {
				return err
			}
			return use(t)
		})
	})
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write base %s for the program: %w", b.Digest, err)
	}
	return path, nil
}

// writeTensors writes a file for the program and returns its path.
func writeTensors(dir, name string, w model.Weights) (path string, err error) {
	path = filepath.Join(dir, name+".safetensors")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("write %s for the program: %w", name, err)
	}
	buffer := bufio.NewWriterSize(f, 1<<20)
	err = errors.Join(hf.WriteSafetensors(buffer, w, nil), buffer.Flush(), f.Close())
	if err != nil {
		return "", fmt.Errorf("write %s for the program: %w", name, err)
	}
	return path, nil
}

// Save implements model.Saver.
func (t *trainer) Save(ctx context.Context) (c model.Checkpoint, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("save after update %d: %w", t.updates, err)
		}
	}()
	if t.of.Architecture.Config != "" {
		return t.saveFiles(ctx)
	}
	dir, err := os.MkdirTemp(t.process.dir, "save-")
	if err != nil {
		return c, t.missing(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c = t.of
	c.Updates = t.updates
	paths := saving{filepath.Join(dir, "weights"), filepath.Join(dir, "mean"), filepath.Join(dir, "variance")}
	if err := t.request(ctx, "save", paths, nil); err != nil {
		return model.Checkpoint{}, err
	}
	for path, to := range map[string]*model.Weights{paths.Weights: &c.Weights, paths.Mean: &c.Mean, paths.Variance: &c.Variance} {
		if *to, err = t.readTensors(path); err != nil {
			return model.Checkpoint{}, err
		}
	}
	return c, nil
}

// readTensors reads the files that the ranks wrote: of each tensor, the rows of the first
// rank, then those of the next.
func (t *trainer) readTensors(path string) (model.Weights, error) {
	var w model.Weights
	at := map[string]int{}
	for r := range t.ranks {
		part, err := readFile(fmt.Sprintf("%s.%d", path, r))
		if _, gone := os.Stat(filepath.Dir(path)); gone == nil && r > 0 && errors.Is(err, os.ErrNotExist) {
			continue // if rows are missing, the tensor's shape shows it
		}
		if err != nil {
			return nil, fmt.Errorf("read what the program saved: %w", t.missing(err))
		}
		for _, rows := range part {
			i, begun := at[rows.Name]
			if !begun {
				at[rows.Name] = len(w)
				w = append(w, rows)
				continue
			}
			w[i].Shape[0] += rows.Shape[0]
			w[i].Data = append(w[i].Data, rows.Data...)
		}
	}
	w, err := hf.ArrangeTensors(t.of.Tensors(), w)
	if err == nil {
		err = w.CheckFinite()
	}
	if err != nil {
		return nil, fmt.Errorf("read what the program saved: %w", err)
	}
	return w, nil
}

func readFile(path string) (model.Weights, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	w, _, err := hf.ReadSafetensors(f, info.Size())
	return w, err
}

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
