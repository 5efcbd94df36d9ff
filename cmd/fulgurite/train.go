package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

type trainCommand struct {
	Spec   string `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	Name   string `help:"Name of the run (default: the spec's name, or the file's)."`
	Detach bool   `help:"Return once the run is started."`
	JSON   bool   `help:"Print the result as JSON, and no progress." name:"json"`
}

func (c *trainCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	p, err := makePlan(c.Spec)
	if err != nil {
		return err
	}
	if err := p.Spec.Trainable(); err != nil {
		return err
	}
	sp := p.Spec
	name, err := runName(c.Name, sp.Name, c.Spec)
	if err != nil {
		return err
	}
	temporal, err := s.dial(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	run, err := startRun(ctx, temporal, name, sp)
	if err != nil {
		return err
	}
	if c.Detach {
		if c.JSON {
			return t.json(map[string]string{"run": name})
		}
		t.printf("Run %s is under way: fulgurite status %s\n", name, name)
		return nil
	}
	out := t
	if c.JSON {
		out = &terminal{out: t.err, err: t.err}
	}
	display := progress.New(out.out, out.tty)
	result, err := followThrough(ctx, temporal, run, sp, display, fmt.Sprintf("; `fulgurite dev%s` starts it again", s.flag()), s.scarcity)
	display.Close()
	if err != nil && ctx.Err() != nil {
		out.printf("Run %s goes on without this terminal: fulgurite status %s\n", name, name)
		return err
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	if c.JSON {
		return t.json(result)
	}
	summarize(t, result)
	return nil
}

// loadSpec reads a spec file completely: defaults filled in, everything checked.
func loadSpec(path string) (spec.Spec, error) {
	sp, err := spec.Load(path)
	if err != nil {
		return sp, usageError{err}
	}
	sp = sp.WithDefaults()
	if err := sp.Check(); err != nil {
		return sp, usageError{fmt.Errorf("%s: %w", path, err)}
	}
	return sp, nil
}

// encodeSpec is a spec as the input of TrainingWorkflow.
func encodeSpec(s spec.Spec) (workflows.TrainingInput, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return workflows.TrainingInput{}, fmt.Errorf("encode spec: %w", err)
	}
	return workflows.TrainingInput{Spec: data}, nil
}

// runName is the first of the names given, the last being made from the file's.
func runName(flag, inSpec, file string) (string, error) {
	name := flag
	if name == "" {
		name = inSpec
	}
	if name == "" {
		name = strings.ToLower(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	}
	if err := trace.CheckRunName(name); err != nil {
		return "", usageError{err}
	}
	return name, nil
}

// summarize says what a run came to.
func summarize(t *terminal, r workflows.TrainingResult) {
	t.printf("Run %s: %d steps, version %d is promoted.\n", r.Run, r.Steps, r.Promoted)
	if r.Before != nil && r.After != nil {
		t.printf("Test reward: %s before, %s after.\n", describe(*r.Before), describe(*r.After))
	}
}
