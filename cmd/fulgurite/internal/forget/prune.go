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

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
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
func (*Prune) Outputs() []any { return []any{retention.PruneReport{}} }

// Run removes what is no longer needed, and says before what that is.
func (c *Prune) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if _, err := path.Match(c.Runs, ""); err != nil {
		return terminal.Usagef("--run %q: %v", c.Runs, err)
	}
	if c.Last < 1 || c.Every < 0 {
		return terminal.Usagef("--keep-last is at least 1, and --keep-every at least 0")
	}
	if c.Records.Store != "" && c.Records.Blobs == "" {
		return terminal.Usagef("--blobs: missing: give the directory of the blobs that belong to --store, because files are removed, too")
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	f := retention.Forgetter{Store: records.Store, Blobs: records.Blobs} // histories stay
	rule := retention.PruneRule{
		Selects:   func(run string) bool { ok, _ := path.Match(c.Runs, run); return ok },
		OlderThan: time.Duration(c.OlderThan), Weights: c.Weights || !c.Bodies, Records: c.Bodies,
		Keep: spec.Keep{Last: c.Last, Every: c.Every, Promoted: c.Promoted},
	}
	none := errors.New("none")
	done, err := f.Prune(ctx, rule, cmp.Or(c.By, state.Person()), c.DryRun, func(r retention.PruneReport) error {
		if r.Selected == 0 {
			return none
		}
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
	case !c.DryRun && len(done.Runs) > 0:
		t.Printf("All of it is removed.\n")
	}
	if c.DryRun || !c.Bodies {
		return nil
	}
	return records.Store.Scrub(ctx, false)
}

// print says what is removed.
func (c *Prune) print(t *terminal.Terminal, r retention.PruneReport) {
	word := "is"
	if c.DryRun {
		word = "would be"
	}
	t.Printf("Of %s, %d ended longer ago than %s. About %s %s removed:\n", readable.Count(r.Selected, "run"), r.Ended, time.Duration(c.OlderThan), readable.Bytes(r.Bytes), word)
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
