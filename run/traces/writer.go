package traces

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/track"
)

// WriterStore is the part of a store that a writer reads.
type WriterStore interface {
	Store
	StepsAfter(ctx context.Context, run, policy string, after int) ([]record.Step, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
}

// Writer sends the trace of each step and evaluation of a run to a collector. It notes in a
// file what it has sent. If it is killed in between, the next one sends a trace again, with
// equal ids.
type Writer struct {
	// Settle is how long after a step or an evaluation its trace is made: agents that go on
	// running send their spans some seconds late. 0 is at once.
	Settle time.Duration

	reader *Reader
	store  WriterStore
	sender Sender
	path   string
	has    track.Position
	steps  []record.Step // that were read, from the first that was not sent on
}

var _ track.Writer = (*Writer)(nil)

// OpenWriter returns a writer for a run. Files in dir note what was sent.
func OpenWriter(store WriterStore, id string, run record.Run, s Sender, dir string) (*Writer, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	reader, err := NewReader(store, id, run)
	if err != nil {
		return nil, err
	}
	w := &Writer{reader: reader, store: store, sender: s}
	place := digest(s.endpoint()) // which may have a key
	w.path = filepath.Join(dir, "otlp", hex.EncodeToString(place[:8]), fmt.Sprintf("%s-%d.json", run.Name, run.Created.Unix()))
	text, err := os.ReadFile(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &w.has)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was sent of run %s: %s: %w; remove the file, and all is sent again", run.Name, w.path, err)
	}
	return w, nil
}

// Path returns the file that notes what was sent.
func (w *Writer) Path() string { return w.path }

// Close does nothing: what was sent is noted already.
func (w *Writer) Close() error { return nil }

// Position returns which entries have been sent.
func (w *Writer) Position() track.Position { return w.has.Clone() }

// Write sends the traces of entries. It waits for a collector that is away, and until what
// agents send late has come. The error wraps track.ErrRead if the store can't be read.
func (w *Writer) Write(ctx context.Context, entries []track.Entry) error {
	for _, e := range entries {
		if err := w.write(ctx, e); err != nil {
			return err
		}
		w.has.Add(e.Step, e.Names())
		if err := w.note(); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) write(ctx context.Context, e track.Entry) error {
	which, evaluated := e.Evaluation()
	if !evaluated && !e.IsStep() {
		return nil
	}
	if !wait.For(ctx, time.Until(e.Time.Add(w.Settle))) {
		return ctx.Err()
	}
	var spans []*v1.Span
	var err error
	if evaluated {
		spans, err = w.evaluation(ctx, which)
	} else {
		spans, err = w.spansOfStep(ctx, e.Step)
	}
	if errors.Is(err, record.ErrNotFound) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", track.ErrRead, err)
	}
	return w.sender.Send(ctx, w.reader, spans)
}

func (w *Writer) evaluation(ctx context.Context, which track.Evaluated) ([]*v1.Span, error) {
	run := w.reader.run.Name
	all, err := w.store.Evaluations(ctx, run)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(e record.Evaluation) bool {
		return track.Evaluated{Policy: e.Policy, Kind: e.Kind, Version: e.Version} == which
	})
	if i < 0 {
		return nil, fmt.Errorf("evaluation of version %d on the %s split of run %s: %w", which.Version, which.Kind, run, record.ErrNotFound)
	}
	return w.reader.Evaluation(ctx, all[i])
}

func (w *Writer) spansOfStep(ctx context.Context, number int) ([]*v1.Span, error) {
	step, err := w.step(ctx, number)
	if err != nil {
		return nil, err
	}
	spans, err := w.reader.Step(ctx, step)
	if err != nil {
		w.steps = nil // it is asked for again
	}
	return spans, err
}

// step returns a finished step. Steps are asked for in their order, so that all that are on
// record are read at once.
func (w *Writer) step(ctx context.Context, number int) (record.Step, error) {
	if len(w.steps) == 0 || w.steps[0].Step != number {
		steps, err := w.store.StepsAfter(ctx, w.reader.run.Name, model.DefaultPolicy, number-1)
		if err != nil {
			return record.Step{}, err
		}
		if len(steps) == 0 || steps[0].Step != number {
			return record.Step{}, fmt.Errorf("step %d of run %s: %w", number, w.reader.run.Name, record.ErrNotFound)
		}
		w.steps = steps
	}
	step := w.steps[0]
	w.steps = w.steps[1:]
	return step, nil
}

// note replaces the file at once, so that it is never incomplete.
func (w *Writer) note() error {
	text, err := json.Marshal(w.has)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(w.path), 0o755)
	}
	if err == nil {
		err = replace(w.path, text)
	}
	if err != nil {
		return fmt.Errorf("note what was sent of run %s: %w", w.reader.run.Name, err)
	}
	return nil
}

// replace writes a file beside path and gives it that name.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
