// Package trackers is `fulgurite track`, which writes what is on record of runs to the files
// of TensorBoard or to a tracker for Python, and goes on with it while the runs do.
package trackers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/traces"
	"github.com/fulgurite/fulgurite/run/track"
	"github.com/fulgurite/fulgurite/run/track/tensorboard"
	"github.com/fulgurite/fulgurite/run/track/tracker"
	"github.com/fulgurite/fulgurite/store"
)

// Command is `fulgurite track`.
type Command struct {
	Runs_       []string `arg:"" name:"run" help:"Names of the runs."`
	TensorBoard string   `help:"Write event files of TensorBoard to DIR/RUN." name:"tensorboard" placeholder:"DIR" type:"path"`
	Tracker     string   `help:"Log to trackio or wandb, which are packages of Python." enum:",trackio,wandb" default:""`
	Project     string   `help:"Project of the tracker." default:"fulgurite"`
	Python      string   `help:"Python that has the tracker's package." default:"python3"`
	OTLP        string   `help:"Send traces to a collector of OpenTelemetry, by OTLP over HTTP. OTEL_EXPORTER_OTLP_HEADERS has headers, such as a key." name:"otlp" placeholder:"URL"`
	Once        bool     `help:"Write what is on record and end, although runs go on."`
	JSON        bool     `help:"Print JSON, once all is written." name:"json"`

	Records state.RecordFlags `embed:""`
}

const (
	// every is how often the store is asked for news.
	every = time.Second
	// busyLimit is how long a process that tracks the same run is waited for. One that was
	// killed may have left a tracker that is still sending.
	busyLimit = time.Minute
	busyPause = 200 * time.Millisecond
	// settle is how long spans that agents send late are waited for, before a step's trace is
	// made.
	settle = 10 * time.Second
)

// The names of TensorBoard and of collectors where a tracker has one.
const (
	tensorBoard = "tensorboard"
	otlp        = "otlp"
)

// headersVariable has the headers for a collector, as the exporters of OpenTelemetry read it.
const headersVariable = "OTEL_EXPORTER_OTLP_HEADERS"

// tracked is a run in a tracker, as the command prints it.
type tracked struct {
	Run string `json:"run"`
	// Tracker is tensorboard, trackio, wandb or otlp.
	Tracker string `json:"tracker"`
	// File is the event file of TensorBoard.
	File string `json:"file,omitempty"`
	// URL is the address of a collector.
	URL string `json:"url,omitempty"`
	// Project is the project of another tracker.
	Project string `json:"project,omitempty"`
	// Step is the last step that the tracker has.
	Step int `json:"step"`
	// Evaluations and Promotions are how many of these it has.
	Evaluations int `json:"evaluations"`
	Promotions  int `json:"promotions"`
	// Written is how many entries this command wrote: steps, evaluations, promotions, the
	// spec, and the metrics of version 0.
	Written int `json:"written"`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{[]tracked{}} }

// writer is a tracker of one run.
type writer interface {
	track.Writer
	Close() error
}

// Run follows the runs until all of them have ended, or writes them once.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	runs, err := c.find(ctx, records.Store)
	if err != nil {
		return err
	}
	if c.TensorBoard == "" && c.Tracker == "" && c.OTLP == "" {
		return terminal.Usagef("give --tensorboard DIR, --otlp URL, or --tracker with trackio or wandb")
	}
	sender, err := c.sender()
	if err != nil {
		return terminal.Usage(err)
	}
	f := follower{Command: c, store: records.Store, sender: sender, journals: filepath.Join(s.Dir, "trackers"), out: t.Out, errs: t.Err}
	if c.JSON {
		f.out = t.Err
	}
	if s.Verbose {
		f.log = &f
	}
	out, err := f.all(ctx, runs)
	if err == nil && c.JSON {
		return t.JSON(out)
	}
	return err
}

