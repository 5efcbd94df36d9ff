package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Restore is `fulgurite restore`.
type Restore struct {
	Directory string `arg:"" name:"directory" help:"The directory of a backup." type:"path"`
	To        string `help:"Directory of state to make; it must be empty or absent (default: --dir)." placeholder:"DIR" type:"path"`
	Verify    bool   `help:"Read all blobs and compare them with their digests, not only their sizes."`
	Forgotten string `help:"Also repeat what was forgotten according to this: a directory of state that still has its store, postgres://… of such a store, or a forgotten.json." placeholder:"PATH"`
	JSON      bool   `help:"Print JSON." name:"json"`
	Store     string `help:"Of a fleet: the empty database that gets the store, postgres://…." env:"FULGURITE_STORE" placeholder:"URL"`
	Blobs     string `help:"Of a fleet: the directory that gets the blobs; it must be empty or absent." env:"FULGURITE_BLOBS" placeholder:"DIR" type:"path"`
}

// Restored says what Restore did. The keys of its JSON are a public contract.
type Restored struct {
	// Directory is what was made of a stack's backup. Store, without any password, and Blobs
	// are what was made of a fleet's.
	Directory string          `json:"directory,omitempty"`
	Store     string          `json:"store,omitempty"`
	Blobs     string          `json:"blobs,omitempty"`
	Backup    backup.Manifest `json:"backup"`
	// Forgotten are the runs and tasks that were removed again, because they had been
	// forgotten after the backup.
	Forgotten []record.Forgotten `json:"forgotten"`
	// Ended are the runs that were under way in the backup and were ended, because they, or
	// a task of them, had been forgotten.
	Ended []string `json:"ended"`
}

// Outputs returns what the command prints as JSON.
func (*Restore) Outputs() []any { return []any{Restored{}} }

// Run makes a directory of state, or the store of a fleet, out of a backup.
func (c *Restore) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) (err error) {
	source, err := backup.Open(c.Directory)
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if source.Manifest.Kind == backup.KindFleet {
		return c.fleet(ctx, s, t, source)
	}
	if c.To == "" && (c.Store != "" || c.Blobs != "") {
		return terminal.Usagef("%s has the backup of a stack's directory, and --store and --blobs (or FULGURITE_STORE and FULGURITE_BLOBS) name a fleet: give --to for the directory", c.Directory)
	}
	return c.stack(ctx, s, t, source)
}

// stack makes a directory of state.
func (c *Restore) stack(ctx context.Context, s *state.Flags, t *terminal.Terminal, source *backup.Source) error {
	at := &state.Flags{Dir: cmp.Or(c.To, s.Dir), Verbose: s.Verbose}
	if err := backup.CheckTarget(at.Dir); err != nil {
		return refused(err)
	}
	stones, err := c.stones(ctx, source)
	if err != nil {
		return refused(err)
	}
	if err := source.Check(ctx, c.Verify); err != nil {
		return refused(err)
	}
	made, err := source.Stage(ctx, at.Dir, places)
	if err != nil {
		return refused(err)
	}
	out := Restored{Directory: at.Dir, Backup: source.Manifest, Forgotten: []record.Forgotten{}, Ended: []string{}}
	if err := repeat(ctx, &state.Flags{Dir: made.Directory, Verbose: s.Verbose}, t, stones, &out); err != nil {
		return fmt.Errorf("repeat what was forgotten after the backup: nothing is in %s yet: %w", at.Dir, err)
	}
	if err := (&state.Flags{Dir: made.Directory}).AddBackups(state.RecordFlags{}, c.backups(source)...); err != nil {
		return err
	}
	if err := made.Commit(); err != nil {
		return refused(err)
	}
	if c.JSON {
		return t.JSON(out)
	}
	c.print(t, at, out)
	return nil
}

func (c *Restore) print(t *terminal.Terminal, at *state.Flags, out Restored) {
	m := out.Backup
	t.Printf("%s is as it was at %s\n", out.Directory, readable.Time(m.Began))
	out.print(t)
	t.Printf("Its runs go on with:  %s\n", at.Command("dev"))
}

// print shows what was restored, forgotten again and ended.
func (out Restored) print(t *terminal.Terminal) {
	m := out.Backup
	running := 0
	for _, r := range m.Runs {
		if r.Status == record.Running {
			running++
		}
	}
	t.Printf("  runs       %d, %d of them under way then\n", len(m.Runs), running)
	t.Printf("  blobs      %s, %s\n", readable.Count(m.BlobFiles, "file"), readable.Bytes(m.BlobBytes))
	for _, f := range out.Forgotten {
		what := "run " + f.Run
		if f.What == record.ForgottenTask {
			what = fmt.Sprintf("task %q of run %s", f.Task, f.Run)
		}
		if f.What == record.ForgottenUser {
			what = fmt.Sprintf("the user %.12s in run %s", f.Task, f.Run)
		}
		t.Printf("  forgotten  %s, as %s did on %s\n", terminal.Escape(what), terminal.Escape(f.By), readable.Time(f.Begun))
	}
	for _, run := range out.Ended {
		t.Printf("  ended      %s, because it was under way in the backup\n", run)
	}
}

// backups returns the directories of backups that what is restored has to know.
func (c *Restore) backups(source *backup.Source) []string {
	return append(slices.Clone(source.Backups), c.Directory)
}

// stones returns what was forgotten according to the backup, and to what the flag names.
func (c *Restore) stones(ctx context.Context, source *backup.Source) ([]record.Forgotten, error) {
	if c.Forgotten == "" {
		return source.Forgotten, nil
	}
	f, place, err := readForgotten(ctx, c.Forgotten)
	if err != nil {
		return nil, fmt.Errorf("--forgotten: %w", err)
	}
	if f.Store != source.Manifest.Store {
		return nil, terminal.Usagef("--forgotten: %s is of another store (%s, and the backup is of %s)", place, f.Store, source.Manifest.Store)
	}
	return append(f.Forgotten, source.Forgotten...), nil
}

