// Package results holds the commands that show the results of a run or write them for
// other programs: versions, credit, training data, and the report on the run.
package results

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/run/export"
)

// Export is `fulgurite export`.
type Export struct {
	Version   string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated."`
	Directory string `arg:"" help:"Where to write the files." type:"path"`
	Format    string `help:"hf: config.json, model.safetensors and, if the model has them, its tokenizer and chat template, an adapter merged into its base (merged is the same); peft: the adapter alone, as PEFT loads it; gguf: one file for llama.cpp, Ollama and others." enum:"hf,merged,peft,gguf" default:"hf"`
	Type      string `help:"Type of the matrices in a GGUF file: f16, bf16, q8_0 or f32." enum:"f16,bf16,q8_0,f32" default:"f16"`

	Records state.RecordFlags `embed:""`
}

// Run writes a version.
func (c *Export) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	v, choice, err := records.Catalog.Choose(ctx, c.Version)
	if err != nil {
		return err
	}
	recorded, err := records.Catalog.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	k, digest, err := records.Catalog.Load(ctx, v.VersionID)
	where := c.Directory
	if err == nil {
		where, err = export.Version{Name: v.String(), Model: recorded.Model, Checkpoint: k, Blobs: records.Blobs}.Write(ctx, c.Directory, c.Format, c.Type)
	}
	if errors.Is(err, export.ErrFormat) || errors.Is(err, model.ErrAdapter) {
		err = terminal.Usage(err)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", v.VersionID, err)
	}
	name := v.String()
	if choice.Unevaluated() {
		name = fmt.Sprintf("%s (%s)", name, choice)
	}
	t.Printf("%s (%s) is in %s\n", name, digest, where)
	return nil
}
