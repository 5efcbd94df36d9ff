package compare

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/trace"
)

// Calls are the calls of one attempt with the advantages that each setting gives them.
// The keys of its JSON are a public contract.
type Calls struct {
	Attempt  string   `json:"attempt"`
	Reward   float64  `json:"reward"`
	Settings []string `json:"settings"`
	List     []Call   `json:"calls"`
}

// Call is one call with its signals and advantages.
type Call struct {
	Number int `json:"call"`
	signals.Call
	// Trained is false for a call of an agent that is not trained, and for a masked one.
	Trained bool `json:"trained"`
	// Masked is true for a reply that was cut off and is not trained for that reason.
	Masked bool `json:"masked,omitempty"`
	Tokens int  `json:"tokens"` // number of trained tokens
	// Earned is the weighted sum of its signals.
	Earned float64 `json:"earned"`
	// Expected is the estimated reward of the attempt before the call; null where
	// nothing could be learned.
	Expected *float64 `json:"expected"`
	// Advantages are by setting.
	Advantages []float64 `json:"advantages"`
}

// Calls lists the calls of an attempt that the step was trained on.
func (s *Step) Calls(a trace.Address, settings []Setting) (Calls, error) {
	g, i, err := s.indices(a)
	if err != nil {
		return Calls{}, err
	}
	one := s.groups[g][i]
	out := Calls{Attempt: a.String(), List: make([]Call, len(one.History))}
	for _, setting := range settings {
		o, err := s.assign(setting)
		if err != nil {
			return out, err
		}
		out.Settings = append(out.Settings, Comparison{Name: setting.Name, Assignment: setting.Spec.Credit.Assignment}.label())
		for k, c := range o.trajectories[g][i].Calls {
			entry := &out.List[k]
			entry.Number, entry.Advantages = k, append(entry.Advantages, o.given.Call[g][i][k])
			entry.Trained, entry.Masked, entry.Tokens, entry.Earned = c.Trains(), c.Masked, c.Tokens, c.Reward
		}
	}
	if one.Reward != nil {
		out.Reward = *one.Reward
	}
	for k := range out.List {
		entry := &out.List[k]
		entry.Call = one.Calls[k]
		if one.Before != nil {
			entry.Expected = &one.Before[k]
		}
	}
	return out, nil
}

// WriteText writes the calls as readable text.
func (c Calls) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: reward %g\n", c.Attempt, c.Reward)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "call\tagent\tstate\ttokens\texpected\tearned\t%s\tsignals\n", strings.Join(c.Settings, "\t"))
	for _, one := range c.List {
		var fired []string
		for _, s := range one.Signals {
			fired = append(fired, s.Text())
		}
		if !one.Trained {
			fired = append(fired, "not trained")
		}
		fmt.Fprintf(t, "%d\t%s\t%.8s\t%d\t%s\t%.4g\t", one.Number, one.Agent, one.State, one.Tokens, optional(one.Expected), one.Earned)
		for _, a := range one.Advantages {
			fmt.Fprintf(t, "%.4f\t", a)
		}
		fmt.Fprintf(t, "%s\n", strings.Join(fired, ", "))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the calls: %w", err)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the calls: %w", err)
	}
	return nil
}
