// Package forget holds the commands that remove what runs have left: all of a run, what one
// task or one user left, or what is no longer needed.
package forget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Command is `fulgurite forget`.
type Command struct {
	Run_    string            `name:"run" help:"Remove this run, which has ended: rows, files and histories." placeholder:"RUN" xor:"what" required:""`
	Task    string            `help:"Remove what the task with this id left in all runs that have ended: texts, tokens, and the batches that have it." placeholder:"ID" xor:"what" required:""`
	User    string            `help:"Remove what this user, as clients name it, said to served versions in all runs: conversations, feedback, and the batches that have it." placeholder:"NAME" xor:"what" required:""`
	In      string            `help:"With --task or --user, only in this run." placeholder:"RUN"`
	Yes     bool              `help:"Remove it. Without this, the command only says what it would remove." xor:"do"`
	DryRun  bool              `help:"Say what would be removed, and remove nothing, with exit code 0." xor:"do"`
	Rewrite bool              `help:"Rewrite the database afterwards, so that no page of it keeps a copy of what was removed. Everybody who writes waits meanwhile, and it needs as much free disk as the database has."`
	Reason  string            `help:"Why; it stays on record." placeholder:"TEXT"`
	By      string            `help:"Who does it (default: user@host)." placeholder:"NAME"`
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any {
	return []any{retention.RunReport{}, retention.TaskReport{}, retention.UserReport{}}
}

// Run removes it, or says what it would remove.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.In != "" && c.Task == "" && c.User == "" {
		return terminal.Usagef("--in says in which run a task or a user is forgotten: give it with --task or --user")
	}
	f, done, err := open(ctx, s, t, c.Records)
	if err != nil {
		return err
	}
	defer done()
	by := cmp.Or(c.By, state.Person())
	switch {
	case c.Task != "":
		err = c.task(ctx, t, f, by)
	case c.User != "":
		err = c.user(ctx, t, f, by)
	default:
		err = c.run(ctx, t, f, by)
	}
	if c.Yes {
		// Also if it failed, or was interrupted: it may have begun, and a backup that does not hear of
		// that would bring back what is gone.
		err = errors.Join(err, c.tellBackups(context.WithoutCancel(ctx), s, t, f, err == nil))
	}
	if errors.Is(err, retention.ErrRefused) {
		return terminal.Usage(err)
	}
	if err != nil {
		return err
	}
	if !c.Yes {
		if c.DryRun {
			return nil
		}
		return terminal.Usagef("nothing was removed: give --yes to remove it")
	}
	return f.scrub(ctx, c.Rewrite)
}

// tellBackups notes in the directories of backups what was forgotten, so that a restore
// repeats it. A directory that can't be reached is named: its disk may be elsewhere. done says
// that all that was to be removed is.
func (c *Command) tellBackups(ctx context.Context, s *state.Flags, t *terminal.Terminal, f *forgetter, done bool) error {
	directories, err := s.Backups(c.Records)
	if err != nil || len(directories) == 0 {
		return err
	}
	stones, err := f.records.Store.AllForgotten(ctx)
	if err != nil {
		return err
	}
	id, err := f.records.Store.ID(ctx)
	if err != nil {
		return err
	}
	// A restore makes another directory, or has another store than that of which was forgotten.
	to, from := &state.Flags{Dir: s.Dir}, s.Dir
	if c.Records.Store != "" {
		from = c.Records.Store
		if store.Redacted(from) != from {
			from = "URL" // a password is not shown
		}
	}
	for _, directory := range directories {
		if err := backup.Note(directory, backup.Forgotten{Store: id, Forgotten: stones, Backups: directories}); err != nil {
			fmt.Fprintf(t.Err, "The backup in %s was not told what was forgotten: %v. To restore it, give `%s` also --forgotten %s.\n", directory, err, to.Command("restore", directory), shell.Quote(from))
			continue
		}
		if done && !c.JSON {
			t.Printf("The backup in %s still has it, until the next `%s`; a restore of it forgets it again.\n", directory, s.Command("backup", directory))
		}
	}
	return nil
}

// forgetter removes things, and knows the records from which it does.
type forgetter struct {
	retention.Forgetter
	records fleet.Records
}

// open connects to everything that a removal needs.
func open(ctx context.Context, s *state.Flags, t *terminal.Terminal, flags state.RecordFlags) (*forgetter, func(), error) {
	if flags.Store != "" && flags.Blobs == "" {
		return nil, nil, terminal.Usagef("--blobs: missing: give the directory of the blobs that belong to --store, because files are removed, too")
	}
	records, err := s.OpenRecords(ctx, t, flags)
	if err != nil {
		return nil, nil, err
	}
	c, namespace, err := s.DialNamespace(ctx, t)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("ask Temporal, which has histories to remove: %w", err), records.Close())
	}
	f := &forgetter{retention.Forgetter{Store: records.Store, Blobs: records.Blobs, Histories: runstate.Histories{Client: c, Namespace: namespace}}, records}
	return f, func() { c.Close(); _ = records.Close() }, nil
}

