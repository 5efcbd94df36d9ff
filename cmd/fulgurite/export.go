package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/catalog"
	"github.com/fulgurite/fulgurite/internal/stack"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
)

type exportCommand struct {
	Version   string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated."`
	Directory string `arg:"" help:"Where to write config.json, model.safetensors and, if the model has them, its tokenizer and chat template." type:"path"`

	Records recordFlags `embed:""`
}

func (c *exportCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	db, blobs, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	k := catalog.Catalog{Store: db, Blobs: blobs}
	v, choice, err := k.Choose(ctx, c.Version)
	if err != nil {
		return err
	}
	recorded, err := k.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	architecture, weights, digest, err := k.Load(ctx, v.VersionID)
	if err == nil {
		err = writeModel(ctx, blobs, c.Directory, recorded.Model.Codec, architecture, weights)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", v.VersionID, err)
	}
	name := v.String()
	if choice.Unevaluated() {
		name = fmt.Sprintf("%s (%s)", name, choice)
	}
	t.printf("%s (%s) is in %s\n", name, digest, c.Directory)
	return nil
}

// writeModel writes a model as a Hugging Face directory, with its tokenizer and chat
// template if it has some.
func writeModel(ctx context.Context, blobs checkpoint.Blobs, dir, codec string, a model.Architecture, w model.Weights) error {
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

type warmStartCommand struct {
	Spec      string `arg:"" help:"Spec file with model.warm_start." type:"path"`
	Directory string `arg:"" help:"Where to write config.json and model.safetensors." type:"path"`
}

// Run makes version 0 of the spec in a stack that leaves nothing else behind.
func (c *warmStartCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	p, err := makePlan(c.Spec)
	if err != nil {
		return err
	}
	sp := p.Spec
	if sp.Model.WarmStart == nil {
		return usagef("%s has no model.warm_start", c.Spec)
	}
	return inTrial(ctx, s, t, sp, func(st *stack.Stack) error {
		if _, err := runTrial(ctx, st, sp, 0, false); err != nil {
			return err
		}
		recorded, err := st.Catalog.Spec(ctx, trialRun)
		if err != nil {
			return err
		}
		architecture, weights, digest, err := st.Catalog.Load(ctx, model.VersionID{Run: trialRun, Policy: mainPolicy})
		if err == nil {
			err = writeModel(ctx, st.Catalog.Blobs, c.Directory, recorded.Model.Codec, architecture, weights)
		}
		if err != nil {
			return fmt.Errorf("export the warm start: %w", err)
		}
		t.printf("warm start %s is in %s\n", digest, c.Directory)
		return nil
	})
}

type schemaCommand struct{}

func (schemaCommand) Run(t *terminal) error {
	schema, err := spec.Schema()
	if err != nil {
		return err
	}
	t.printf("%s", schema)
	return nil
}
