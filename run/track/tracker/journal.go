package tracker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fulgurite/fulgurite/run/track"
)

// journal is the file that keeps which entries were logged to a tracker, and in which
// order. An entry is noted before it is logged. The process of the tracker notes how many
// it has.
type journal struct {
	path      string
	file      *os.File
	entries   []noted // numbered from 0
	committed int     // how many of the entries the tracker had when this was opened
}

// noted is an entry in the journal: what a track.Position needs of it.
type noted struct {
	Step int    `json:"step"`
	Name string `json:"name"`
}

// line is a line of the file: it has one of the two.
type line struct {
	Entry     *noted `json:"entry,omitempty"`
	Committed int    `json:"committed,omitempty"`
}

// openJournal opens and locks a journal, and makes it if there is none. A line that was
// not written to its end is cut off. The error wraps ErrBusy if another process has it.
func openJournal(path string) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make a folder for journals: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	j := &journal{path: path, file: file}
	if err := j.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("read journal %s: %w", path, err), file.Close())
	}
	return j, nil
}

func (j *journal) read() error {
	size := int64(0)
	for lines := bufio.NewReader(j.file); ; {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return j.file.Truncate(size)
		}
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line at byte %d: %w", size, err)
		}
		j.take(l)
		size += int64(len(text))
	}
}

func (j *journal) take(l line) {
	if l.Entry != nil {
		j.entries = append(j.entries, *l.Entry)
	} else {
		j.committed = l.Committed
	}
}

// add appends entries.
func (j *journal) add(entries []noted) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	for i := range entries {
		if err := e.Encode(line{Entry: &entries[i]}); err != nil {
			return fmt.Errorf("write journal %s: %w", j.path, err)
		}
	}
	if _, err := j.file.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	j.entries = append(j.entries, entries...)
	return nil
}

// position returns which entries a tracker has that has the first ones of the journal.
func (j *journal) position(count int) (has track.Position) {
	for _, e := range j.entries[:count] {
		has.Add(e.Step, []string{e.Name})
	}
	return has
}
