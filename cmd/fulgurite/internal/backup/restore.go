package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Restore is `fulgurite restore`.
type Restore struct {
	Directory string `arg:"" name:"directory" help:"The directory of a backup." type:"path"`
	To        string `help:"Directory of state to make; it must be empty or absent (default: --dir)." placeholder:"DIR" type:"path"`
	Verify    bool   `help:"Read all blobs and compare them with their digests, not only their sizes."`
	Forgotten string `help:"Also repeat what was forgotten according to this: a directory of state that still has its store, or a forgotten.json." placeholder:"PATH" type:"path"`
	JSON      bool   `help:"Print JSON." name:"json"`
}

// Restored says what Restore did. The keys of its JSON are a public contract.
type Restored struct {
	Directory string          `json:"directory"`
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

// Run makes a directory of state out of a backup.
func (c *Restore) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) (err error) {
	at := &state.Flags{Dir: cmp.Or(c.To, s.Dir), Verbose: s.Verbose}
	if err := backup.CheckTarget(at.Dir); err != nil {
		return refused(err)
	}
	source, err := backup.Open(c.Directory)
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
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
	if err := (&state.Flags{Dir: made.Directory}).AddBackup(c.Directory); err != nil {
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
	t.Printf("Its runs go on with:  %s\n", at.Command("dev"))
}

// stones returns what was forgotten according to the backup, and to what the flag names.
func (c *Restore) stones(ctx context.Context, source *backup.Source) ([]record.Forgotten, error) {
	if c.Forgotten == "" {
		return source.Forgotten, nil
	}
	stat, err := os.Stat(c.Forgotten)
	if err != nil {
		return nil, terminal.Usagef("--forgotten: %v", err)
	}
	f := backup.Forgotten{}
	if stat.IsDir() {
		path := c.Forgotten
		if _, err := os.Stat(filepath.Join(path, filepath.Base(places(path).Store))); err != nil {
			return nil, terminal.Usagef("--forgotten: %s has no store: give a directory of state, or a forgotten.json", path)
		}
		f.Store, f.Forgotten, err = backup.Tombstones(ctx, places(path).Store)
	} else {
		f, err = backup.ReadForgotten(c.Forgotten)
	}
	if err != nil {
		return nil, fmt.Errorf("--forgotten: %w", err)
	}
	if f.Store != source.Manifest.Store {
		return nil, terminal.Usagef("--forgotten: %s is of another store (%s, and the backup is of %s)", c.Forgotten, f.Store, source.Manifest.Store)
	}
	return append(f.Forgotten, source.Forgotten...), nil
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
	c, err := server.Client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	r := repeater{c, server.Namespace(), records, s.Logger(ctx, t.Err), out}
	for _, what := range []record.ForgottenKind{record.ForgottenRun, record.ForgottenTask, record.ForgottenUser} {
		todo, err := backup.ToRepeat(ctx, records.Store, stones) // a run takes its tasks along
		if err != nil {
			return err
		}
		for _, one := range todo {
			if one.What != what {
				continue
			}
			if err := r.forget(ctx, one); err != nil {
				return err
			}
		}
	}
	return records.Store.Scrub(ctx, false)
}

// repeater forgets again.
type repeater struct {
	client    client.Client
	namespace string
	records   fleet.Records
	log       *zap.Logger
	out       *Restored
}

func (r repeater) forget(ctx context.Context, one record.Forgotten) error {
	if err := r.end(ctx, one.Run); err != nil {
		return fmt.Errorf("end run %s: %w", one.Run, err)
	}
	f := retention.Forgetter{Store: r.records.Store, Blobs: r.records.Blobs, Histories: runstate.Histories{Client: r.client, Namespace: r.namespace}}
	var err error
	switch one.What {
	case record.ForgottenTask:
		_, err = f.ForgetTask(ctx, one.Task, one.Run, one.By, one.Reason, false)
	case record.ForgottenUser:
		user, _, _ := strings.Cut(one.Task, "/") // the number of the removal follows
		_, err = f.ForgetUser(ctx, user, one.Run, one.By, one.Reason, false)
	default:
		_, err = f.ForgetRun(ctx, one.Run, one.By, one.Reason)
	}
	if errors.Is(err, record.ErrNotFound) {
		return nil // the run had not come to the task, or the user had said nothing
	}
	if err == nil {
		r.out.Forgotten = append(r.out.Forgotten, one)
	}
	return err
}

// end terminates what is under way of a run: only a run that has ended can be forgotten.
func (r repeater) end(ctx context.Context, name string) error {
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
	return runstate.Reconciler{Client: r.client, Namespace: r.namespace, Store: r.records.Store, Log: r.log}.Step(ctx)
}
