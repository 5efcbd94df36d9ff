// Package results holds the commands that show the results of a run or write them for
// other programs: versions, credit, training data, and the report on the run.
package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/atif"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/export"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/report/agents"
	"github.com/fulgurite/fulgurite/run/report/timing"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Report is `fulgurite report`.
type Report struct {
	Run_    string            `arg:"" name:"run" help:"Name of the run."`
	Agents  bool              `help:"Also read and grade again what each agent said in the evaluations of the first, the promoted and the newest version: the reward of its replies by themselves, and how the attempts ended."`
	Cluster string            `help:"With --agents, a key of the tasks' metadata: tasks with one value of it are alike, as questions about one database are. Intervals are then by its values." placeholder:"KEY"`
	Time    bool              `help:"Also read the times of all model calls and tell where the time of finished steps went: starting agents, prefill, decoding, grading, the update and waiting."`
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Report) Outputs() []any { return []any{report.Report{}} }

// Run returns an error if the report finds faults in the run, so that scripts can test
// the exit code.
func (c *Report) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Cluster != "" && !c.Agents {
		return terminal.Usage(errors.New("--cluster is about the intervals of --agents: give both"))
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	r, err := report.Of(ctx, status.LiveStore{Store: records.Store, State: s, Terminal: t}, records.Blobs, c.Run_, model.DefaultPolicy)
	if err != nil {
		return err
	}
	if c.Agents {
		r.Agents, err = c.agents(ctx, records)
		if errors.Is(err, evaluation.ErrIncomparable) {
			return terminal.Usage(err)
		}
		if err != nil {
			return err
		}
	}
	r.Error = s.Place().Complete(r.Error)
	if c.Time {
		if r.Time, err = timing.Of(ctx, records.Store, c.Run_, model.DefaultPolicy); err != nil {
			return err
		}
	}
	if c.JSON {
		err = t.JSON(r)
	} else {
		err = r.WriteText(t.Out)
	}
	if err == nil && !r.OK() {
		err = fmt.Errorf("run %s: %s, %s skipped, %d duplicated", c.Run_, readable.Count(len(r.Faults), "fault"), readable.Count(r.Prompts.Skipped, "prompt"), r.Prompts.Duplicated)
	}
	return err
}

// agents returns what each agent contributed.
func (c *Report) agents(ctx context.Context, records fleet.Records) (out *agents.Report, err error) {
	var graders grading.Graders
	defer func() { err = errors.Join(err, graders.Close()) }()
	source := agents.Source{Store: records.Store, Blobs: records.Blobs, Graders: &graders, Run: c.Run_, Policy: model.DefaultPolicy, Cluster: c.Cluster}
	return source.Report(ctx)
}

// Data is `fulgurite data`.
type Data struct {
	Run_ string `arg:"" name:"run" help:"Name of the run."`
	File string `arg:"" help:"Where to write; the name ends in .jsonl or .parquet. A pipe or /dev/stdout gets JSONL." type:"path"`
	Rows string `help:"What a row is: transitions (model calls), sequences (rows of batches), corrections (prompts with corrected texts), pairs (prompts with a chosen and a rejected reply), or atif. The default is pairs or corrections if the run learns from those, and transitions otherwise. \"atif\" writes each attempt, of every split, as a trajectory in Harbor's format ATIF 1.7; the name of the file then ends in .jsonl." enum:",transitions,sequences,corrections,pairs,atif" default:""`

	Records state.RecordFlags `embed:""`
}

// rowsATIF is the value of --rows for trajectories, which Harbor's tools read.
const rowsATIF = "atif"

// Run writes the data that a run was trained on, in a format of other trainers, or all
// attempts of a run as trajectories.
func (c *Data) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	kind, err := c.kind(ctx, records)
	if err != nil {
		return err
	}
	bodies := kind == dataset.RowsTransitions || kind == rowsATIF // others are made of batches alone
	if err := refuseRemoved(ctx, records, c.Run_, 0, 0, bodies); err != nil {
		return err
	}
	source := dataset.Source{Store: records.Store, Blobs: records.Blobs, Codecs: records.Codecs, Run: c.Run_, Policy: model.DefaultPolicy}
	var rows int
	row := strings.TrimSuffix(kind, "s")
	switch kind {
	case rowsATIF:
		row = "attempt"
		attempts := atif.Source{Store: records.Store, Blobs: records.Blobs, Run: c.Run_, Policy: model.DefaultPolicy}
		rows, err = dataset.WriteLines(ctx, c.File, attempts.Trajectories)
	case dataset.RowsSequences:
		rows, err = dataset.WriteFile(ctx, c.File, source.Sequences)
	case dataset.RowsCorrections:
		rows, err = dataset.WriteFile(ctx, c.File, source.Corrections)
	case dataset.RowsPairs:
		rows, err = dataset.WriteFile(ctx, c.File, source.Pairs)
	default:
		rows, err = dataset.WriteFile(ctx, c.File, source.Transitions)
	}
	switch {
	case errors.Is(err, dataset.ErrFormat), errors.Is(err, dataset.ErrRows):
		return terminal.Usage(err)
	case err != nil:
		return err
	}
	out := t.Out
	if dataset.IsStream(c.File) {
		out = t.Err // the rows may be in the standard output
	}
	fmt.Fprintf(out, "%s of %s %s in %s\n", readable.Count(rows, row), c.Run_, readable.IsOrAre(rows), c.File)
	return nil
}

