package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/experiment"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// experimentRow is an experiment with the result of its last look. Its keys are a public
// contract.
type experimentRow struct {
	Run       string                  `json:"run"`
	Policy    string                  `json:"policy"`
	Candidate int                     `json:"candidate"`
	Control   int                     `json:"control"`
	Share     float64                 `json:"share"`
	Status    record.ExperimentStatus `json:"status"`
	Reason    string                  `json:"reason"` // why it ended
	Begun     time.Time               `json:"begun"`
	Ended     time.Time               `json:"ended,omitzero"` // zero while it is running
	// Result is nil if nobody has looked yet.
	Result *experiment.Result `json:"result"`
}

// experiments lists the experiments of a policy, in the order in which they began.
func (c *Command) experiments(ctx context.Context, t *terminal.Terminal, records fleet.Records) error {
	all, err := records.Store.Experiments(ctx, c.Run_, cmp.Or(c.Choice.Policy, model.DefaultPolicy))
	if err != nil {
		return err
	}
	rows := make([]experimentRow, len(all))
	for i, e := range all {
		rows[i] = experimentRow{Run: e.Run, Policy: e.Policy, Candidate: e.Candidate, Control: e.Control, Share: e.Share, Status: e.Status, Reason: e.Reason, Begun: e.Begun, Ended: e.Ended}
		if len(e.Result) == 0 {
			continue
		}
		if err := json.Unmarshal(e.Result, &rows[i].Result); err != nil {
			return fmt.Errorf("read the result of the experiment with version %d of run %s: %w", e.Candidate, e.Run, err)
		}
	}
	if c.JSON {
		return t.JSON(rows)
	}
	return listExperiments(t, c.Run_, rows)
}

// listExperiments prints a table, and below it why each experiment ended.
func listExperiments(t *terminal.Terminal, run string, rows []experimentRow) error {
	if len(rows) == 0 {
		t.Printf("no version of %s was compared in use: traffic.train.experiment of a spec does that\n", run)
		return nil
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "candidate\tcontrol\tshare\tstatus\tdifference\tinterval\tjudged conversations\tunits\tbegun\tended")
	for _, r := range rows {
		difference, interval, conversations, units, ended := "", "", "", "", ""
		if r.Result != nil {
			of, than := r.Result.Candidate, r.Result.Control
			difference, interval = fmt.Sprintf("%+.3f", r.Result.Difference), "not yet"
			if r.Result.Known() {
				interval = fmt.Sprintf("%+.3f to %+.3f", r.Result.Low, r.Result.High)
			}
			conversations, units = fmt.Sprintf("%d and %d", of.Conversations, than.Conversations), fmt.Sprintf("%d and %d", of.Units, than.Units)
		}
		if !r.Ended.IsZero() {
			ended = readable.Time(r.Ended)
		}
		fmt.Fprintf(w, "%d\t%d\t%g\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Candidate, r.Control, r.Share, r.Status, difference, interval, conversations, units, readable.Time(r.Begun), ended)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Reason != "" {
			t.Printf("version %d: %s\n", r.Candidate, terminal.Escape(r.Reason))
		}
	}
	return nil
}
