package trial

import (
	"context"
	"fmt"

	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/run/export"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// WarmStart is `fulgurite warm-start`.
type WarmStart struct {
	Spec      string `arg:"" help:"Spec file with model.warm_start." type:"path"`
	Directory string `arg:"" help:"Where to write config.json and model.safetensors." type:"path"`
}

// Run makes version 0 of the spec in a temporary stack. Nothing else of the stack
// remains.
func (c *WarmStart) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	p, err := plan.Make(ctx, c.Spec)
	if err != nil {
		return err
	}
	sp := p.Spec
	if sp.Model.WarmStart == nil {
		return terminal.Usagef("%s has no model.warm_start", c.Spec)
	}
	input, err := plan.Input(sp)
	if err != nil {
		return err
	}
	return inStack(ctx, s, t, sp, "", 0, func(st *stack.Stack, warnings *observer.ObservedLogs) error {
		w := watcher{st: st, warnings: warnings}
		out, stuck, err := w.watch(ctx, workflows.TryInput{Training: input})
		switch {
		case err != nil:
			return err
		case stuck != nil:
			return fmt.Errorf("trial: %s", stuck.Failure)
		case out.Failure != "":
			return fmt.Errorf("trial: %s", out.Failure)
		}
		recorded, err := st.Catalog.Spec(ctx, trialRun)
		if err != nil {
			return err
		}
		k, digest, err := st.Catalog.Load(ctx, model.VersionID{Run: trialRun, Policy: model.DefaultPolicy})
		if err == nil {
			err = export.Directory(ctx, st.Catalog.Blobs, c.Directory, recorded.Model.Codec, k)
		}
		if err != nil {
			return fmt.Errorf("export the warm start: %w", err)
		}
		t.Printf("warm start %s is in %s\n", digest, c.Directory)
		return nil
	})
}
