package status

import (
	"fmt"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/workflows"
)

// PrintPhases prints a table of phases.
func PrintPhases(t *terminal.Terminal, phases []workflows.PhaseProgress) error {
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  PHASE\tTYPE\tRUN\tSTATUS\tPROMOTED\tGATE\tTEST")
	for _, p := range phases {
		promoted, state := "-", string(p.Status)
		if p.Promoted != nil {
			promoted = fmt.Sprint(*p.Promoted)
		}
		if state == "" {
			state = "-" // it has not begun
		}
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Number, p.Type, p.Run, state, promoted, rewardsText(p.Gate), rewardsText(p.Test))
	}
	return w.Flush()
}

// rewardsText returns the rewards before and after a phase.
func rewardsText(r activities.PhaseRewards) string {
	if r.Before == nil && r.After == nil {
		return "-"
	}
	return workflows.RewardText(r.Before) + " → " + workflows.RewardText(r.After)
}
