// Package results holds the commands that show, and write for others, what a run came
// to: versions, credit, training data, and the account of it all.
package results

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/model/hf"
)

// Export is `fulgurite export`.
type Export struct {
	Version   string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated."`
	Directory string `arg:"" help:"Where to write config.json, model.safetensors and, if the model has them, its tokenizer and chat template." type:"path"`

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
	architecture, weights, digest, err := records.Catalog.Load(ctx, v.VersionID)
	if err == nil {
		err = WriteModel(ctx, records.Blobs, c.Directory, recorded.Model.Codec, architecture, weights)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", v.VersionID, err)
	}
	name := v.String()
	if choice.Unevaluated() {
		name = fmt.Sprintf("%s (%s)", name, choice)
	}
	t.Printf("%s (%s) is in %s\n", name, digest, c.Directory)
	return nil
}

// WriteModel writes a model as a Hugging Face directory, with its tokenizer and chat
// template if it has some.
func WriteModel(ctx context.Context, blobs checkpoint.Blobs, dir, codec string, a model.Architecture, w model.Weights) error {
	if digest, ok := strings.CutPrefix(codec, dialog.TemplatePrefix); ok {
		encoded, err := blobs.Get(ctx, digest)
		if err != nil {
			return fmt.Errorf("read codec: %w", err)
		}
		bundle, err := dialog.DecodeBundle(encoded)
		if err != nil {
			return err
		}
		if err := bundle.WriteDirectory(dir); err != nil {
			return err
		}
	}
	return hf.WriteDirectory(dir, a, w)
}
