package training

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// Curves are the records that a curve is drawn from.
type Curves interface {
	Steps(ctx context.Context, run, policy string) ([]record.Step, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
}

// DrawCurve draws a run's reward over its steps in the terminal and as an SVG in
// dir, whose path it returns.
func DrawCurve(ctx context.Context, t *terminal.Terminal, records Curves, run, dir string) (string, error) {
	steps, err := records.Steps(ctx, run, model.DefaultPolicy)
	if err != nil {
		return "", fmt.Errorf("read the steps of run %s: %w", run, err)
	}
	evaluations, err := records.Evaluations(ctx, run)
	if err != nil {
		return "", fmt.Errorf("read the evaluations of run %s: %w", run, err)
	}
	training, gate := chart.Series{Name: "training rollouts"}, chart.Series{Name: "gate split"}
	for _, s := range steps {
		reward, _ := s.Reward()
		training.Points = append(training.Points, chart.Point{X: float64(s.Step), Y: reward})
	}
	for _, e := range evaluations {
		if e.Kind == trace.Gate {
			gate.Points = append(gate.Points, chart.Point{X: float64(e.Version), Y: e.Mean})
		}
	}
	plot := chart.Plot{Title: "Reward of " + run, XLabel: "step", YLabel: "mean reward", Series: []chart.Series{training, gate}}
	t.Printf("\n%s", plot.Text(t.Style))
	path := filepath.Join(dir, "reward.svg")
	return path, state.ReplaceFile(path, plot.SVG())
}
