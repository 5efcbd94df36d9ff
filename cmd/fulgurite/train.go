package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/record"
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
		return c.failed(ctx, s, t, temporal, name, err)
	}
	if c.JSON {
		return t.json(trainResult{result, result.Steps, sp.Tasks.Gate != ""})
	}
	summarize(t, result, sp.Tasks.Gate != "")
	return nil
}

// trainResult is what a run came to, with what its record alone does not say.
type trainResult struct {
	workflows.TrainingResult
	Newest int `json:"newest"` // the version that was trained last
	// Evaluated is whether versions were compared on a gate split: else nothing but the
	// start was promoted.
	Evaluated bool `json:"evaluated"`
}

// failed tells how a run ended that did not complete, and what can be done.
func (c *trainCommand) failed(ctx context.Context, s *shared, t *terminal, temporal client.Client, name string, cause error) error {
	out := runStatus{Run: name, Status: record.Failed, Error: workflows.Reason(cause)}
	if ended, err := unrecordedRun(ctx, temporal, name); err == nil && ended.Status != record.Running && ended.Status != record.Completed {
		out.Status, out.Error = ended.Status, ended.Failure().Error
	}
	if c.JSON {
		if err := t.json(out); err != nil {
			return err
		}
	}
	if refused(cause) {
		return usageError{fmt.Errorf("run %s: %s", name, out.Error)}
	}
	return fmt.Errorf("run %s %s: %s\nOnce the cause is mended: fulgurite retry%s %s", name, out.Status, out.Error, s.flag(), name)
}

// refused reports whether a run ended because its spec was refused.
func refused(err error) bool {
	var failure *sdk.ApplicationError
	return errors.As(err, &failure) && failure.Type() == activities.ErrTypeRefused
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

// summarize says what a run came to. Each step made a version, so that the number of
// steps is that of the newest one.
func summarize(t *terminal, r workflows.TrainingResult, evaluated bool) {
	if evaluated {
		t.printf("Run %s: %s, version %d is promoted.\n", r.Run, count(r.Steps, "step"), r.Promoted)
	} else {
		t.printf("Run %s: %s. Nothing was evaluated, since the spec has no tasks.gate: version %d is the newest, and version %d stays promoted.\n",
			r.Run, count(r.Steps, "step"), r.Steps, r.Promoted)
		t.printf("Take the newest with:  fulgurite export %s@newest DIR\n", r.Run)
	}
	if r.Before != nil && r.After != nil {
		t.printf("Test reward: %s before, %s after.\n", describe(*r.Before), describe(*r.After))
	}
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