// readForgotten reads what was forgotten according to a store in PostgreSQL, the store of a
// directory of state, or a file. place is for messages.
func readForgotten(ctx context.Context, from string) (f backup.Forgotten, place string, err error) {
	if path, err := store.FilePath(from); err == nil && path == "" {
		f.Store, f.Forgotten, err = backup.Tombstones(ctx, from)
		return f, store.Redacted(from), err
	}
	if from, err = filepath.Abs(from); err != nil {
		return f, from, err
	}
	stat, err := os.Stat(from)
	switch {
	case err != nil:
		return f, from, terminal.Usage(err)
	case !stat.IsDir():
		f, err = backup.ReadForgotten(from)
		return f, from, err
	}
	database := places(from).Store
	if _, err := os.Stat(database); err != nil {
		return f, from, terminal.Usagef("%s has no store: give a directory of state, or a forgotten.json", from)
	}
	f.Store, f.Forgotten, err = backup.Tombstones(ctx, database)
	return f, from, err
}

// repeat removes what was forgotten after the backup from a directory that nobody uses yet.
func repeat(ctx context.Context, s *state.Flags, t *terminal.Terminal, stones []record.Forgotten, out *Restored) (err error) {
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	todo, err := backup.ToRepeat(ctx, records.Store, stones)
	if err != nil || len(todo) == 0 {
		return err
	}
	server, err := devserver.Start(ctx, devserver.Options{
		Dir: s.Layout().Temporal(), SearchAttributes: workflows.SearchAttributes(), Log: s.ServerLogger(ctx, t.Err),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	temporal, err := server.Client(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	return repeater{temporal, server.Namespace(), records, s.Logger(ctx, t.Err), out, nil}.all(ctx, stones)
}

// repeater forgets again.
type repeater struct {
	client    client.Client
	namespace string
	records   fleet.Records
	log       *zap.Logger
	out       *Restored
	ping      func(context.Context) error // is called after each removal, unless it is nil
}

// all forgets all runs before tasks and users, because a run takes these along.
func (r repeater) all(ctx context.Context, stones []record.Forgotten) error {
	for _, what := range []record.ForgottenKind{record.ForgottenRun, record.ForgottenTask, record.ForgottenUser} {
		todo, err := backup.ToRepeat(ctx, r.records.Store, stones)
		if err != nil {
			return err
		}
		for _, one := range todo {
			if one.What != what {
				continue
			}
			err := r.forget(ctx, one)
			if err == nil && r.ping != nil {
				err = r.ping(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	return r.records.Store.Scrub(ctx, false)
}

func (r repeater) forget(ctx context.Context, one record.Forgotten) error {
	f := retention.Forgetter{Store: r.records.Store, Blobs: r.records.Blobs, Histories: runstate.Histories{Client: r.client, Namespace: r.namespace}}
	var err error
	switch one.What {
	case record.ForgottenTask:
		if err = r.end(ctx, one.Run); err == nil {
			_, err = f.ForgetTask(ctx, one.Task, one.Run, one.By, one.Reason, false)
		}
	case record.ForgottenUser:
		user, _, _ := strings.Cut(one.Task, "/") // the number of the removal follows
		_, err = f.ForgetUser(ctx, user, one.Run, one.By, one.Reason, false)
		// A run goes on without what a user said, unless one of its steps learns from it.
		if errors.Is(err, retention.ErrRefused) {
			if err = r.end(ctx, one.Run); err == nil {
				_, err = f.ForgetUser(ctx, user, one.Run, one.By, one.Reason, false)
			}
		}
	default:
		if err = r.end(ctx, one.Run); err == nil {
			_, err = f.ForgetRun(ctx, one.Run, one.By, one.Reason)
		}
	}
	if errors.Is(err, record.ErrNotFound) {
		return nil // the run had not come to the task, or the user had said nothing
	}
	if err == nil {
		r.out.Forgotten = append(r.out.Forgotten, one)
	}
	return err
}

// end terminates what is under way of a run: only a run that has ended can be forgotten, or a
// task of it.
func (r repeater) end(ctx context.Context, name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("end run %s: %w", name, err)
		}
	}()
	run, err := r.records.Store.RunToForget(ctx, name)
	if err != nil {
		return err
	}
	histories := runstate.Histories{Client: r.client, Namespace: r.namespace}
	for last := ""; ; {
		id, err := histories.Open(ctx, run)
		if err != nil {
			return err
		}
		if id == "" {
			break
		}
		if id == last {
			return fmt.Errorf("workflow %s was terminated and is still under way", id)
		}
		err = r.client.TerminateWorkflow(ctx, id, "", "it was forgotten after the backup that is restored")
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return fmt.Errorf("terminate workflow %s: %w", id, err)
		}
		last = id
	}
	if run.Status != record.Running {
		return nil
	}
	r.out.Ended = append(r.out.Ended, name)
	// The record of other runs stays as it was: Temporal may be from another time.
	return runstate.Reconciler{Client: r.client, Namespace: r.namespace, Store: oneRun{r.records.Store, name}, Log: r.log}.Step(ctx)
}

// oneRun is a store that lists only one of its runs.
type oneRun struct {
	*store.Store
	name string
}

// Runs implements runstate.Store.
func (o oneRun) Runs(ctx context.Context) ([]record.Run, error) {
	run, err := o.Run(ctx, o.name)
	return []record.Run{run}, err
}
