// Package trial implements `fulgurite try`, which runs a few tasks of a spec in a
// temporary stack and finds what would prevent learning. It also implements `fulgurite
// warm-start`, which makes version 0 in such a stack.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/update"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite try`.
type Command struct {
	Spec    string   `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	Tasks   int      `help:"How many tasks to run." default:"2"`
	Task    []string `help:"Run this task in their place, by its id; may be repeated." placeholder:"ID" sep:"none"`
	Samples int      `help:"How often to run each (default: the spec's training.samples_per_task)." placeholder:"N"`
	Twice   bool     `help:"Run every rollout twice and show where the second attempt can't be replayed."`
	Keep    string   `help:"Keep the trial in this new directory, for commands with --dir." placeholder:"DIR" type:"path"`
	Port    int      `help:"Port of the trial's Temporal, for workers of agent.temporal (default: any)." placeholder:"PORT"`
	JSON    bool     `help:"Print JSON." name:"json"`
}

// errTrial ends a trial that found what stops learning for certain.
var errTrial = errors.New("the trial found what stops learning")

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{report{}} }

// Run runs the trial and prints its findings.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Tasks < 1 {
		return terminal.Usagef("--tasks %d: want at least 1", c.Tasks)
	}
	if c.Samples < 0 {
		return terminal.Usagef("--samples %d: want at least 1", c.Samples)
	}
	p, err := plan.Make(ctx, c.Spec)
	if err != nil {
		return err
	}
	input := workflows.TryInput{Tasks: c.Tasks, Samples: c.Samples, Twice: c.Twice}
	if input.Indices, err = c.chosen(ctx, p.Spec); err != nil {
		return err
	}
	if input.Training, err = plan.Input(p.Spec); err != nil {
		return err
	}
	if err := c.checkKeep(); err != nil {
		return err
	}
	return inStack(ctx, s, t, p.Spec, c.Keep, c.Port, func(st *stack.Stack, warnings *observer.ObservedLogs) error {
		if a := p.Spec.Agent.Temporal; a != nil {
			fmt.Fprintf(t.Err, "The trial's Temporal is at %s: a worker of yours has to poll the task queue %q there (--port keeps the port).\n",
				st.TemporalAddress(), a.Queue)
		}
		report, err := try(ctx, st, warnings, p.Spec, input)
		if err != nil {
			return err
		}
		report.Kept = c.Keep
		report.Warnings = append(report.Warnings, p.Shared...)
		if l := p.Spec.Model.LoRA; l != nil && l.Adapter != "" {
			report.Adapter = fmt.Sprintf("%s (%s)", l.Adapter, l.AdapterDigest)
		}
		report.Problems, report.Warnings = s.Place().CompleteAll(report.Problems), s.Place().CompleteAll(report.Warnings)
		if c.JSON {
			err = t.JSON(report)
		} else {
			report.print(t)
		}
		return errors.Join(err, report.verdict(), report.Twice.verdict())
	})
}

// chosen returns the indices of the tasks whose ids were given.
func (c *Command) chosen(ctx context.Context, sp spec.Spec) ([]int, error) {
	if len(c.Task) == 0 {
		return nil, nil
	}
	list, err := tasks.OpenSplit(ctx, sp.Tasks, sp.Tasks.Train)
	if err != nil {
		return nil, terminal.Usage(fmt.Errorf("tasks.train: %w", err))
	}
	var out []int
	for _, id := range c.Task {
		i := slices.IndexFunc(list, func(t tasks.Task) bool { return t.ID == id })
		if i < 0 {
			return nil, terminal.Usagef("--task %s: no task of tasks.train has this id; the first one's is %s", id, list[0].ID)
		}
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out, nil
}

// checkKeep returns an error unless the directory of a trial to keep is new or empty, so
// that no files are lost or mixed up.
func (c *Command) checkKeep() error {
	if c.Keep == "" {
		return nil
	}
	switch found, err := os.ReadDir(c.Keep); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return terminal.Usage(fmt.Errorf("--keep: %w", err))
	case len(found) > 0:
		return terminal.Usagef("--keep %s: it is not empty; give a directory of its own to each trial", c.Keep)
	}
	return nil
}

// try runs a trial and reads its record.
func try(ctx context.Context, st *stack.Stack, warnings *observer.ObservedLogs, sp spec.Spec, input workflows.TryInput) (report, error) {
	out := report{Attempts: []attempt{}, Problems: []string{}, Warnings: []string{}}
	if text := unreachable(ctx, sp); text != "" {
		out.Problems = append(out.Problems, text)
		return out, nil
	}
	r := trialReader{st: st, input: input}
	l := watcher{st: st, warnings: warnings, rollouts: r.rollouts(sp)}
	var err error
	if r.trial, r.stuck, err = l.watch(ctx, input); err != nil {
		return out, err
	}
	if r.spec, err = r.recorded(ctx, sp); err != nil {
		return out, err
	}
	if err := r.read(ctx, &out); err != nil {
		return out, err
	}
	if sp.Model.Codec == spec.CodecTemplate && sp.Model.LoRA != nil {
		if codec, _, err := dialog.ReadCodecWith(sp.Model.Base, update.CodecChoices(sp)); err == nil {
			tokens, err := update.TrainedTokens(sp.Model, codec)
			if text, also := update.Unlearnable(sp.Model.Base, codec, tokens); err == nil && also == nil && text != "" {
				out.Warnings = append(out.Warnings, text)
			}
		}
	}
	if input.Twice && len(r.trial.Again) == len(r.trial.Groups) {
		out.Twice, err = compareTwice(ctx, st, r.trial)
	}
	return out, err
}

// recorded returns the spec that the trial's run has recorded, or the given one if none
// was recorded.
func (r trialReader) recorded(ctx context.Context, given spec.Spec) (spec.Spec, error) {
	s, err := r.st.Catalog.Spec(ctx, trialRun)
	if errors.Is(err, trace.ErrNotFound) {
		return given, nil
	}
	return s, err
}

// firstLine returns the first line of a text, for a list of causes.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
