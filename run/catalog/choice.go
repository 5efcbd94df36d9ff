package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// Choice says why a reference means the version that it means.
type Choice string

// The choices.
const (
	// Numbered is the version of that number.
	Numbered Choice = "as asked"
	// Promoted is the version that the promotion rule or a person promoted.
	Promoted Choice = "promoted"
	// PromotedUnevaluated is the first version of a run in which no version was compared
	// with it.
	PromotedUnevaluated Choice = "promoted from the start; nothing was evaluated, @newest is what was trained last"
	// Newest is the version that was trained last.
	Newest Choice = "newest"
	// NewestUnevaluated is the newest version of a run without a gate split: nothing
	// compared its versions, so its first version is still promoted.
	NewestUnevaluated Choice = "newest; nothing was evaluated"
)

// Unevaluated reports whether no evaluation could have chosen the version.
func (c Choice) Unevaluated() bool { return c == NewestUnevaluated || c == PromotedUnevaluated }

// Choose is like Find, but also returns why the reference means this version.
func (c Catalog) Choose(ctx context.Context, reference string) (model.Version, Choice, error) {
	run, number, named := strings.Cut(reference, "@")
	if named && number != promoted && number != newest {
		v, err := c.numbered(ctx, reference, run, number)
		return v, Numbered, err
	}
	if number == newest {
		v, err := c.newest(ctx, run)
		return v, Newest, err
	}
	unevaluated, err := c.Unevaluated(ctx, run)
	if err != nil {
		return model.Version{}, "", fmt.Errorf("find a version of run %q: %w", run, err)
	}
	if unevaluated && !named {
		v, err := c.newest(ctx, run)
		return v, NewestUnevaluated, err
	}
	v, err := c.promoted(ctx, run)
	if unevaluated {
		return v, PromotedUnevaluated, err
	}
	return v, Promoted, err
}

// Unevaluated reports whether nothing ever compared the versions of a run: it has no
// gate split, and no person moved the promoted pointer.
func (c Catalog) Unevaluated(ctx context.Context, run string) (bool, error) {
	r, err := c.Store.Run(ctx, run)
	if err != nil {
		return false, err
	}
	if r.Splits[trace.Gate].Count > 0 {
		return false, nil
	}
	p, err := c.Store.Promoted(ctx, run, model.DefaultPolicy)
	if errors.Is(err, trace.ErrNotFound) {
		return true, nil
	}
	return p.Source == "" || p.Source == record.SourceGate, err
}

func (c Catalog) newest(ctx context.Context, run string) (model.Version, error) {
	versions, err := c.Store.Versions(ctx, run, model.DefaultPolicy)
	if err != nil {
		return model.Version{}, fmt.Errorf("find the newest version of run %q: %w", run, err)
	}
	if len(versions) == 0 {
		return model.Version{}, fmt.Errorf("find the newest version of run %q: %w", run, trace.ErrNotFound)
	}
	last := versions[0]
	for _, v := range versions {
		if v.Number > last.Number {
			last = v
		}
	}
	return last, nil
}
