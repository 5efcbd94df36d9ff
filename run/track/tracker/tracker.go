// Package tracker logs the entries of a run with a tracker for Python, trackio or wandb. A
// small program in Python, which the package starts, calls the tracker's init and log; all
// else happens here.
//
// It knows no more of these trackers than that, and installs none. It is not for
// TensorBoard, whose files need no Python.
//
// Each entry is logged with the step of training. What is logged is asked from the tracker
// where it can tell: trackio lists what its database has, and wandb says how many entries
// its server has. Where it can't, the package relies on a journal in a folder of its own.
// The journal numbers the entries; wandb gets the number as its own step, and ignores an
// entry whose number it has.
//
// If this process is killed, the one of the tracker logs what it was given, notes it in
// the journal and ends. It holds the journal's lock until then, so that no other one logs
// the run. If both are killed, a tracker that can't tell what it has may get the entries
// that were being logged a second time.
package tracker

import (
	"bufio"
	"context"
	_ "embed" // the program
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/track"
)

//go:embed program.py
var program string

// The trackers.
const (
	Trackio = "trackio"
	Wandb   = "wandb"
)

// ErrBusy is wrapped if another process logs the run.
var ErrBusy = errors.New("another process logs this run to this project")

// Options say where a run is logged. All are required but Log.
type Options struct {
	Tracker string // Trackio or Wandb
	Project string
	Python  string // the interpreter, which has the tracker's package
	Dir     string // folder of the journals
	// Log gets what the tracker prints.
	Log io.Writer
}

const (
	// maxBatch is how many entries are logged until the tracker has to acknowledge them.
	maxBatch = 500
	// endLimit is how long a tracker may take to finish, such as for what it still sends.
	endLimit = 2 * time.Minute
	// leave is how long a tracker may take for a reply that nobody needs any more.
	leave = 10 * time.Second
	// tailSize is how much of what a tracker printed last is shown if it fails.
	tailSize = 2000
)

// Writer logs a run. Make one with Open.
type Writer struct {
	options  Options
	journal  *journal
	command  *exec.Cmd
	requests io.WriteCloser
	replies  *bufio.Reader
	printed  *subprocess.Tail
	position track.Position
	pending  []noted // were being logged when an earlier process died, and are not
	logged   int     // entries that this process logged
	ended    bool    // the program
	failed   bool    // the program has said why it ends
}

type opening struct {
	Tracker string         `json:"tracker"`
	Project string         `json:"project"`
	Name    string         `json:"name"`
	ID      string         `json:"id"`
	Config  map[string]any `json:"config"`
}

type request struct {
	Log    *loggedEntry `json:"log,omitempty"`
	Commit int          `json:"commit,omitempty"`
}

type loggedEntry struct {
	Sequence int            `json:"sequence"`
	Step     int            `json:"step"`
	Values   map[string]any `json:"values"`
}

type reply struct {
	Row *struct {
		Step  int      `json:"step"`
		Names []string `json:"names"`
	} `json:"row"`
	Ready *struct {
		Rows   bool `json:"rows"`
		Logged *int `json:"logged"`
	} `json:"ready"`
	Committed int    `json:"committed"`
	Error     string `json:"error"`
	Missing   string `json:"missing"`
}