// find returns the rows of the runs.
func (c *Command) find(ctx context.Context, db *store.Store) ([]record.Run, error) {
	var runs []record.Run
	for i, name := range c.Runs_ {
		if slices.Contains(c.Runs_[:i], name) {
			continue
		}
		run, err := db.Run(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", name, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// follower follows the runs of a command.
type follower struct {
	*Command
	store    *store.Store
	sender   traces.Sender
	journals string    // folder
	log      io.Writer // of what trackers print; nil for nothing

	mu        sync.Mutex // guards both
	out, errs io.Writer
}

// Write writes what a tracker prints.
func (f *follower) Write(text []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs.Write(text)
}

func (f *follower) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.out, format+"\n", args...)
}

// all follows each run with each tracker, all at once. The first error ends all.
func (f *follower) all(ctx context.Context, runs []record.Run) ([]tracked, error) {
	var todo []tracked
	byName := map[string]record.Run{}
	for _, run := range runs {
		byName[run.Name] = run
		if f.TensorBoard != "" {
			todo = append(todo, tracked{Run: run.Name, Tracker: tensorBoard})
		}
		if f.Tracker != "" {
			todo = append(todo, tracked{Run: run.Name, Tracker: f.Tracker, Project: f.Project})
		}
		if f.OTLP != "" {
			todo = append(todo, tracked{Run: run.Name, Tracker: otlp, URL: f.sender.Name()})
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range todo {
		group.Go(func() error { return f.one(ctx, byName[todo[i].Run], &todo[i]) })
	}
	return todo, group.Wait()
}

// one follows a run with one tracker.
func (f *follower) one(ctx context.Context, run record.Run, t *tracked) (err error) {
	w, place, err := f.open(ctx, run, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f.say("%s goes to %s", run.Name, place)
	o := track.Options{
		Away: func(err error) {
			if err == nil {
				f.say("%s: the store is back", run.Name)
				return
			}
			f.say("%s: the store is away, waiting: %s", run.Name, terminal.Escape(err.Error()))
		},
		Wrote: func(entries []track.Entry) { t.Written += len(entries) },
	}
	if !f.Once {
		o.Every = every
	}
	err = track.Follow(ctx, track.NewReader(f.store, run.Name), w, o)
	has := w.Position()
	t.Step, t.Evaluations = has.Step, len(has.Evaluations)
	for _, n := range has.Moves {
		t.Promotions += n
	}
	so := ""
	if err != nil {
		so = " so far; the same command goes on there"
	}
	f.say("%s: %s, %s and %s are in %s%s", run.Name, readable.Count(t.Step, "step"), readable.Count(t.Evaluations, "evaluation"), readable.Count(t.Promotions, "promotion"), place, so)
	return err
}

// open opens a tracker of a run. It waits for another process that has it, for a while.
func (f *follower) open(ctx context.Context, run record.Run, t *tracked) (w writer, place string, err error) {
	if t.Tracker == otlp {
		w, err := f.collector(ctx, run)
		return w, f.sender.Name(), err
	}
	deadline := time.Now().Add(busyLimit)
	for said := false; ; said = true {
		if t.Tracker == tensorBoard {
			var file *tensorboard.Writer
			if file, err = tensorboard.Open(f.TensorBoard, run); err == nil {
				t.File = file.Path()
				return file, t.File, nil
			}
		} else {
			w, err = tracker.Open(ctx, tracker.Options{Tracker: f.Tracker, Project: f.Project, Python: f.Python, Dir: f.journals, Log: f.log}, run)
			if err == nil {
				return w, fmt.Sprintf("%s, project %s", f.Tracker, f.Project), nil
			}
		}
		busy := errors.Is(err, tensorboard.ErrBusy) || errors.Is(err, tracker.ErrBusy)
		if !busy || time.Now().After(deadline) {
			return nil, "", err
		}
		if !said {
			f.say("%s: %v; waiting for it", run.Name, err)
		}
		if !wait.For(ctx, busyPause) {
			return nil, "", ctx.Err()
		}
	}
}

// sender returns the way to the collector, which is empty if none is given.
func (c *Command) sender() (traces.Sender, error) {
	if c.OTLP == "" {
		return traces.Sender{}, nil
	}
	h, err := headers(os.Getenv(headersVariable))
	if err != nil {
		return traces.Sender{}, fmt.Errorf("%s: %w", headersVariable, err)
	}
	s := traces.Sender{URL: c.OTLP, Headers: h}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("--otlp: %w", err)
	}
	return s, nil
}

// collector returns a writer that sends the traces of a run.
func (f *follower) collector(ctx context.Context, run record.Run) (writer, error) {
	id, err := f.store.ID(ctx)
	if err != nil {
		return nil, err
	}
	sender := f.sender
	away := false
	sender.Waiting = func(err error) {
		switch {
		case err == nil:
			f.say("%s: the collector is back", run.Name)
		case !away:
			f.say("%s: the collector is away, waiting: %s", run.Name, terminal.Escape(err.Error()))
		}
		away = err != nil
	}
	sender.Dropped = func(err error) { f.say("%s: %s", run.Name, terminal.Escape(err.Error())) }
	w, err := traces.OpenWriter(f.store, id, run, sender, f.journals)
	if err != nil {
		return nil, err
	}
	w.Settle = settle
	return w, nil
}

// headers reads headers as "NAME=VALUE,NAME=VALUE", with escapes of URLs.
func headers(text string) (http.Header, error) {
	h := http.Header{}
	for i, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, fmt.Errorf("its part %d is not of the form NAME=VALUE", i+1) // without the value, which may be a key
		}
		h.Set(name, value)
	}
	return h, nil
}
