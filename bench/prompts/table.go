package main

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/bench/interval"
)

// Names of the rows of a table.
const (
	oursAPO  = "Fulgurite, APO"
	oursGEPA = "Fulgurite, GEPA"
	theirAPO = "agentlightning, APO"
)

func rows() []string { return []string{oursAPO, oursGEPA, theirAPO} }

// parts are the parts of the budget after which searches are compared.
func parts() []float64 { return []float64{0.25, 0.5, 1} }

// results are what the searches with some settings did, seed by seed.
type results struct {
	settings settings
	worlds   []*world
	// histories are by the name of the row. Without the other product, its row is missing.
	histories map[string][][]standing
}

// scores returns the gate scores of a row's best prompts after a part of the budget.
func (r results) scores(row string, part float64) []float64 {
	limit := int(part * float64(r.settings.budget))
	var out []float64
	for i, history := range r.histories[row] {
		out = append(out, r.worlds[i].gate(bestAfter(history, limit)))
	}
	return out
}

// bestAfter returns the best prompt after a number of rollouts.
func bestAfter(history []standing, rollouts int) string {
	best := history[0].Prompt
	for _, s := range history {
		if s.Rollouts <= rollouts {
			best = s.Prompt
		}
	}
	return best
}

// used returns how many rollouts the searches of a row made.
func (r results) used(row string) []float64 {
	var out []float64
	for _, history := range r.histories[row] {
		out = append(out, float64(history[len(history)-1].Rollouts))
	}
	return out
}

// markdown returns the table of the results.
func (r results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %d seeds, %d rounds, %d rollouts", len(r.worlds), r.settings.rounds, r.settings.budget)
	if r.settings.failures > 0 {
		fmt.Fprintf(&b, ", %.0f %% fail", 100*r.settings.failures)
	}
	b.WriteString(" |")
	for _, part := range parts() {
		fmt.Fprintf(&b, " after %.0f %% |", 100*part)
	}
	b.WriteString(" rollouts used |\n| --- | ---: | ---: | ---: | ---: |\n")
	fixed := func(title string, prompt func(*world) string) {
		var scores []float64
		for _, w := range r.worlds {
			scores = append(scores, w.gate(prompt(w)))
		}
		score := interval.Of(scores)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | |\n", title, score, score, score)
	}
	fixed("the prompt to start from", func(w *world) string { return w.prompt })
	for _, row := range rows() {
		if len(r.histories[row]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s |", row)
		for _, part := range parts() {
			fmt.Fprintf(&b, " %s |", interval.Of(r.scores(row, part)))
		}
		fmt.Fprintf(&b, " %.0f |\n", interval.Of(r.used(row)).Value)
	}
	fixed("all useful lines, no other", (*world).best)
	for _, row := range []string{oursAPO, oursGEPA} {
		if len(r.histories[theirAPO]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s, minus %s (at least) |", row, theirAPO)
		for _, part := range parts() {
			d := differences(r.scores(row, part), r.scores(theirAPO, part))
			fmt.Fprintf(&b, " %+.3f (%+.3f) |", interval.Of(d).Value, interval.AtLeast(d))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

func differences(x, y []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] - y[i]
	}
	return out
}