// Open starts a tracker for a run and asks it what it has of the run. An error that wraps
// ErrBusy means that another process logs the run, or has been killed and its tracker is
// still ending.
func Open(ctx context.Context, o Options, run record.Run) (*Writer, error) {
	id := fmt.Sprintf("%s-%d", run.Name, run.Created.Unix())
	j, err := openJournal(filepath.Join(o.Dir, o.Tracker, url.PathEscape(o.Project), id+".jsonl"))
	if err != nil {
		return nil, err
	}
	w := &Writer{options: o, journal: j, printed: subprocess.NewTail(tailSize)}
	config, err := configOf(run)
	if err == nil {
		err = w.start()
	}
	if err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	if err := w.open(ctx, opening{Tracker: o.Tracker, Project: o.Project, Name: run.Name, ID: id, Config: config}); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// configOf returns what a tracker gets as the configuration of a run.
func configOf(run record.Run) (map[string]any, error) {
	text, err := track.SpecOf(run)
	if err != nil {
		return nil, err
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("decode the spec of run %s: %w", run.Name, err)
	}
	config["fulgurite_run"] = run.Name + " of " + run.Created.UTC().Format(time.RFC3339Nano)
	return config, nil
}

// start starts the program. Its process ends with its standard input, so also when this
// process is killed.
func (w *Writer) start() error {
	command := exec.CommandContext(context.Background(), w.options.Python, "-c", program) // Close ends it
	subprocess.OwnGroup(command)                                                          // Ctrl-C is for this process
	command.ExtraFiles = []*os.File{w.journal.file}                                       // notes what is logged, and holds the lock
	command.Env = subprocess.Environment()                                                // with the key of the tracker
	command.Stderr = w.printed
	if w.options.Log != nil {
		command.Stderr = io.MultiWriter(w.printed, w.options.Log)
	}
	requests, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", w.options.Tracker, err)
	}
	replies, err := command.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", w.options.Tracker, err)
	}
	if err := command.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("start %s: %s is not there: install Python 3, or name one that has the package %s", w.options.Tracker, w.options.Python, w.options.Tracker)
		}
		return fmt.Errorf("start %s: %w", w.options.Tracker, err)
	}
	w.command, w.requests, w.replies = command, requests, bufio.NewReader(replies)
	return nil
}

// open opens the run and finds out what the tracker has of it.
func (w *Writer) open(ctx context.Context, o opening) error {
	if err := w.send(o); err != nil {
		return err
	}
	var has track.Position
	for {
		r, err := w.receive(ctx)
		if err != nil {
			return err
		}
		if r.Row != nil {
			has.Add(r.Row.Step, r.Row.Names)
			continue
		}
		if r.Ready == nil {
			return fmt.Errorf("open run in %s: it replied something else", w.options.Tracker)
		}
		count := w.journal.committed
		if r.Ready.Logged != nil {
			count = *r.Ready.Logged
		}
		if count > len(w.journal.entries) {
			return fmt.Errorf("%s has %d entries of the run, and %s notes %d: go on in the directory in which it was tracked so far", w.options.Tracker, count, w.journal.path, len(w.journal.entries))
		}
		if !r.Ready.Rows {
			has, w.pending = w.journal.position(count), slices.Clone(w.journal.entries[count:])
		}
		has.Spec = true // it is the configuration
		w.position = has
		return nil
	}
}

// send sends a request to the program.
func (w *Writer) send(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = w.requests.Write(append(text, '\n'))
	}
	if err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, syscall.EPIPE) { // the reply says why it ended
		return fmt.Errorf("ask %s: %w", w.options.Tracker, err)
	}
	return nil
}

// receive reads a reply. If the context ends before, the program is given a moment for it,
// and then killed.
func (w *Writer) receive(ctx context.Context) (reply, error) {
	received := make(chan struct{})
	defer close(received)
	stop := context.AfterFunc(ctx, func() {
		limit := time.NewTimer(leave)
		defer limit.Stop()
		select {
		case <-received:
		case <-limit.C:
			subprocess.KillGroup(w.command)
		}
	})
	defer stop()
	var r reply
	text, err := w.replies.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	name := w.options.Tracker
	switch {
	case err != nil && ctx.Err() != nil:
		w.failed = true
		return r, ctx.Err()
	case errors.Is(err, io.EOF):
		w.failed = true
		_ = w.wait() // its output says more than its exit code
		return r, fmt.Errorf("%s ended: %s", name, strings.TrimSpace(w.printed.String()))
	case err != nil:
		return r, fmt.Errorf("read the reply of %s: %w", name, err)
	case r.Missing != "":
		w.failed = true
		return r, fmt.Errorf("%s lacks the package %s: run `%s -m pip install %s`, or name the Python that has it", w.options.Python, r.Missing, w.options.Python, name)
	case r.Error != "":
		w.failed = true
		return r, fmt.Errorf("%s: %s", name, r.Error)
	}
	return r, nil
}

