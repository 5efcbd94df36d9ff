package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/store"
)

// ofFleet returns where the records of a fleet are, or an error for the command line.
func ofFleet(address, blobs string) (backup.Fleet, error) {
	path, err := store.FilePath(address)
	switch {
	case address == "":
		return backup.Fleet{}, terminal.Usagef("--store: missing: give the address of the fleet's store, postgres://…, with its --blobs")
	case err != nil:
		return backup.Fleet{}, terminal.Usagef("--store: %v", err)
	case path != "":
		return backup.Fleet{}, terminal.Usagef("--store: %s is an SQLite file: give postgres://… for a fleet, or leave out --store and --blobs and give the directory of a stack with --dir", path)
	case blobs == "":
		return backup.Fleet{}, terminal.Usagef("--blobs: missing: give the directory of the blobs that belong to --store")
	}
	return backup.Fleet{Store: address, Blobs: blobs}, nil
}

// fleet backs up a store in PostgreSQL with its blobs.
func (c *Command) fleet(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	from, err := ofFleet(c.Records.Store, c.Records.Blobs)
	if err != nil {
		return err
	}
	records, err := s.OpenRecords(ctx, t, c.Records) // which compares the store with its blobs
	if err != nil {
		return err
	}
	if err := records.Close(); err != nil {
		return err
	}
	report, err := backup.WriteFleet(ctx, c.Directory, from, build.This("").Version, tell(t, "copied"))
	if err != nil {
		return refused(err)
	}
	if err := s.AddBackup(c.Records, report.Directory); err != nil {
		return fmt.Errorf("the backup is complete, and forget does not know of it: %w", err)
	}
	if c.JSON {
		return t.JSON(report)
	}
	m := report.Manifest
	t.Printf("Backup of %s in %s, as it was at %s\n", store.Redacted(from.Store), report.Directory, readable.Time(m.Began))
	t.Printf("  runs       %d\n", len(m.Runs))
	t.Printf("  tables     %d, with %d rows, %s\n", m.Tables, m.Rows, readable.Bytes(m.TableBytes))
	printBlobs(t, report)
	t.Printf("It took %.1f s. Temporal's database is not in it. To restore it to an empty database:  %s --store URL --blobs DIR\n",
		report.Seconds, (&state.Flags{Dir: s.Dir}).Command("restore", report.Directory))
	return nil
}

// tell returns a function that shows how far tables have come. done says what was done to them.
func tell(t *terminal.Terminal, done string) func(backup.Progress) {
	return func(p backup.Progress) {
		fmt.Fprintf(t.Err, "%s %s; now table %d of %d, %s\n", readable.Bytes(p.Bytes), done, p.Number, p.Tables, p.Table)
	}
}

// fleet makes the store of a fleet and its blobs out of a backup.
func (c *Restore) fleet(ctx context.Context, s *state.Flags, t *terminal.Terminal, source *backup.Source) (err error) {
	if c.To != "" {
		return terminal.Usagef("--to: %s has the backup of a fleet: give --store and --blobs instead", c.Directory)
	}
	to, err := ofFleet(c.Store, c.Blobs)
	if err != nil {
		return err
	}
	stones, err := c.stones(ctx, source)
	if err != nil {
		return refused(err)
	}
	if err := source.Check(ctx, c.Verify); err != nil {
		return refused(err)
	}
	made, err := source.StageFleet(ctx, to, tell(t, "restored"))
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	out := Restored{Store: store.Redacted(to.Store), Blobs: to.Blobs, Backup: source.Manifest, Forgotten: []record.Forgotten{}, Ended: []string{}}
	if err := repeatInFleet(ctx, s, t, made.Fleet, stones, &out); err != nil {
		return fmt.Errorf("repeat what was forgotten after the backup: nothing is in %s yet: %w", out.Store, err)
	}
	if err := s.AddBackup(state.RecordFlags{Store: to.Store, Blobs: to.Blobs}, c.Directory); err != nil {
		return err
	}
	if err := made.Commit(ctx); err != nil {
		return refused(err)
	}
	if c.JSON {
		return t.JSON(out)
	}
	t.Printf("%s is as it was at %s, and %s has its blobs\n", out.Store, readable.Time(out.Backup.Began), out.Blobs)
	out.print(t)
	t.Printf("Its processes start, and its runs go on, after:  %s\n", s.WorkerCommand("mend"))
	return nil
}

// repeatInFleet removes what was forgotten after the backup from a store that nobody uses yet,
// and its histories from the fleet's Temporal.
func repeatInFleet(ctx context.Context, s *state.Flags, t *terminal.Terminal, at backup.Fleet, stones []record.Forgotten, out *Restored) (err error) {
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{Store: at.Store, Blobs: at.Blobs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	todo, err := backup.ToRepeat(ctx, records.Store, stones)
	if err != nil || len(todo) == 0 {
		return err
	}
	temporal, namespace, err := s.DialNamespace(ctx, t)
	if err != nil {
		return fmt.Errorf("ask Temporal, which has histories to remove: %w", err)
	}
	defer temporal.Close()
	return repeater{temporal, namespace, records, s.Logger(ctx, t.Err), out}.all(ctx, stones)
}
