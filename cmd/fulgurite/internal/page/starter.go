package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/training"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/pageserver"
)

// starter starts runs as `fulgurite train --detach` does.
type starter struct {
	pageserver.Operate
	state  *state.Flags
	folder string
}

// Folder implements actions.Starter.
func (s starter) Folder() string { return s.folder }

// Plan implements actions.Starter.
func (s starter) Plan(ctx context.Context, text []byte, name string) (actions.Plan, error) {
	p, name, err := s.planOf(ctx, text, name)
	if err != nil {
		return actions.Plan{}, err
	}
	var b bytes.Buffer
	p.Print(&terminal.Terminal{Out: &b, Err: &b})
	return actions.Plan{Name: name, Digest: p.Digest, Text: b.String()}, nil
}

func (s starter) planOf(ctx context.Context, text []byte, name string) (plan.Plan, string, error) {
	p, err := plan.OfText(ctx, text, "spec", s.folder)
	if err != nil {
		return p, "", err
	}
	if err := p.Spec.Trainable(); err != nil {
		return p, "", err
	}
	if name == "" {
		name = p.Spec.Name
	}
	if name == "" {
		return p, "", errors.New("name: the spec has none, so give the run one")
	}
	if err := trace.CheckRunName(name); err != nil {
		return p, "", fmt.Errorf("name: %w", err)
	}
	return p, name, nil
}

// Start implements actions.Starter.
func (s starter) Start(ctx context.Context, a record.Action, text []byte) (record.Action, error) {
	a.Outcome = record.ActionRefused
	p, name, err := s.planOf(ctx, text, a.Run)
	if err == nil && p.Digest != a.Input.Digest {
		err = errors.New("what it would run is not what was shown any more: look at its plan again")
	}
	if err != nil {
		a.Result.Message = err.Error()
		return a, err
	}
	a.Outcome, a.Run = record.ActionAsked, name
	c, err := s.Temporal(ctx)
	if err != nil {
		return a, err
	}
	under, err := training.UnderWay(ctx, c, name)
	if err != nil {
		return a, err
	}
	if free, known := s.state.FreeForRun(); known && !under {
		if err := p.CheckRoom(free, memory.Limit()); err != nil {
			a.Outcome, a.Result.Message = record.ActionRefused, err.Error()
			return a, err
		}
	}
	_, a, err = training.StartRecorded(ctx, c, s.Operator, a, p.Spec)
	return a, err
}
