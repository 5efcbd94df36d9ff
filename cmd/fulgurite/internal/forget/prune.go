package forget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/schedule"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Prune is `fulgurite prune`.
type Prune struct {
	Weights   bool              `help:"Delete the files of versions that are not kept (default, if neither this nor --records is given)."`
	Bodies    bool              `name:"records" help:"Remove the bodies of calls, the spans, what agents printed, and what candidates replied in the shadow. Tokens, rewards and batches stay."`
	OlderThan age               `help:"Only of runs that ended longer ago than this, such as 12h, 30d or 8w." default:"30d" placeholder:"AGE"`
	Runs      string            `name:"run" help:"Only of runs whose names match, such as 'try-*'." default:"*" placeholder:"PATTERN"`
	Last      int               `name:"keep-last" help:"Keep this many of the newest versions of each run." default:"1" placeholder:"N"`
	Every     int               `name:"keep-every" help:"Also keep the versions whose numbers are multiples of this." placeholder:"N"`
	Promoted  bool              `name:"keep-promoted" help:"Also keep all versions that were ever promoted. The promoted one, and the one before it, are always kept."`
	DryRun    bool              `help:"Say what would be removed, and remove nothing."`
	Again     time.Duration     `name:"every" help:"Don't do it now, but every so often, such as 24h, by a Temporal Schedule. The processes of the queue training do it." placeholder:"TIME"`
	Name      string            `help:"With --every, the name of the schedule, which follows prune:. Another call with the same name changes it." default:"default" placeholder:"NAME"`
	By        string            `help:"Who does it (default: user@host)." placeholder:"NAME"`
	JSON      bool              `help:"Print JSON." name:"json"`
	Records   state.RecordFlags `embed:""`
}

// age is a duration that may be given in days and weeks.
type age time.Duration

// UnmarshalText reads 30d, 8w, or a duration as Go writes it.
func (a *age) UnmarshalText(text []byte) error {
	s := string(text)
	for unit, hours := range map[string]int{"d": 24, "w": 7 * 24} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 {
				return fmt.Errorf("%q is not an age: give a number of days or weeks, such as 30d or 8w", s)
			}
			*a = age(time.Duration(n*hours) * time.Hour)
			return nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not an age: give one such as 12h, 30d or 8w", s)
	}
	*a = age(d)
	return nil
}

// Outputs returns what the command prints as JSON.
func (*Prune) Outputs() []any { return []any{retention.PruneReport{}, scheduledPrune{}} }

// Run removes what is no longer needed, and says before what that is.
func (c *Prune) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if _, err := path.Match(c.Runs, ""); err != nil {
		return terminal.Usagef("--run %q: %v", c.Runs, err)
	}
	if c.Last < 1 || c.Every < 0 {
		return terminal.Usagef("--keep-last is at least 1, and --keep-every at least 0")
	}
	rule := retention.PruneRule{
		Runs: c.Runs, OlderThan: time.Duration(c.OlderThan), Weights: c.Weights || !c.Bodies, Records: c.Bodies,
		Keep: spec.Keep{Last: c.Last, Every: c.Every, Promoted: c.Promoted},
	}
	if c.Again != 0 {
		return c.schedule(ctx, s, t, rule)
	}
	if c.Records.Store != "" && c.Records.Blobs == "" {
		return terminal.Usagef("--blobs: missing: give the directory of the blobs that belong to --store, because files are removed, too")
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	none := errors.New("none")
	said := 0 // runs left out
	done, err := records.Prune(ctx, rule, cmp.Or(c.By, state.Person()), c.DryRun, func(r retention.PruneReport) error {
		if r.Selected == 0 {
			return none
		}
		said = len(r.Skipped)
		if !c.JSON {
			c.print(t, r)
		}
		return nil
	})
	switch {
	case errors.Is(err, none):
		return terminal.Usagef("--run %q matches no run: `%s` lists them", c.Runs, s.Command("runs"))
	case err != nil:
		return err
	case c.JSON:
		if err := t.JSON(done); err != nil {
			return err
		}
	case !c.DryRun && len(done.Skipped) > said:
		for _, line := range done.Skipped[said:] {
			t.Printf("Not removed: %s\n", line)
		}
		t.Printf("The rest of it is removed.\n")
	case !c.DryRun && len(done.Runs) > 0:
		t.Printf("All of it is removed.\n")
	}
	return nil
}

// schedule makes or changes the Temporal Schedule that does it.
func (c *Prune) schedule(ctx context.Context, s *state.Flags, t *terminal.Terminal, rule retention.PruneRule) error {
	if err := schedule.CheckEvery(c.Again); err != nil {
		return err
	}
	if err := record.CheckRunName(c.Name); err != nil {
		return terminal.Usagef("--name %q: use 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends", c.Name)
	}
	if c.DryRun || c.Records.Store != "" || c.Records.Blobs != "" {
		return terminal.Usagef("--every: give it without --dry-run, --store and --blobs: nothing is removed now, and the processes of the queue %s have a store and blobs", workflows.QueueTraining)
	}
	temporal, err := s.Dial(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	id := schedule.OfPruning(c.Name)
	paused, err := schedule.Put(ctx, temporal, id, c.Again, &client.ScheduleWorkflowAction{
		ID: id, Workflow: workflows.TypePrune, Args: []any{activities.PruneInput{Rule: rule, By: cmp.Or(c.By, state.Person())}}, TaskQueue: workflows.QueueTraining,
		StaticSummary: "removes " + rule.Text(),
	})
	if err != nil {
		return fmt.Errorf("make schedule %s: %w", id, err)
	}
	if c.JSON {
		return t.JSON(scheduledPrune{id, c.Again.String(), rule.Text()})
	}
	if paused {
		t.Printf("Schedule %s is paused: from `%s` on, it removes every %s %s.\n", id, s.Command("schedule", "resume", id), c.Again, rule.Text())
		return nil
	}
	t.Printf("Schedule %s removes every %s %s: %s\n", id, c.Again, rule.Text(), s.Command("schedule", "list"))
	return nil
}

// scheduledPrune is the answer of `fulgurite prune --every --json`.
type scheduledPrune struct {
	Prune string `json:"prune"`
	Every string `json:"every"`
	Rule  string `json:"rule"`
}

// print says what is removed.
func (c *Prune) print(t *terminal.Terminal, r retention.PruneReport) {
	word := "is"
	if c.DryRun {
		word = "would be"
	}
	t.Printf("Of %s, %d ended longer ago than %s. About %s %s removed:\n", readable.Count(r.Selected, "run"), r.Ended, retention.AgeText(time.Duration(c.OlderThan)), readable.Bytes(r.Bytes), word)
	for _, one := range r.Runs {
		t.Printf("  %s, ended %s\n", one.Run, readable.Time(one.Finished))
		if one.Files > 0 {
			t.Printf("    %s, %s: versions %s\n", readable.Count(one.Files, "file"), readable.Bytes(one.FileBytes), report.Ranges(one.Versions))
		}
		if one.Records {
			t.Printf("    bodies, spans and printed output, %s\n", readable.Bytes(one.BodyBytes))
		}
	}
	for _, line := range r.Skipped {
		t.Printf("  %s\n", line)
	}
}
