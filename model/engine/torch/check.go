package torch

import (
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// checkCheckpoint reports the first tensor that does not match or is not finite.
func checkCheckpoint(c model.Checkpoint) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Moments != model.MomentsF32 && c.Moments != model.MomentsInt8 {
		return fmt.Errorf("moments %q: there are %q and %q", c.Moments, model.MomentsF32, model.MomentsInt8)
	}
	if c.Updates < 0 {
		return fmt.Errorf("%d updates", c.Updates)
	}
	for _, of := range []struct {
		name    string
		tensors model.Weights
	}{{"weights", c.Weights}, {"mean", c.Mean}, {"variance", c.Variance}} {
		if of.tensors == nil && c.Updates == 0 {
			continue
		}
		if err := c.Match(of.tensors); err != nil {
			return fmt.Errorf("%s after %d updates: %w", of.name, c.Updates, err)
		}
		if err := of.tensors.CheckFinite(); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}