// scrub makes the database overwrite what was removed.
func (f *forgetter) scrub(ctx context.Context, whole bool) error {
	if err := f.records.Store.Scrub(ctx, whole); err != nil {
		return fmt.Errorf("it is removed, but its bytes may still be in the database; give the command again: %w", err)
	}
	return nil
}

func (c *Command) run(ctx context.Context, t *terminal.Terminal, f *forgetter, by string) error {
	var report retention.RunReport
	var err error
	if c.Yes {
		report, err = f.ForgetRun(ctx, c.Run_, by, c.Reason)
	} else {
		report, err = f.PlanRun(ctx, c.Run_)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(report)
	}
	rows := 0
	for _, one := range report.Rows {
		rows += one.Rows
	}
	t.Printf("Run %s, %s, spec %s\n", report.Run, report.Status, report.SpecDigest)
	t.Printf("  rows       %d in %s\n", rows, readable.Count(len(report.Rows), "table"))
	t.Printf("  files      %d, %s\n", report.Files, readable.Bytes(report.Bytes))
	if report.KeptFiles > 0 {
		t.Printf("             %d more stay, because other runs need them\n", report.KeptFiles)
	}
	t.Printf("  histories  %d\n", report.Histories)
	for _, v := range report.StartedFromIt {
		t.Printf("  made from it, and staying: %s\n", v)
	}
	if report.Forgotten != nil {
		t.Printf("All of it is removed. Its name can't be used again.\n")
	}
	return nil
}

func (c *Command) task(ctx context.Context, t *terminal.Terminal, f *forgetter, by string) error {
	report, err := f.ForgetTask(ctx, c.Task, c.In, by, c.Reason, !c.Yes)
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(report)
	}
	t.Printf("Task %s\n", terminal.Escape(c.Task))
	for _, r := range report.Runs {
		t.Printf("\n%s\n", r.Run)
		t.Printf("  splits     %s\n", joined(r.Splits))
		t.Printf("  attempts   %d, with %s and %s\n", r.Attempts, readable.Count(r.Calls, "call"), readable.Count(r.Tokens, "token"))
		t.Printf("  batches    %s\n", steps(r.Steps))
		t.Printf("  histories  %d\n", r.Histories)
		if r.Archive > 0 {
			t.Printf("             and the archive of all, %s\n", readable.Bytes(r.Archive))
		}
		for _, v := range r.Versions {
			t.Printf("  trained on it, and staying: %s\n", v)
		}
		for _, left := range r.Left {
			t.Printf("  not removed: %s\n", terminal.Escape(left))
		}
	}
	for _, run := range report.Already {
		t.Printf("\n%s: removed before\n", run)
	}
	for _, run := range report.UnderWay {
		t.Printf("\n%s: under way, so nothing of it is removed; forget the task again when the run has ended\n", run)
	}
	if c.Yes && len(report.Runs) > 0 {
		t.Printf("\nAll of it is removed. The versions stay.\n")
	}
	return nil
}

func (c *Command) user(ctx context.Context, t *terminal.Terminal, f *forgetter, by string) error {
	hash, err := f.records.Store.HashUser(ctx, c.User)
	if err != nil {
		return err
	}
	report, err := f.ForgetUser(ctx, hash, c.In, by, c.Reason, !c.Yes)
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(report)
	}
	t.Printf("User %s, with the hash %s\n", terminal.Escape(c.User), hash)
	for _, r := range report.Runs {
		t.Printf("\n%s\n", r.Run)
		t.Printf("  conversations  %d, with %s and %s\n", len(r.Conversations), readable.Count(r.Calls, "call"), readable.Count(r.Tokens, "token"))
		t.Printf("  feedback       %d\n", r.Feedback)
		t.Printf("  batches        %s\n", steps(r.Steps))
		for _, v := range r.Versions {
			t.Printf("  trained on it, and staying: %s\n", v)
		}
	}
	for _, run := range report.UnderWay {
		t.Printf("\n%s: a step that is not finished learns from the user, so nothing of the run is removed; forget the user again when the step is finished\n", run)
	}
	if c.Yes && len(report.Runs) > 0 {
		t.Printf("\nAll of it is removed. The versions stay. What the user says from now on is recorded as before.\n")
	}
	return nil
}

func joined(kinds []record.Kind) string {
	if len(kinds) == 0 {
		return "none"
	}
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		texts[i] = string(k)
	}
	return strings.Join(texts, ", ")
}

func steps(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return fmt.Sprintf("of %s %s", readable.Name(len(numbers), "step"), strings.Join(texts, ", "))
}