// Position returns which entries the tracker has.
func (w *Writer) Position() track.Position { return w.position.Clone() }

// Write logs entries.
func (w *Writer) Write(ctx context.Context, entries []track.Entry) error {
	numbers, entries, err := w.number(entries)
	if err != nil {
		return err
	}
	for len(entries) > 0 {
		n := min(len(entries), maxBatch)
		if err := w.log(ctx, numbers[:n], entries[:n]); err != nil {
			return err
		}
		numbers, entries = numbers[n:], entries[n:]
	}
	return nil
}

// number returns the numbers of entries, in the order in which they are to be logged. Those
// that an earlier process was logging keep their numbers, and come first. New ones are
// noted in the journal.
func (w *Writer) number(entries []track.Entry) ([]int, []track.Entry, error) {
	var numbers []int
	var ordered []track.Entry
	rest := slices.Clone(entries)
	first := len(w.journal.entries) - len(w.pending)
	for i, p := range w.pending {
		at := slices.IndexFunc(rest, func(e track.Entry) bool { return e.Step == p.Step && e.Mark() == p.Name })
		if at < 0 {
			return nil, nil, fmt.Errorf("%s notes %s of step %d, which is not on record: was the store restored from a backup?", w.journal.path, p.Name, p.Step)
		}
		numbers, ordered = append(numbers, first+i), append(ordered, rest[at])
		rest = slices.Delete(rest, at, at+1)
	}
	w.pending = nil
	var added []noted
	for i, e := range rest {
		numbers, ordered = append(numbers, len(w.journal.entries)+i), append(ordered, e)
		added = append(added, noted{Step: e.Step, Name: e.Mark()})
	}
	return numbers, ordered, w.journal.add(added)
}

// log logs entries and waits until the tracker has them.
func (w *Writer) log(ctx context.Context, numbers []int, entries []track.Entry) error {
	for i, e := range entries {
		values := map[string]any{}
		for _, v := range e.Values {
			values[v.Name] = v.Number
		}
		for _, t := range e.Texts {
			values[t.Name] = t.Text
		}
		if err := w.send(request{Log: &loggedEntry{Sequence: numbers[i], Step: e.Step, Values: values}}); err != nil {
			return err
		}
	}
	w.logged += len(entries)
	if err := w.send(request{Commit: w.logged}); err != nil {
		return err
	}
	r, err := w.receive(ctx)
	if err != nil {
		return err
	}
	if r.Committed != w.logged {
		return fmt.Errorf("log to %s: it acknowledged %d entries of %d", w.options.Tracker, r.Committed, w.logged)
	}
	for _, e := range entries {
		w.position.Add(e.Step, e.Names())
	}
	return nil
}

// wait waits until the program has ended, and its output is complete. Processes that the
// tracker leaves behind may keep that open.
func (w *Writer) wait() error {
	if w.ended {
		return nil
	}
	w.ended = true
	if err := w.command.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil
}

// Close lets the tracker finish and waits for it.
func (w *Writer) Close() error {
	_ = w.requests.Close() // the program may have ended
	ended := make(chan error, 1)
	go func() { ended <- w.wait() }()
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	var err error
	select {
	case err = <-ended:
	case <-limit.C:
		subprocess.KillGroup(w.command)
		err = errors.Join(fmt.Errorf("it did not finish within %s", endLimit), <-ended)
	}
	switch {
	case w.failed:
		err = nil
	case err != nil:
		err = fmt.Errorf("end %s: %w", w.options.Tracker, err)
	}
	return errors.Join(err, w.journal.file.Close())
}
