package evaluate

import (
	"context"
	"errors"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Compare is `fulgurite compare`.
type Compare struct {
	A       string            `arg:"" help:"An evaluation: the name of one, or RUN@NUMBER of a version that its run evaluated."`
	B       string            `arg:"" help:"The one to compare with it, on the same tasks."`
	Split   string            `help:"Split of the evaluations, where versions have several: train, gate or test." enum:"train,gate,test," default:""`
	Greedy  bool              `help:"Compare the attempts at temperature 0 instead of the others."`
	Cluster string            `help:"Key of the tasks' metadata: tasks with one value of it are alike, as questions about one database are. Intervals and p-value are then by its values." placeholder:"KEY"`
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Compare) Outputs() []any { return []any{evaluation.Comparison{}} }

// Run compares two evaluations on record.
func (c *Compare) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	a, err := c.load(ctx, records, c.A)
	if err != nil {
		return err
	}
	b, err := c.load(ctx, records, c.B)
	if err != nil {
		return err
	}
	comparison, err := evaluation.Compare(a, b, c.Cluster)
	if errors.Is(err, evaluation.ErrIncomparable) {
		return terminal.Usage(err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(comparison)
	}
	return comparison.WriteText(t.Out)
}

func (c *Compare) load(ctx context.Context, records fleet.Records, reference string) (evaluation.Set, error) {
	e, err := evaluation.Find(ctx, records.Store, reference, trace.Kind(c.Split))
	if err != nil {
		return evaluation.Set{}, terminal.Usage(err)
	}
	out, err := evaluation.Load(ctx, records.Store, records.Blobs, e, c.Greedy)
	if errors.Is(err, evaluation.ErrIncomplete) {
		return out, terminal.Usage(err)
	}
	return out, err
}
