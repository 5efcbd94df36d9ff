// Package training starts a run and follows it to its end.
package training

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	sdk "go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite train`.
type Command struct {
	Spec   string `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	Name   string `help:"Name of the run (default: the spec's name, or the file's)."`
	Detach bool   `help:"Return once the run is started."`
	JSON   bool   `help:"Print the result as JSON, and no progress." name:"json"`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{trainResult{}, Started{}, status.Status{}} }

// Run starts the run of a spec, or attaches to it, and follows it.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	p, err := plan.Make(ctx, c.Spec)
	if err != nil {
		return err
	}
	if err := p.Spec.Trainable(); err != nil {
		return err
	}
	p.WarnOfTasks(t)
	sp := p.Spec
	name, err := runName(c.Name, sp.Name, c.Spec)
	if err != nil {
		return err
	}
	e := Execution{Name: name, Plan: p, Again: c.again(), Detach: c.Detach, JSON: c.JSON}
	result, err := e.Run(ctx, s, t)
	if err != nil || c.Detach {
		return err
	}
	before, after := passes(ctx, s, t, result, sp)
	if c.JSON {
		return t.JSON(trainResult{result, result.Steps, sp.Tasks.Gate != "", before, after})
	}
	svg := drawOwn(ctx, s, t, result)
	summarize(s, t, result, sp.Tasks.Gate != "")
	if before != nil && after != nil {
		for i, p := range before.ByK {
			t.Printf("  pass@%d: %s before, %s after.\n", p.K, p.At, after.ByK[i].At)
		}
	}
	if svg != "" {
		t.Printf("Reward curve: %s\n", svg)
	}
	return nil
}

// again returns the words of the command that follows the run again.
func (c *Command) again() []string {
	words := []string{"train", c.Spec}
	if c.Name != "" {
		words = append(words, "--name", c.Name)
	}
	if c.JSON {
		words = append(words, "--json")
	}
	return words
}

// drawOwn draws the curve of a run that is recorded in the directory, and returns the
// path of its SVG. It returns "" if the run is not recorded there, or if the record can't
// be read.
func drawOwn(ctx context.Context, s *state.Flags, t *terminal.Terminal, r workflows.TrainingResult) string {
	if !s.Own() {
		return ""
	}
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return ""
	}
	defer records.Close()
	svg, err := DrawCurve(ctx, t, records.Store, r.Run, s.Layout().Run(r.Run))
	if err != nil {
		fmt.Fprintf(t.Err, "fulgurite: draw the curve of run %s: %v\n", r.Run, err)
	}
	return svg
}

// passes returns how often several attempts solve the tasks of the test split, before and
// after training. Both are nil if each task was attempted once, or if this machine has no
// record of the run.
func passes(ctx context.Context, s *state.Flags, t *terminal.Terminal, r workflows.TrainingResult, sp spec.Spec) (before, after *evaluation.Passes) {
	if r.Before == nil || r.After == nil || sp.Evaluation.Samples < 2 {
		return nil, nil
	}
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return nil, nil
	}
	defer records.Close()
	all, err := records.Store.Evaluations(ctx, r.Run)
	if err != nil {
		return nil, nil
	}
	evaluated, err := report.Evaluations(ctx, records.Store, all, sp)
	if err != nil {
		return nil, nil
	}
	for _, e := range evaluated {
		if e.Kind != trace.Test {
			continue
		}
		// A run of this name in another store has another mean.
		if e.Version == 0 && e.Mean == r.Before.Mean {
			before = e.Pass
		}
		if e.Version == r.Promoted && e.Mean == r.After.Mean { // it may be the first version, too
			after = e.Pass
		}
	}
	return before, after
}

// trainResult is the outcome of a run, with facts that are not in its record.
type trainResult struct {
	workflows.TrainingResult
	Newest int `json:"newest"` // the version that was trained last
	// Evaluated is true if versions were compared on a gate split. Otherwise version 0
	// stays promoted.
	Evaluated bool `json:"evaluated"`
	// PassBefore and PassAfter are of the test split, with several attempts at each task.
	PassBefore *evaluation.Passes `json:"pass_before,omitempty"`
	PassAfter  *evaluation.Passes `json:"pass_after,omitempty"`
}

// refused reports whether a run ended because its spec was refused.
func refused(err error) bool {
	var failure *sdk.ApplicationError
	return errors.As(err, &failure) && failure.Type() == activities.ErrTypeRefused
}

// runName returns the first name that is not empty: that of the flag, that of the spec,
// or one made from the file's name.
func runName(flag, inSpec, file string) (string, error) {
	name, origin := flag, "--name"
	if name == "" {
		name, origin = inSpec, "name in "+file
	}
	if name == "" {
		name = strings.ToLower(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
		origin = "the run is named for the file " + file + ", as neither --name nor the spec names it"
	}
	if err := trace.CheckRunName(name); err != nil {
		return "", terminal.Usagef("%s: %w", origin, err)
	}
	return name, nil
}

// summarize prints the outcome of a run. Each step made a version, so the number of steps
// is the number of the newest version.
func summarize(s *state.Flags, t *terminal.Terminal, r workflows.TrainingResult, evaluated bool) {
	steps := readable.Count(r.Steps, "step")
	if r.Stopped != nil {
		steps = fmt.Sprintf("stopped at %d of %d, %s", r.Stopped.After, r.Stopped.Of, terminal.Escape(r.Stopped.Text()))
	}
	if evaluated {
		t.Printf("Run %s: %s, version %d is promoted.\n", r.Run, steps, r.Promoted)
	} else {
		t.Printf("Run %s: %s. Nothing was evaluated, since the spec has no tasks.gate: version %d is the newest, and version %d stays promoted.\n",
			r.Run, steps, r.Steps, r.Promoted)
		t.Printf("Take the newest with:  %s\n", s.Command("export", r.Run+"@newest", "DIRECTORY"))
	}
	if r.Before != nil && r.After != nil {
		t.Printf("Test reward: %s before, %s after.\n", Describe(*r.Before), Describe(*r.After))
	}
}

// Describe returns the results of an evaluation as a short text.
func Describe(e activities.Evaluation) string {
	s := fmt.Sprintf("%.3f ± %.3f", e.Mean, e.StdError)
	if e.Greedy != nil {
		s += fmt.Sprintf(" (at temperature 0: %.3f)", *e.Greedy)
	}
	return s
}
