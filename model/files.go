package model

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Files holds the weights of a checkpoint of a model that only engine torch computes. No
// Go process reads the numbers.
type Files struct {
	// Weights holds the files by name: either the files of the whole model, as
	// transformers loads them from a directory, or AdapterFile with PEFT's names.
	Weights map[string]Content
	// Optimizer holds both moments of the trained tensors, whose names it prefixes with
	// "mean." and "variance.". Open is nil if Updates is 0.
	Optimizer Content
	// Release, if not nil, is called when the files will not be opened again.
	Release func()
}

// Content is the content of a file. If the content does not match Digest, the Read at its
// end returns an error other than io.EOF. Digest is empty while it is not known yet.
type Content struct {
	File
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// StoredFile returns the content of the file at path, whose digest is not known yet.
func StoredFile(path string) Content {
	return Content{Open: func(context.Context) (io.ReadCloser, error) { return os.Open(path) }}
}

// CopyTo writes the content into a file at path. The file appears complete or not at all.
func (c Content) CopyTo(ctx context.Context, path string) (err error) {
	content, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // only read
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = cmp.Or(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = f.Close()           // it may be closed
		_ = os.Remove(f.Name()) // the file is not needed
	}
	return err
}

// CopyFiles writes files into the directory dir, each under its name.
func CopyFiles(ctx context.Context, dir string, files map[string]Content) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := files[name].CopyTo(ctx, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// ModelType returns the model_type that Config names, and "" without Config.
func (a Architecture) ModelType() string {
	var c struct {
		ModelType string `json:"model_type"`
	}
	if a.Config == "" || json.Unmarshal([]byte(a.Config), &c) != nil {
		return ""
	}
	return c.ModelType
}

// CheckConfig returns an error that names the field if the config alone shows that an
// architecture with Config is impossible.
func (a Architecture) CheckConfig() error {
	if a.ModelType() == "" {
		return fmt.Errorf("%w: config names no model_type", ErrArchitecture)
	}
	for _, f := range []struct {
		name    string
		n, most int
	}{
		{"vocab_size", a.VocabSize, maxUnits}, {"hidden_size", a.HiddenSize, maxUnits},
		{"layers", a.Layers, maxLayers}, {"max_positions", a.MaxPositions, maxPositions},
	} {
		if f.n < 1 || f.n > f.most {
			return fmt.Errorf("%w: %s is %d, want 1 to %d", ErrArchitecture, f.name, f.n, f.most)
		}
	}
	if a.ValueHead {
		return fmt.Errorf("%w: value_head is true, which no model of type %q has here", ErrArchitecture, a.ModelType())
	}
	return a.Unused.check(a.VocabSize)
}

// CheckFiles returns an error if a checkpoint of an architecture with Config is
// impossible. It does not read the numbers in the files.
func (c Checkpoint) CheckFiles() error {
	if err := c.Architecture.CheckConfig(); err != nil {
		return err
	}
	if c.Weights != nil || c.Mean != nil || c.Variance != nil {
		return fmt.Errorf("%w: tensors together with config, whose numbers stay in files", ErrArchitecture)
	}
	if l := c.Adapter; l != nil {
		if err := l.LoRA.CheckFor(c.Architecture); err != nil {
			return err
		}
		if l.Base == nil || l.Base.Digest == "" || len(l.Base.Files) == 0 {
			return fmt.Errorf("%w: it has no base", ErrAdapter)
		}
		if l.Base.Architecture != c.Architecture {
			return fmt.Errorf("%w: its architecture is not that of base %s", ErrAdapter, l.Base.Digest)
		}
	}
	switch {
	case c.Updates < 0:
		return fmt.Errorf("%w: %d updates", ErrArchitecture, c.Updates)
	case c.Files == nil && (c.Adapter == nil || c.Updates > 0):
		return fmt.Errorf("%w: no files", ErrArchitecture)
	case c.Files == nil:
		return nil
	case len(c.Files.Weights) == 0:
		return fmt.Errorf("%w: no files with weights", ErrArchitecture)
	case c.Adapter != nil && c.Files.Weights[AdapterFile].Open == nil:
		return fmt.Errorf("%w: no %s", ErrAdapter, AdapterFile)
	case c.Updates > 0 && c.Files.Optimizer.Open == nil:
		return fmt.Errorf("%w: no %s after %d updates", ErrArchitecture, OptimizerFile, c.Updates)
	}
	return nil
}

// WithoutMoments returns c with a fresh optimizer.
func (c Checkpoint) WithoutMoments() Checkpoint {
	c.Updates, c.Mean, c.Variance = 0, nil, nil
	if c.Files != nil {
		files := *c.Files
		files.Optimizer = Content{}
		c.Files = &files
	}
	return c
}

// Release declares that the files of c are not needed any more.
func (c Checkpoint) Release() {
	if c.Files != nil && c.Files.Release != nil {
		c.Files.Release()
	}
}

// moduleName is a name that a linear layer may have.
var moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// CheckFor is like Check, but for a given architecture. If a has Config, a linear layer
// may have any name, and the rounding of the base is not checked.
func (l LoRA) CheckFor(a Architecture) error {
	if a.Config == "" {
		return l.Check()
	}
	if err := l.CheckTokens(a); err != nil {
		return err
	}
	known := l
	known.Targets = LoRATargets()
	if err := known.Check(); err != nil {
		return err
	}
	if l.Precision() != F32 {
		return fmt.Errorf("%w: base_precision is %s: the base of a model of type %q keeps the precision of its files: leave it out", ErrAdapter, l.BasePrecision, a.ModelType())
	}
	for i, t := range l.Targets {
		if !moduleName.MatchString(t) || slices.Contains(l.Targets[:i], t) {
			return fmt.Errorf("%w: target %q is not a name, or is given twice", ErrAdapter, t)
		}
	}
	if len(l.Targets) == 0 {
		return fmt.Errorf("%w: targets is empty", ErrAdapter)
	}
	return nil
}
