package taskset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/tasks"
)

// write writes splits that share no question. A file that is there is never replaced.
func (c *Show) write(t *terminal.Terminal, sources []contents) error {
	var parts []part
	var err error
	switch {
	case len(c.Split) > 0:
		parts, err = c.parted(sources[0])
	case sources[0].Split != "":
		parts, err = ofSpec(sources)
	default:
		parts, err = ofSources(sources)
	}
	if err != nil {
		return terminal.Usage(err)
	}
	for _, p := range parts {
		if len(p.tasks) == 0 && p.left == 0 {
			return terminal.Usagef("%s: none of its tasks can be graded", p.source)
		}
		if len(p.tasks) == 0 {
			return terminal.Usagef("%s: all of its tasks leak into a later source", p.source)
		}
	}
	if err := os.MkdirAll(c.Write, 0o755); err != nil {
		return err
	}
	for _, p := range parts {
		path := filepath.Join(c.Write, p.name+".jsonl")
		text, err := tasks.Encode(p.tasks)
		if err != nil {
			return err
		}
		if err := create(path, text); err != nil {
			return err
		}
		t.Printf("%s: %s", path, readable.Count(len(p.tasks), "task"))
		if p.left > 0 {
			t.Printf(", without %s that would leak into a later split", readable.Count(p.left, "task"))
		}
		t.Printf("\n")
	}
	for _, one := range sources {
		if one.faulty != nil {
			t.Printf("%s: left out %s that can't be graded:\n", one.Source, readable.Count(len(one.Faults), "task"))
			for line := range strings.Lines(one.faulty.Error()) {
				t.Printf("  %s\n", terminal.Escape(strings.TrimSpace(line)))
			}
		}
	}
	return nil
}

// part is a file to be written.
type part struct {
	name, source string
	tasks        []tasks.Task
	left         int // tasks that are left out
}

// named sets the names of one, two or three parts and returns them.
func named(parts []part) ([]part, error) {
	names := map[int][]string{1: {"tasks"}, 2: {"train", "test"}, 3: {"train", "gate", "test"}}[len(parts)]
	if names == nil {
		return nil, errors.New("--write makes one to three files: give as many sources, or --split")
	}
	for i := range parts {
		parts[i].name = names[i]
	}
	return parts, nil
}

// parted splits one source into parts.
func (c *Show) parted(source contents) ([]part, error) {
	lists, err := tasks.Split(source.Tasks, c.Split, c.Seed)
	if err != nil {
		return nil, fmt.Errorf("--split: %w", err)
	}
	var parts []part
	for _, list := range lists {
		parts = append(parts, part{source: source.Source, tasks: list})
	}
	return named(parts)
}

// ofSources makes one part of each source, without the tasks that leak into a later
// source.
func ofSources(sources []contents) ([]part, error) {
	var lists [][]tasks.Task
	for _, one := range sources {
		lists = append(lists, one.Tasks)
	}
	kept, left := tasks.Disjoint(lists)
	var parts []part
	for i, one := range sources {
		parts = append(parts, part{source: one.Source, tasks: kept[i], left: left[i]})
	}
	return named(parts)
}

// ofSpec makes parts of the splits of a spec, each without the tasks that leak into a
// later split. Stages of the train split may share tasks, and each gets its own file.
func ofSpec(sources []contents) ([]part, error) {
	at := slices.IndexFunc(sources, func(one contents) bool { return one.Split != sources[0].Split })
	if at < 0 {
		at = len(sources)
	}
	var rest [][]tasks.Task
	for _, one := range sources[at:] {
		rest = append(rest, one.Tasks)
	}
	rest, left := tasks.Disjoint(rest)
	var parts []part
	for i, one := range sources[:at] {
		kept, out := tasks.Disjoint(append([][]tasks.Task{one.Tasks}, rest...))
		name := one.Split
		if at > 1 {
			name = fmt.Sprintf("%s-%d", one.Split, i+1)
		}
		parts = append(parts, part{name, one.Source, kept[0], out[0]})
	}
	for i, one := range sources[at:] {
		parts = append(parts, part{one.Split, one.Source, rest[i], left[i]})
	}
	return parts, nil
}

func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write tasks: %w", err)
	}
	_, err = f.Write(text)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}
