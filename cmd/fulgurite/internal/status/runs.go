package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
)

// reasonWidth is how much of the reason a list of runs has room for.
const reasonWidth = 160

// List is `fulgurite runs`.
type List struct {
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Run lists the runs.
func (c *List) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	runs, err := records.Store.Runs(ctx)
	if err != nil {
		return err
	}
	runs, doubt := liveAll(ctx, s, t, runs)
	if c.JSON {
		return t.JSON(append([]record.Run{}, runs...)) // a list also when there is none
	}
	for _, r := range runs {
		t.Printf("%s\n", strings.TrimRight(fmt.Sprintf("%-24s %-10s %s  %s", r.Name, r.Status, r.Created.Local().Format(time.DateTime), shortLine(r.Failure().Error, reasonWidth)), " "))
	}
	if doubt != "" {
		fmt.Fprintf(t.Err, "fulgurite: %s\n", doubt)
	}
	return nil
}

// shortLine returns the beginning of a text, cut to fit into a table.
func shortLine(text string, most int) string {
	line, rest, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}
