// Package models holds the commands that import models which others published.
package models

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/modeldir"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/files/hub"
	"github.com/fulgurite/fulgurite/update"
)

// Import is `fulgurite import`.
type Import struct {
	Source    string `arg:"" help:"A GGUF file, a Hugging Face directory, or hf:OWNER/NAME[@REVISION][:FILE.gguf] on the hub (HF_ENDPOINT and HF_TOKEN are obeyed)."`
	Directory string `arg:"" help:"Where to write the model: what a spec's model.base names." type:"path"`
	DType     string `name:"dtype" help:"Type of all weights: f32, bf16 or f16. Without it they stay as they came, and quantized ones become f32." enum:",f32,bf16,f16" default:""`
}

// Run imports a model.
func (c *Import) Run(ctx context.Context, t *terminal.Terminal) error {
	if err := vacant(c.Directory); err != nil {
		return terminal.Usage(err)
	}
	source, done, err := c.locate(ctx, t)
	if err != nil {
		return err
	}
	made, err := c.convert(t, source)
	if err != nil {
		return err
	}
	if err := done(); err != nil {
		return err
	}
	c.report(t, made)
	return nil
}

// vacant refuses a directory that has something in it.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("import to %s: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("import to %s: the directory is not empty: it has %s", dir, entries[0].Name())
	}
	return nil
}

// locate returns the path of the source on this machine, and a function to call when the
// source is no longer needed.
func (c *Import) locate(ctx context.Context, t *terminal.Terminal) (source string, done func() error, err error) {
	name, onHub := strings.CutPrefix(c.Source, "hf:")
	if !onHub {
		return c.Source, func() error { return nil }, nil
	}
	folder := filepath.Clean(c.Directory) + ".download"
	if source, err = download(ctx, t, name, folder); err != nil {
		return "", nil, err
	}
	return source, func() error { return os.RemoveAll(folder) }, nil
}

// convert writes into a temporary folder next to the directory, and renames it once it is
// complete.
func (c *Import) convert(t *terminal.Terminal, source string) (convert.Result, error) {
	stat, err := os.Stat(source)
	if errors.Is(err, fs.ErrNotExist) {
		if name := nameOnHub(source); name != "" {
			return convert.Result{}, terminal.Usage(fmt.Errorf("import: %w; a model on the hub is written hf:%s", err, name))
		}
		return convert.Result{}, terminal.Usage(fmt.Errorf("import: %w", err))
	}
	if err != nil {
		return convert.Result{}, fmt.Errorf("import: %w", err)
	}
	if instead := modeldir.InsteadOfGGUF(source); !stat.IsDir() && instead != "" {
		return convert.Result{}, terminal.Usage(fmt.Errorf("import %s: it is no GGUF file; %s", source, instead))
	}
	parent, base := filepath.Split(filepath.Clean(c.Directory))
	if err := os.MkdirAll(filepath.Join(parent, "."), 0o755); err != nil {
		return convert.Result{}, fmt.Errorf("import: %w", err)
	}
	folder, err := os.MkdirTemp(filepath.Join(parent, "."), base+".import-*")
	if err != nil {
		return convert.Result{}, fmt.Errorf("import: %w", err)
	}
	bar := progress.NewTransfer(t.Err, t.TTY, "weights")
	options := convert.Options{
		DType: hf.DType(strings.ToUpper(c.DType)), Progress: bar.Set,
		Free: func() (int64, error) { return state.FreeSpace(folder) },
	}
	from := convert.FromGGUF
	if stat.IsDir() {
		from = convert.FromDirectory
	}
	made, err := from(source, folder, options)
	bar.Close()
	if err == nil {
		err = os.Chmod(folder, 0o755)
	}
	if err == nil {
		if err = os.Remove(c.Directory); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(folder, c.Directory)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(folder))
		for _, unfit := range []error{convert.ErrFormat, convert.ErrUnsupported, hf.ErrFormat, hf.ErrUnsupported} {
			if errors.Is(err, unfit) {
				return convert.Result{}, terminal.Usage(err)
			}
		}
		return convert.Result{}, err
	}
	return made, nil
}

