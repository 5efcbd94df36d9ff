// Package taskset holds the commands that look at tasks without a run: showing and
// checking them, and grading results.
package taskset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// Show is `fulgurite tasks`.
type Show struct {
	Source    []string `arg:"" help:"Sources of tasks, as a spec names them: a JSONL file, spider:FILE, gsm8k:FILE, musique:FILE, hotpotqa:FILE, 2wikimultihopqa:FILE, harbor:DIRECTORY or arithmetic:SPLIT."`
	Grader    string   `help:"Check the tasks for this grader: exact, numeric, contains, qa or sql (default: the one of a data set)." placeholder:"TYPE"`
	Container string   `help:"For harbor:DIRECTORY: the program that will run their containers, docker or podman." enum:",docker,podman" default:""`
	Show      int      `help:"How many tasks of each source to show." default:"3"`
	Write     string   `help:"Directory for train.jsonl, gate.jsonl and test.jsonl: the sources, two or three, each without the tasks that leak into a later one; or the parts of one source (--split)." placeholder:"DIR" type:"path"`
	Split     []int    `help:"Part the one source into two or three by shares such as 8,1,1, so that no part leaks into another." placeholder:"SHARES"`
	Seed      uint64   `help:"Which tasks --split puts where." default:"1"`
	JSON      bool     `help:"Print JSON, with all tasks." name:"json"`
}

// contents describes a source.
type contents struct {
	Source    string `json:"source"`
	Count     int    `json:"count"`
	Grader    string `json:"grader,omitempty"`
	Databases int    `json:"databases,omitempty"`
	// Tasks have their answers, which no agent sees.
	Tasks []tasks.Task `json:"tasks"`
}

// shared describes the common tasks of two sources.
type shared struct {
	Sources [2]string `json:"sources"`
	tasks.Overlap
}

// report is the output of the command.
type report struct {
	Sources  []contents `json:"sources"`
	Overlaps []shared   `json:"overlaps"` // of those that share anything
}

// Run shows the tasks of sources. Sources that share questions are an error.
func (c *Show) Run(ctx context.Context, t *terminal.Terminal) error {
	if c.Show < 0 {
		return terminal.Usagef("--show %d: give 0 or more", c.Show)
	}
	if len(c.Split) > 0 && (c.Write == "" || len(c.Source) > 1) {
		return terminal.Usagef("--split parts one source, into the directory of --write")
	}
	out := report{Sources: []contents{}, Overlaps: []shared{}}
	var faults []error
	for _, source := range c.Source {
		one, err := c.read(ctx, source)
		if err != nil {
			faults = append(faults, err)
		}
		out.Sources = append(out.Sources, one)
	}
	if err := errors.Join(faults...); err != nil {
		return terminal.Usage(err)
	}
	if c.Write != "" {
		return c.write(t, out.Sources)
	}
	var leaks []error
	for i, b := range out.Sources {
		for _, a := range out.Sources[:i] {
			o := tasks.Overlaps(a.Tasks, b.Tasks)
			if o.Leaks() || len(o.Databases) > 0 {
				out.Overlaps = append(out.Overlaps, shared{[2]string{a.Source, b.Source}, o})
			}
			if o.Leaks() {
				leaks = append(leaks, fmt.Errorf("%s and %s share %s", a.Source, b.Source, o))
			}
		}
	}
	if c.JSON {
		if err := t.JSON(out); err != nil {
			return err
		}
	} else {
		c.print(t, out)
	}
	return errors.Join(leaks...)
}

// read reads and checks the tasks of a source.
func (c *Show) read(ctx context.Context, source string) (contents, error) {
	one := contents{Source: source, Grader: c.Grader, Tasks: []tasks.Task{}}
	if one.Grader == "" {
		one.Grader = usualGrader(source)
	}
	grader := spec.Grader{Type: one.Grader}
	if err := checkType(grader.Type); one.Grader != "" && one.Grader != usualGrader(source) && err != nil {
		return one, err
	}
	var graders grading.Graders
	defer graders.Close()
	list, err := graders.Open(ctx, spec.Tasks{Harbor: &spec.Harbored{Container: c.Container}}, grader, source)
	if err != nil {
		return one, err
	}
	one.Count, one.Tasks = len(list), list
	databases := map[any]bool{}
	for _, t := range list {
		if path, ok := t.Metadata[tasks.MetadataDatabase]; ok {
			databases[path] = true
		}
	}
	one.Databases = len(databases)
	return one, nil
}

// usualGrader is the grader of a data set, or nothing.
func usualGrader(source string) string {
	s, err := spec.ParseSource(source)
	if err != nil {
		return ""
	}
	switch s.Family {
	case spec.Spider:
		return spec.GraderSQL
	case spec.Harbor:
		return spec.GraderHarbor
	case spec.GSM8K, spec.Arithmetic:
		return spec.GraderNumeric
	case spec.MuSiQue, spec.HotpotQA, spec.TwoWiki:
		return spec.GraderQA
	}
	return ""
}

func (c *Show) print(t *terminal.Terminal, r report) {
	for _, one := range r.Sources {
		t.Printf("%s: %d tasks", one.Source, one.Count)
		if one.Databases > 0 {
			t.Printf(" about %d databases", one.Databases)
		}
		if one.Grader != "" {
			t.Printf(", all fit for grader %q", one.Grader)
		}
		t.Printf("\n")
		for _, shown := range one.Tasks[:min(c.Show, len(one.Tasks))] {
			t.Printf("  %s: %s\n", terminal.Escape(shown.ID), terminal.Escape(oneLine(shown.Input)))
			if shown.Answer != "" {
				t.Printf("    answer: %s\n", terminal.Escape(oneLine(shown.Answer)))
			}
		}
	}
	for _, o := range r.Overlaps {
		t.Printf("%s and %s share %s\n", o.Sources[0], o.Sources[1], o.Overlap)
	}
	if len(r.Sources) > 1 && len(r.Overlaps) == 0 {
		t.Printf("They share nothing.\n")
	}
}

// lineWidth is how much of a text is shown.
const lineWidth = 200

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if letters := []rune(text); len(letters) > lineWidth {
		return string(letters[:lineWidth-1]) + "…"
	}
	return text
}
