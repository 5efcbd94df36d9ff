// Command recipe draws the curve of a recipe's run: what the agent earns on the gate split by version, and as level lines what
// controls earn on the same questions without training.
//
//	go run ./examples/recipe REPORT SVG NAME=EVALUATION...
//
// REPORT is what `fulgurite report --json` prints, and an EVALUATION what `fulgurite evaluate --json` prints.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/record"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: recipe REPORT SVG NAME=EVALUATION...")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "recipe:", err)
		os.Exit(1)
	}
}

// draw writes the SVG.
func draw(report, svg string, controls []string) error {
	var run struct {
		Evaluations []record.Evaluation `json:"evaluations"`
	}
	if err := read(report, &run); err != nil {
		return err
	}
	agent, last := chart.Series{Name: "the agent, temperature 1"}, 1.0
	for _, e := range run.Evaluations {
		if e.Kind == record.Gate {
			agent.Points = append(agent.Points, chart.Point{X: float64(e.Version), Y: e.Mean})
			last = max(last, float64(e.Version))
		}
	}
	plot := chart.Plot{Title: "What training is worth", XLabel: "version", YLabel: "mean reward on the gate split", Series: []chart.Series{agent}}
	for _, control := range controls {
		name, file, ok := strings.Cut(control, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form NAME=EVALUATION", control)
		}
		var e record.Evaluation
		if err := read(file, &e); err != nil {
			return err
		}
		plot.Series = append(plot.Series, chart.Series{Name: name, Points: []chart.Point{{X: 0, Y: e.Mean}, {X: last, Y: e.Mean}}})
	}
	return os.WriteFile(svg, plot.SVG(), 0o600)
}

// read reads a file of JSON.
func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
