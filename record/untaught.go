package record

import (
	"fmt"
	"strings"
)

// untaughtSteps is the number of steps in a row without an advantage after which that is
// worth a warning. One or two such steps are nothing unusual.
const untaughtSteps = 3

// Untaught describes steps in a row that taught nothing: none of their tokens got an
// advantage other than 0. The zero value describes no step. All counts are sums over the
// steps.
type Untaught struct {
	From     int     `json:"from"` // the first of the steps; 0 if there is none
	To       int     `json:"to"`
	Idle     bool    `json:"idle,omitempty"` // the last step had no token to train
	Attempts float64 `json:"attempts"`
	Failed   float64 `json:"failed"`   // attempts whose agent failed
	Silent   float64 `json:"silent"`   // attempts without a model call
	Calls    float64 `json:"calls"`    // replies of the model
	CutOff   float64 `json:"cut_off"`  // replies that reached the limit of tokens
	Unparsed float64 `json:"unparsed"` // replies that could not be parsed
	Least    float64 `json:"least"`    // reward
	Greatest float64 `json:"greatest"` // reward
}

// UntaughtBy returns the last steps that taught nothing, of steps in their order.
func UntaughtBy(steps []Step) Untaught {
	var u Untaught
	for _, s := range steps {
		u.Add(s.Step, s.Metrics)
	}
	return u
}

// Add takes in a step with the metrics of its batch. A step that taught something ends
// the row.
func (u *Untaught) Add(step int, metrics map[string]float64) {
	trained, known := metrics["batch/trained_tokens"]
	if !known || trained > 0 && (metrics["advantage/min"] != 0 || metrics["advantage/max"] != 0) {
		*u = Untaught{}
		return
	}
	if u.From == 0 {
		*u = Untaught{From: step, Least: metrics["reward/min"], Greatest: metrics["reward/max"]}
	}
	u.To, u.Idle = step, trained == 0
	u.Attempts += metrics["batch/rollouts"]
	u.Failed += metrics["batch/failed"]
	u.Silent += metrics["batch/silent"]
	u.Calls += metrics["batch/calls"]
	u.CutOff += metrics["batch/cut_off"]
	u.Unparsed += metrics["batch/unparsed"]
	u.Least, u.Greatest = min(u.Least, metrics["reward/min"]), max(u.Greatest, metrics["reward/max"])
}

// Text returns a warning with what the attempts have in common, or "" if there is nothing
// to warn of: a step without a token to train is worth a warning at once, steps without an
// advantage only after the third.
func (u Untaught) Text() string {
	n := u.To - u.From + 1
	if u.From == 0 || n < untaughtSteps && !u.Idle {
		return ""
	}
	var b strings.Builder
	switch {
	case n < untaughtSteps:
		fmt.Fprintf(&b, "step %d had no token to train, so its version is the one before without an update", u.To)
	case u.Idle:
		fmt.Fprintf(&b, "the last %d steps (%d to %d) taught nothing, and the last one had no token to train", n, u.From, u.To)
	default:
		fmt.Fprintf(&b, "the last %d steps (%d to %d) taught nothing: no token got an advantage", n, u.From, u.To)
	}
	fmt.Fprintf(&b, ". Of %s", counted(u.Attempts, "attempt"))
	var reasons []string
	if u.Failed > 0 {
		reasons = append(reasons, fmt.Sprintf("the agent failed in %.0f", u.Failed))
	}
	if u.Silent > 0 {
		reasons = append(reasons, fmt.Sprintf("%.0f made no model call (do they use OPENAI_BASE_URL?)", u.Silent))
	}
	if u.CutOff > 0 {
		reasons = append(reasons, fmt.Sprintf("%.0f of %s were cut off (raise sampling.max_tokens)", u.CutOff, counted(u.Calls, "reply")))
	}
	if u.Unparsed > 0 {
		reasons = append(reasons, fmt.Sprintf("%.0f of %s could not be parsed", u.Unparsed, counted(u.Calls, "reply")))
	}
	if u.Least == u.Greatest {
		reasons = append(reasons, fmt.Sprintf("every reward was %g (does the grader find what the agent returns?)", u.Least))
	} else {
		reasons = append(reasons, fmt.Sprintf("the rewards went from %g to %g, but did not differ within a group", u.Least, u.Greatest))
	}
	b.WriteString(": " + strings.Join(reasons, "; "))
	return b.String()
}

func counted(n float64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%.0f %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%.0f %ss", n, noun)
}
