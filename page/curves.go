package page

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// z is how many standard errors an interval reaches to each side: 95 % of a normal
// distribution.
const z = 1.96

// curvesOf are the figures of a run.
func curvesOf(steps []record.Step, lags map[int]float64, evaluations []record.Evaluation, marks []mark) []figure {
	lag := curve{Name: "lag"}
	for _, s := range steps {
		if v, ok := lags[s.Step]; ok {
			lag.Points = append(lag.Points, point{X: float64(s.Step), Y: v})
		}
	}
	figures := []figure{
		{Title: "Reward", Lines: []curve{metric(steps, "reward", "reward/mean")}, Marks: marks, Note: "mean of the step's rollouts"},
		{Title: "Evaluations", Unit: "version", Lines: evaluationCurves(evaluations), Marks: marks, Note: "bars: 95 % intervals"},
		{Title: "Entropy", Lines: []curve{metric(steps, "entropy", "train/entropy")}, Note: "nats a token"},
		klFigure(steps),
		{Title: "Gradient norm", Lines: []curve{metric(steps, "gradient norm", "train/gradient_norm")}, Note: "before clipping"},
		{Title: "Mismatch", Lines: []curve{metric(steps, "mean", "train/mismatch"), metric(steps, "worst token", "train/mismatch_max")}, Note: "nats between sampler and trainer"},
		{Title: "Lag", Lines: []curve{lag}, Note: "steps the sampler was behind"},
		{Title: "Length", Lines: []curve{ratio(steps, "trained tokens", "batch/trained_tokens", "batch/rollouts")}, Note: "trained tokens a rollout"},
	}
	for i, f := range figures {
		if f.Unit == "" {
			figures[i].Unit = "step"
		}
		figures[i].Lines = withPoints(f.Lines)
	}
	return figures
}

// withPoints leaves out lines of which nothing is on record, but for the first.
func withPoints(lines []curve) []curve {
	out := lines[:0:0]
	for i, l := range lines {
		if i == 0 || len(l.Points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// klFigure prefers the divergence from version 0, which only runs with that penalty have.
func klFigure(steps []record.Step) figure {
	for _, key := range []string{"train/kl_ref", "batch/kl_ref"} {
		if c := metric(steps, "KL to version 0", key); len(c.Points) > 0 {
			return figure{Title: "KL", Lines: []curve{c, metric(steps, "KL of the update", "train/kl")}, Note: "nats a token"}
		}
	}
	return figure{Title: "KL", Lines: []curve{metric(steps, "KL of the update", "train/kl")}, Note: "nats a token, sampler to trainer"}
}

func metric(steps []record.Step, name, key string) curve {
	c := curve{Name: name}
	for _, s := range steps {
		if v, ok := s.Metrics[key]; ok {
			c.Points = append(c.Points, point{X: float64(s.Step), Y: v})
		}
	}
	return c
}

func ratio(steps []record.Step, name, over, under string) curve {
	c := curve{Name: name}
	for _, s := range steps {
		a, has := s.Metrics[over]
		if b := s.Metrics[under]; has && b > 0 {
			c.Points = append(c.Points, point{X: float64(s.Step), Y: a / b})
		}
	}
	return c
}

// evaluationCurves are the means of the splits, with intervals.
func evaluationCurves(all []record.Evaluation) []curve {
	lines := []curve{{Name: "gate"}, {Name: "test", Dots: true}}
	for _, e := range all {
		i := 0
		if e.Kind == trace.Test {
			i = 1
		} else if e.Kind != trace.Gate {
			continue
		}
		lines[i].Points = append(lines[i].Points, point{X: float64(e.Version), Y: e.Mean, Low: e.Mean - z*e.StdError, High: e.Mean + z*e.StdError})
	}
	return lines
}

// marksOf are the moves of the promoted pointer and the decisions that moved nothing.
func marksOf(moves []record.Promotion, decisions []record.Decision) []mark {
	var out []mark
	for _, p := range moves {
		if p.Version == p.Previous {
			continue // a pin or its end
		}
		out = append(out, mark{X: float64(p.Version), Promoted: true, Text: firstLine(fmt.Sprintf("%s: version %d promoted", strings.TrimSpace(string(p.Source)), p.Version))})
	}
	for _, d := range decisions {
		out = append(out, mark{X: float64(d.Candidate), Text: firstLine(fmt.Sprintf("version %d %s: %s", d.Candidate, d.Verdict, d.Reason))})
	}
	return out
}
