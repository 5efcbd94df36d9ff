package torch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