// nameOnHub returns the name of a model on the hub that somebody wrote without hf:, as
// OWNER/NAME or as the address of its page. It returns "" for what can't be one.
func nameOnHub(source string) string {
	name, file, revision := source, "", ""
	address := false
	for _, prefix := range []string{"https://", "http://"} {
		if rest, ok := strings.CutPrefix(source, prefix); ok {
			_, name, _ = strings.Cut(rest, "/") // behind the host
			address = true
		}
	}
	if rest, ok := strings.CutPrefix(name, "huggingface.co/"); ok {
		name, address = rest, true
	}
	parts := strings.Split(strings.TrimRight(name, "/"), "/")
	if address && len(parts) > 3 && (parts[2] == "tree" || parts[2] == "blob" || parts[2] == "resolve") {
		revision, file = "@"+parts[3], strings.Join(parts[4:], "/")
		parts = parts[:2]
	}
	name = strings.Join(parts, "/")
	if path.Ext(file) == ".gguf" {
		file = ":" + file
	} else {
		file = ""
	}
	if _, err := hub.ParseName(name + revision + file); err != nil || len(parts) != 2 || strings.HasPrefix(name, ".") {
		return ""
	}
	return name + revision + file
}

// report prints what the directory holds, and what it lacks for a run.
func (c *Import) report(t *terminal.Terminal, made convert.Result) {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(made.Source)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", made.Source[kind], kind))
	}
	a := made.Architecture
	t.Printf("%s: %d layers, %.1f million parameters, %d tokens, %d positions; tensors: %s; %d MB of weights\n",
		c.Directory, a.Layers, float64(a.Parameters())/1e6, a.VocabSize, a.MaxPositions, strings.Join(kinds, ", "), made.Bytes/1e6)
	switch {
	case made.Untied:
		t.Printf("Its config.json ties the output layer to the embedding, but its output layer has other numbers: it was kept, and config.json says so.\n")
	case made.Copied:
		t.Printf("Its output layer repeats the embedding, so it was left out.\n")
	}
	if !made.Template {
		t.Printf("It has no chat template: name one as model.template in the spec.\n")
		return
	}
	codec, _, err := dialog.ReadCodec(c.Directory, "", "")
	if err != nil {
		t.Printf("A run can't use its chat template as it is: %v\n", err)
		return
	}
	c.reportCodec(t, a, codec)
}

// reportCodec prints where replies end, how tools are called, and which tokens can't be
// used or learned.
func (c *Import) reportCodec(t *terminal.Terminal, a model.Architecture, codec dialog.Codec) {
	var ends []string
	for _, id := range codec.Stop() {
		ends = append(ends, fmt.Sprintf("%s (%d)", codec.Text([]int32{id}), id))
	}
	t.Printf("A reply ends at %s.\n", strings.Join(ends, ", "))
	sparse, ok := codec.(dialog.Sparse)
	if !ok {
		return
	}
	if format := sparse.ToolFormat(); format != "" {
		t.Printf("Its chat template shows tool calls in the format %s.\n", format)
	} else {
		t.Printf("Its chat template shows tool calls in no known format: to train calls, name one as model.tool_parser and give a template that shows it as model.template.\n")
	}
	if n := sparse.Unused(a.VocabSize).Tokens(); n > 0 {
		t.Printf("%d of its %d rows have no token: they are never sampled.\n", n, a.VocabSize)
	}
	if n := sparse.Rowless(); n > 0 {
		t.Printf("%d of its tokens have no row in the embedding: they are never sampled, and a prompt that needs one is refused.\n", n)
	}
	if text, err := update.Unlearnable(c.Directory, codec, nil); err == nil && text != "" {
		t.Printf("%s\n", text)
	}
}