// kind returns what a row is. Unless it was said, that follows from what the run learns
// from.
func (c *Data) kind(ctx context.Context, records fleet.Records) (string, error) {
	if c.Rows != "" {
		return c.Rows, nil
	}
	run, err := records.Store.Run(ctx, c.Run_)
	if err != nil {
		return "", fmt.Errorf("read run %s: %w", c.Run_, err)
	}
	of, err := spec.Stored(run.Spec)
	if err != nil {
		return "", fmt.Errorf("decode the spec of run %s: %w", c.Run_, err)
	}
	return dataset.Rows(of), nil
}

// refuseRemoved returns an error if something was removed from a run that a step is computed
// from again; step 0 means any step. earlier is how many steps before it are read, too, and
// bodies says whether the bodies of calls are needed.
func refuseRemoved(ctx context.Context, records fleet.Records, run string, step, earlier int, bodies bool) error {
	err := retention.Refusal(ctx, records.Store, run, step, earlier, bodies)
	if errors.Is(err, record.ErrForgotten) {
		return terminal.Usage(err)
	}
	return err
}

// Credit is `fulgurite credit`.
type Credit struct {
	Run_  string   `arg:"" name:"run" help:"Name of the run."`
	Step  int      `help:"The step to look at (default: the last one with a batch)." placeholder:"N"`
	With  []string `help:"Assignments or algorithms to compare with the run's own credit." placeholder:"NAME,…"`
	Calls string   `help:"Also list the calls of this attempt: signals, states and advantages." placeholder:"ATTEMPT"`
	JSON  bool     `help:"Print JSON." name:"json"`
	SVG   string   `help:"Also draw which calls get credit." name:"svg" placeholder:"FILE" type:"path"`

	Records state.RecordFlags `embed:""`
}

// creditReport is the JSON output of the command.
type creditReport struct {
	compare.Report
	Attempt *compare.Calls `json:"attempt,omitempty"`
}

// Outputs returns what the command prints as JSON.
func (*Credit) Outputs() []any { return []any{creditReport{}} }

// Run computes the credit of a step again, under the run's own spec and under others.
func (c *Credit) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	var address record.Address
	if c.Step < 0 {
		return terminal.Usagef("--step %d: want at least 1", c.Step)
	}
	if c.Calls != "" {
		var err error
		if address, err = record.ParseAddress(c.Calls); err != nil {
			return terminal.Usage(fmt.Errorf("--calls: %w", err))
		}
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	step, err := compare.Open(ctx, records.Store, records.Blobs, c.Run_, model.DefaultPolicy, c.Step)
	if errors.Is(err, compare.ErrNoBatch) {
		return terminal.Usage(err)
	}
	if err != nil {
		return cmp.Or(refuseRemoved(ctx, records, c.Run_, c.Step, assign.LearnedSteps, false), err)
	}
	if err := refuseRemoved(ctx, records, c.Run_, step.Number, assign.LearnedSteps, true); err != nil {
		return err
	}
	settings, err := compare.Settings(step.Spec, c.With)
	if err != nil {
		return terminal.Usage(fmt.Errorf("--with: %w", err))
	}
	var out creditReport
	if out.Report, err = step.Compare(settings); err != nil {
		return fmt.Errorf("credit of step %d of run %s: %w", step.Number, c.Run_, err)
	}
	if c.Calls != "" {
		calls, err := step.Calls(address, settings)
		if errors.Is(err, compare.ErrNotTrained) {
			return terminal.Usage(fmt.Errorf("--calls: %w", err))
		}
		if err != nil {
			return fmt.Errorf("credit of step %d of run %s: %w", step.Number, c.Run_, err)
		}
		out.Attempt = &calls
	}
	if c.SVG != "" {
		if err := state.ReplaceFile(c.SVG, out.Plot().SVG()); err != nil {
			return err
		}
	}
	out.Remarks = s.Place().CompleteAll(out.Remarks)
	return c.print(t, out)
}

func (c *Credit) print(t *terminal.Terminal, out creditReport) error {
	if c.JSON {
		return t.JSON(out)
	}
	if err := out.WriteText(t.Out); err != nil {
		return err
	}
	if out.Attempt == nil {
		return nil
	}
	return out.Attempt.WriteText(t.Out)
}

// Export is `fulgurite export`.
type Export struct {
	Version   string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated. RUN:POLICY in place of RUN names one of several policies."`
	Directory string `arg:"" help:"Where to write the files." type:"path"`
	Format    string `help:"hf: config.json, model.safetensors and, if the model has them, its tokenizer and chat template, an adapter merged into its base (merged is the same); peft: the adapter alone, as PEFT loads it; gguf: one file for llama.cpp, Ollama and others." enum:"hf,merged,peft,gguf" default:"hf"`
	Type      string `help:"Type of the matrices in a GGUF file: f16, bf16, q8_0 or f32." enum:"f16,bf16,q8_0,f32" default:"f16"`

	Records state.RecordFlags `embed:""`
}

// Run writes a version.
func (c *Export) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	v, choice, err := records.Catalog.Choose(ctx, c.Version)
	if err != nil {
		return err
	}
	recorded, err := records.Catalog.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	k, digest, err := records.Catalog.Load(ctx, v.VersionID)
	where := c.Directory
	if err == nil {
		where, err = export.Version{Name: v.String(), Model: recorded.ForPolicy(v.Policy).Model, Checkpoint: k, Blobs: records.Blobs}.Write(ctx, c.Directory, c.Format, c.Type)
	}
	if errors.Is(err, export.ErrFormat) || errors.Is(err, model.ErrAdapter) {
		err = terminal.Usage(err)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", v.VersionID, err)
	}
	name := v.String()
	if choice.Unevaluated() {
		name = fmt.Sprintf("%s (%s)", name, choice)
	}
	t.Printf("%s (%s) is in %s\n", name, digest, where)
	return nil
}
