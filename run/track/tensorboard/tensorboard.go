// Package tensorboard writes the entries of a run to an event file of TensorBoard: a sequence
// of records, each framed with its length and two checksums, as TFRecord files have them.
//
// It is not a client of TensorBoard, and needs nothing of it. Numbers become scalars, with
// single precision, as all of TensorBoard has them; the spec and the reasons of promotions
// become texts. The time of an event is that of the record, so equal records give equal
// files.
//
// A file says itself which entries it has. What a killed process or a full disk left of the
// last record is cut off when the file is opened again, and the entry is written anew. So
// each entry of a run is in its file once. Two writers can't have one file open.
package tensorboard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/track"
)

// ErrBusy is wrapped if another process writes the file of a run.
var ErrBusy = errors.New("another process writes this file")

// The name of a run's file has the second in which the run began between these.
// TensorBoard looks for "tfevents" in names.
const (
	namePrefix = "events.out.tfevents."
	nameSuffix = ".fulgurite"
)

// chunk is how many bytes are written at once.
const chunk = 1 << 20

// Writer writes the file of a run. Make one with Open.
type Writer struct {
	path     string
	file     *os.File
	size     int64 // of the whole records
	position track.Position
}

// Open opens the file of a run for writing, in the folder dir/RUN. It makes what is not
// there. An error that wraps ErrBusy means that another process has the file open.
func Open(dir string, run record.Run) (*Writer, error) {
	folder := filepath.Join(dir, run.Name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder for event files: %w", err)
	}
	path := filepath.Join(folder, fmt.Sprintf("%s%010d%s", namePrefix, run.Created.Unix(), nameSuffix))
	if err := checkAlone(folder, path); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open event file: %w", err)
	}
	w := &Writer{path: path, file: file}
	if err := w.open(run.Created); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// checkAlone refuses a folder with the file of another run, which TensorBoard would show as
// the same one.
func checkAlone(folder, path string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list event files: %w", err)
	}
	for _, f := range files {
		name := f.Name()
		if strings.HasPrefix(name, namePrefix) && strings.HasSuffix(name, nameSuffix) && name != filepath.Base(path) {
			return fmt.Errorf("%s is of another run with the same name: remove it, or choose another directory", filepath.Join(folder, name))
		}
	}
	return nil
}

// open locks the file, reads what it has and cuts off what is not whole.
func (w *Writer) open(created time.Time) error {
	if err := syscall.Flock(int(w.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrBusy
		}
		return fmt.Errorf("lock %s: %w", w.path, err)
	}
	var err error
	if w.size, w.position, err = scan(bufio.NewReaderSize(w.file, chunk)); err != nil {
		return fmt.Errorf("read %s: %w", w.path, err)
	}
	if err := w.file.Truncate(w.size); err != nil {
		return fmt.Errorf("cut off what is not whole of %s: %w", w.path, err)
	}
	if w.size > 0 {
		return nil
	}
	return w.append(appendRecord(nil, versionEvent(created)))
}

// scan returns the size of the whole records of a file, and which entries they have.
func scan(file io.Reader) (size int64, has track.Position, err error) {
	for {
		data, err := readRecord(file)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errTorn):
			return size, has, nil
		case err != nil:
			return 0, has, err
		}
		e, err := readEvent(data)
		if err != nil {
			return 0, has, fmt.Errorf("event at byte %d: %w", size, err)
		}
		has.Add(e.step, e.tags)
		size += int64(len(data) + frameSize)
	}
}

// Path returns the path of the file.
func (w *Writer) Path() string { return w.path }

// Position returns which entries the file has.
func (w *Writer) Position() track.Position { return w.position.Clone() }

// Write appends entries.
func (w *Writer) Write(ctx context.Context, entries []track.Entry) error {
	if err := w.isThere(); err != nil {
		return err
	}
	var buffer []byte
	done := 0
	for i, e := range entries {
		buffer = appendRecord(buffer, entryEvent(e))
		if len(buffer) < chunk && i < len(entries)-1 {
			continue
		}
		if err := w.append(buffer); err != nil {
			return err
		}
		for _, e := range entries[done : i+1] {
			w.position.Add(e.Step, e.Names())
		}
		buffer, done = buffer[:0], i+1
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// isThere returns an error if the file was removed or replaced, so that what is written
// would be lost.
func (w *Writer) isThere() error {
	now, err := os.Stat(w.path)
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	opened, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	if !os.SameFile(now, opened) {
		return fmt.Errorf("write events: %s was replaced: start again", w.path)
	}
	return nil
}

// append writes whole records to the end of the file.
func (w *Writer) append(records []byte) error {
	n, err := w.file.WriteAt(records, w.size)
	if err != nil {
		if n > 0 { // the next Open would do this too
			err = errors.Join(err, w.file.Truncate(w.size))
		}
		return fmt.Errorf("write events: %w", err)
	}
	w.size += int64(n)
	return nil
}

// Close closes the file. What was written stays.
func (w *Writer) Close() error { return w.file.Close() }
