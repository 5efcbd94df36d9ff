package trial

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/results"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/stack"
	"github.com/fulgurite/fulgurite/model"
)

// WarmStart is `fulgurite warm-start`.
type WarmStart struct {
	Spec      string `arg:"" help:"Spec file with model.warm_start." type:"path"`
	Directory string `arg:"" help:"Where to write config.json and model.safetensors." type:"path"`
}

// Run makes version 0 of the spec in a stack that leaves nothing else behind.
func (c *WarmStart) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	p, err := plan.Make(c.Spec)
	if err != nil {
		return err
	}
	sp := p.Spec
	if sp.Model.WarmStart == nil {
		return terminal.Usagef("%s has no model.warm_start", c.Spec)
	}
	return inTrial(ctx, s, t, sp, func(st *stack.Stack) error {
		if _, err := runTrial(ctx, st, sp, 0, false); err != nil {
			return err
		}
		recorded, err := st.Catalog.Spec(ctx, trialRun)
		if err != nil {
			return err
		}
		architecture, weights, digest, err := st.Catalog.Load(ctx, model.VersionID{Run: trialRun, Policy: model.DefaultPolicy})
		if err == nil {
			err = results.WriteModel(ctx, st.Catalog.Blobs, c.Directory, recorded.Model.Codec, architecture, weights)
		}
		if err != nil {
			return fmt.Errorf("export the warm start: %w", err)
		}
		t.Printf("warm start %s is in %s\n", digest, c.Directory)
		return nil
	})
}
