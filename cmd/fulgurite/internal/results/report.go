package results

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/run/atif"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/report/agents"
	"github.com/fulgurite/fulgurite/run/report/timing"
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
	Rows string `help:"What a row is: ${enum}. \"atif\" writes each attempt, of every split, as a trajectory in Harbor's format ATIF 1.7; the name of the file then ends in .jsonl." enum:"transitions,sequences,atif" default:"transitions"`

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
	source := dataset.Source{Store: records.Store, Blobs: records.Blobs, Run: c.Run_, Policy: model.DefaultPolicy}
	var rows int
	row := strings.TrimSuffix(c.Rows, "s")
	switch c.Rows {
	case rowsATIF:
		row = "attempt"
		attempts := atif.Source{Store: records.Store, Blobs: records.Blobs, Run: c.Run_, Policy: model.DefaultPolicy}
		rows, err = dataset.WriteLines(ctx, c.File, attempts.Trajectories)
	case "sequences":
		rows, err = dataset.WriteFile(ctx, c.File, source.Sequences)
	default:
		rows, err = dataset.WriteFile(ctx, c.File, source.Transitions)
	}
	switch {
	case errors.Is(err, dataset.ErrFormat):
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
