package backup

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
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
	report, err := backup.WriteFleet(ctx, c.Directory, from, c.options(s, tell(t, "copied")))
	if err != nil {
		return refused(err)
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

// tell returns a function that shows how far tables and blobs have come. done says what was done
// to them.
func tell(t *terminal.Terminal, done string) func(backup.Progress) {
	return func(p backup.Progress) {
		if p.Tables == 0 {
			fmt.Fprintf(t.Err, "%s %s; now blob %d of %d\n", readable.Bytes(p.Bytes), done, p.Number, p.Blobs)
			return
		}
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
	if err := source.CheckFleetTarget(ctx, to); err != nil {
		return refused(err)
	}
	if _, err := c.stones(ctx, source); err != nil {
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
	f := fleetRepeater{c, s, t, source, made, nil, ""}
	defer f.close()
	// Whether Temporal is needed, and there, is found out before all blobs are copied.
	if _, err := f.prepare(ctx); err != nil {
		return refused(fmt.Errorf("repeat what was forgotten after the backup: nothing is in %s yet: %w", store.Redacted(to.Store), err))
	}
	if err := made.TakeBlobs(ctx); err != nil {
		return refused(err)
	}
	out := Restored{Store: store.Redacted(to.Store), Blobs: to.Blobs, Backup: source.Manifest, Forgotten: []record.Forgotten{}, Ended: []string{}}
	if err := f.repeat(ctx, &out); err != nil {
		return fmt.Errorf("repeat what was forgotten after the backup: nothing is in %s yet: %w", out.Store, err)
	}
	if err := s.AddBackups(state.RecordFlags{Store: to.Store, Blobs: to.Blobs}, c.backups(source)...); err != nil {
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

// fleetRepeater removes what was forgotten after the backup from a store that nobody uses yet,
// and its histories from the fleet's Temporal.
type fleetRepeater struct {
	command *Restore
	state   *state.Flags
	t       *terminal.Terminal
	source  *backup.Source
	made    *backup.RestoredFleet

	temporal  client.Client // nil as long as nothing has to be forgotten
	namespace string
}

// prepare returns what was forgotten according to the sources as they are now, and connects to
// Temporal if some of it has to be forgotten in the store.
func (f *fleetRepeater) prepare(ctx context.Context) (stones []record.Forgotten, err error) {
	if err := f.source.ReadForgotten(); err != nil {
		return nil, err
	}
	if stones, err = f.command.stones(ctx, f.source); err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, f.made.Store, nil)
	if err != nil {
		return nil, err
	}
	todo, err := backup.ToRepeat(ctx, s, stones)
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	if len(todo) > 0 && f.temporal == nil {
		if f.temporal, f.namespace, err = f.state.DialNamespace(ctx, f.t); err != nil {
			return nil, fmt.Errorf("ask Temporal, which has histories to remove: %w", err)
		}
	}
	return stones, nil
}

// repeat forgets until the sources tell of nothing more: somebody may forget meanwhile.
func (f *fleetRepeater) repeat(ctx context.Context, out *Restored) (err error) {
	for known := -1; ; {
		stones, err := f.prepare(ctx)
		if err != nil {
			return err
		}
		if len(stones) == known || f.temporal == nil {
			return nil
		}
		known = len(stones)
		if err := f.all(ctx, stones, out); err != nil {
			return err
		}
		if err := f.made.Ping(ctx); err != nil {
			return err
		}
	}
}

func (f *fleetRepeater) all(ctx context.Context, stones []record.Forgotten, out *Restored) (err error) {
	records, err := f.state.OpenRecords(ctx, f.t, state.RecordFlags{Store: f.made.Store, Blobs: f.made.Blobs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	return repeater{f.temporal, f.namespace, records, f.state.Logger(ctx, f.t.Err), out, f.made.Ping}.all(ctx, stones)
}

func (f *fleetRepeater) close() {
	if f.temporal != nil {
		f.temporal.Close()
	}
}
