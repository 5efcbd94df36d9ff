// Package taskset holds the commands that look at tasks without a run: showing and
// checking them, and grading results.
package taskset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// Show is `fulgurite tasks`.
type Show struct {
	Source    []string `arg:"" help:"Sources of tasks, as a spec names them: a JSONL file, spider:FILE, gsm8k:FILE, musique:FILE, hotpotqa:FILE, 2wikimultihopqa:FILE, harbor:DIRECTORY or arithmetic:SPLIT. Or one spec, YAML or JSON: all of its splits, those that its tasks.command lists too."`
	Grader    string   `help:"Check the tasks for this grader: exact, numeric, contains, qa or sql (default: the one of a data set, or of the spec)." placeholder:"TYPE"`
	Container string   `help:"For harbor:DIRECTORY: the program that will run their containers, docker or podman." enum:",docker,podman" default:""`
	Reward    string   `help:"For harbor:DIRECTORY: the reward that counts if tests write a reward.json with several." placeholder:"NAME"`
	Show      int      `help:"How many tasks of each source to show." default:"3"`
	Write     string   `help:"Directory for train.jsonl, gate.jsonl and test.jsonl: the splits of the spec, or two or three sources, each without the tasks that leak into a later one; or the parts of one source (--split)." placeholder:"DIR" type:"path"`
	Split     []int    `help:"Split the one source into two or three parts by shares such as 8,1,1, so that no part leaks into another." placeholder:"SHARES"`
	Seed      uint64   `help:"Seed by which --split puts tasks into parts." default:"1"`
	JSON      bool     `help:"Print JSON, with all tasks." name:"json"`
}

// contents describes a source.
type contents struct {
	Split     string `json:"split,omitempty"` // of the spec that names the source
	Source    string `json:"source"`
	Count     int    `json:"count"`
	Grader    string `json:"grader,omitempty"`
	Databases int    `json:"databases,omitempty"`
	// EmptyGold are the ids of tasks whose gold query returns no rows.
	EmptyGold []string `json:"empty_gold,omitempty"`
	// Wordless are the ids of tasks for the grader qa with an answer that consists of
	// articles and punctuation.
	Wordless []string `json:"wordless,omitempty"`
	// Repeats are the tasks that ask what an earlier one of the source asks.
	Repeats *tasks.Duplicates `json:"repeats,omitempty"`
	// Faults are the rows and tasks that can't be graded. They are not in Tasks.
	Faults []fault `json:"faults,omitempty"`
	// Tasks have their answers, which no agent sees.
	Tasks []tasks.Task `json:"tasks"`

	faulty error // has Faults; nil without
}

// fault is a row or a task that can't be graded.
type fault struct {
	At    string `json:"at"` // such as "line 3", "row 3" or "task a1"
	Cause string `json:"cause"`
}

// shared describes the common tasks of two sources.
type shared struct {
	Sources [2]string `json:"sources"`
	tasks.Overlap
}

// report is the output of the command.
type report struct {
	Sources  []contents `json:"sources"`
	Overlaps []shared   `json:"overlaps"` // only pairs of sources that share a question
}

// Outputs returns what the command prints as JSON.
func (*Show) Outputs() []any { return []any{report{}} }

// Run shows the tasks of sources, or of a spec. Sources that share questions are an error.
func (c *Show) Run(ctx context.Context, t *terminal.Terminal) error {
	if c.Show < 0 {
		return terminal.Usagef("--show %d: give 0 or more", c.Show)
	}
	ofSpec, err := c.isSpec()
	if err != nil {
		return terminal.Usage(err)
	}
	isHarbor := func(source string) bool { return strings.HasPrefix(source, spec.Harbor+":") }
	if (c.Container != "" || c.Reward != "") && !slices.ContainsFunc(c.Source, isHarbor) {
		return terminal.Usagef("--container and --reward are for tasks in Harbor's format, as in %s:DIRECTORY, and no source is one", spec.Harbor)
	}
	if len(c.Split) > 0 && (c.Write == "" || len(c.Source) > 1 || ofSpec) {
		return terminal.Usagef("--split parts one source, into the directory of --write")
	}
	if c.JSON && c.Write != "" {
		return terminal.Usagef("--json prints the tasks that --write writes into files: give one of both")
	}
	out := report{Overlaps: []shared{}}
	if ofSpec {
		out.Sources, err = readSpec(ctx, c.Source[0])
	} else {
		out.Sources, err = c.readAll(ctx)
	}
	faulty := faultsOf(out.Sources)
	if err != nil || faulty != nil && !c.JSON && c.Write == "" {
		return terminal.Usage(errors.Join(faulty, err))
	}
	if c.Write != "" {
		return c.write(t, out.Sources)
	}
	var leaks error
	for i, b := range out.Sources {
		for _, a := range out.Sources[:i] {
			if a.Split == b.Split && a.Split != "" {
				continue // stages of one split
			}
			o := tasks.Overlaps(a.Tasks, b.Tasks)
			if o.Leaks() || len(o.Databases) > 0 {
				out.Overlaps = append(out.Overlaps, shared{[2]string{a.Source, b.Source}, o})
			}
			if o.Leaks() && leaks == nil {
				leaks = c.leak(a.Source, b.Source)
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
	if faulty != nil {
		return terminal.Usage(faulty)
	}
	return leaks
}

// faultsOf returns the faults of all sources as one error, or nil.
func faultsOf(sources []contents) error {
	var faults []error
	for _, one := range sources {
		if one.faulty != nil {
			faults = append(faults, grading.WayOn(one.faulty, one.Source, one.Count))
		}
	}
	return errors.Join(faults...)
}

// leak returns an error that says how to separate sources that share questions.
func (c *Show) leak(a, b string) error {
	sources := c.Source
	if len(sources) > 3 {
		sources = []string{a, b}
	}
	return fmt.Errorf("questions leak from one source into another: `%s` writes files without those tasks", shell.Command(slices.Concat([]string{"tasks"}, sources, []string{"--write", "DIR"})...))
}

// readAll reads and checks the tasks of all sources.
func (c *Show) readAll(ctx context.Context) ([]contents, error) {
	var out []contents
	var faults []error
	for _, source := range c.Source {
		one, err := c.read(ctx, source)
		if err != nil {
			faults = append(faults, err)
		}
		out = append(out, one)
	}
	return out, errors.Join(faults...)
}

// read reads and checks the tasks of a source.
func (c *Show) read(ctx context.Context, source string) (contents, error) {
	grader := spec.Grader{Type: c.Grader}
	if grader.Type == "" {
		grader.Type = usualGrader(source)
	}
	if err := checkType(grader.Type); grader.Type != "" && grader.Type != usualGrader(source) && err != nil {
		return contents{}, err
	}
	if s, err := spec.ParseSource(source); err == nil && s.Family == spec.Command {
		return contents{}, fmt.Errorf("%s: only a spec says which program lists them: give the spec, with tasks.command", source)
	}
	return read(ctx, spec.Tasks{Harbor: &spec.Harbored{Container: c.Container, Reward: c.Reward}}, grader, source)
}

// read reads and checks the tasks of a source.
func read(ctx context.Context, of spec.Tasks, grader spec.Grader, source string) (contents, error) {
	one := contents{Source: source, Grader: grader.Type}
	var graders grading.Graders
	defer graders.Close()
	var err error
	if one.Tasks, one.EmptyGold, err = graders.OpenChecked(ctx, of, grader, source); err != nil {
		if one.Faults = faultsIn(err); one.Faults == nil {
			return one, err
		}
		one.faulty = err
	}
	one.Count = len(one.Tasks)
	if grader.Type == spec.GraderQA {
		one.Wordless = tasks.Wordless(one.Tasks)
	}
	if repeats := tasks.Repeats(one.Tasks); repeats.Any() {
		one.Repeats = &repeats
	}
	databases := map[any]bool{}
	for _, t := range one.Tasks {
		if path, ok := t.Metadata[tasks.MetadataDatabase]; ok {
			databases[path] = true
		}
	}
	one.Databases = len(databases)
	return one, nil
}

// faultsIn returns the rows and tasks that an error of grading.OpenChecked names.
func faultsIn(err error) []fault {
	var named *grading.FaultsError
	if !errors.As(err, &named) {
		return nil
	}
	var out []fault
	add := func(noun string, faults tasks.Faults) {
		for _, f := range faults.List {
			for _, place := range append([]string{f.Place}, f.Also...) {
				out = append(out, fault{At: noun + " " + place, Cause: f.Cause.Error()})
			}
		}
	}
	if named.File != nil {
		add(named.File.Noun(), named.File.Faults)
	}
	for _, list := range named.Tasks {
		add("task", list.Faults)
	}
	return out
}

// usualGrader returns the usual grader of a data set, or "" if it has none.
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
		if one.Split != "" {
			t.Printf("%s: ", one.Split)
		}
		t.Printf("%s: %s", one.Source, readable.Count(one.Count, "task"))
		if one.Databases > 0 {
			t.Printf(" about %s", readable.Count(one.Databases, "database"))
		}
		switch one.Grader {
		case "":
		case spec.GraderTasks, spec.GraderCommand, spec.GraderAgent:
			t.Printf(", for grader %q, which needs no answer", one.Grader)
		default:
			t.Printf(", all fit for grader %q", one.Grader)
		}
		t.Printf("\n")
		if n := len(one.EmptyGold); n > 0 {
			t.Printf("  warning: gold queries of %s return no rows, so a query that returns none is right: %s\n", readable.Count(n, "task"), firstOf(one.EmptyGold))
		}
		if one.Repeats != nil {
			t.Printf("  warning: %s\n", terminal.Escape(one.Repeats.String()))
		}
		if n := len(one.Wordless); n > 0 {
			t.Printf("  warning: answers of %s have no words beside articles and punctuation, so only that very text is right: %s\n", readable.Count(n, "task"), firstOf(one.Wordless))
		}
		if text := tasks.Silent(one.Tasks); text != "" {
			t.Printf("  warning: %s\n", terminal.Escape(text))
		}
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

// shownIDs is how many ids a line lists.
const shownIDs = 20

// firstOf lists the first ids.
func firstOf(ids []string) string {
	if more := len(ids) - shownIDs; more > 0 {
		return fmt.Sprintf("%s and %d more (--json has all)", strings.Join(ids[:shownIDs], ", "), more)
	}
	return strings.Join(ids, ", ")
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

// isSpec reports whether the argument is a spec. It is an error to give a spec together
// with other sources, or with flags whose settings the spec contains.
func (c *Show) isSpec() (bool, error) {
	at := slices.IndexFunc(c.Source, looksLikeSpec)
	switch {
	case at < 0:
		return false, nil
	case len(c.Source) > 1:
		return false, fmt.Errorf("%s is a spec: give it alone, or sources", c.Source[at])
	case c.Grader != "":
		return false, fmt.Errorf("--grader is for sources: %s says which grader grades", c.Source[at])
	case c.Reward != "":
		return false, fmt.Errorf("--reward is for sources: give tasks.harbor.reward in %s", c.Source[at])
	case c.Container != "":
		return false, fmt.Errorf("--container is for sources: give tasks.harbor.container in %s", c.Source[at])
	}
	return true, nil
}

// looksLikeSpec reports whether a source is the path of a spec: YAML, or one JSON object
// with tasks.
func looksLikeSpec(source string) bool {
	switch filepath.Ext(source) {
	case ".yaml", ".yml":
		return true
	case ".json":
	default:
		return false
	}
	data, err := textfile.Read(source)
	var fields struct {
		Tasks map[string]any `json:"tasks"`
	}
	return err == nil && json.Unmarshal(data, &fields) == nil && fields.Tasks != nil
}

// readSpec reads and checks the tasks of all splits of a spec, those of each source of the
// train split by themselves.
func readSpec(ctx context.Context, path string) ([]contents, error) {
	s, err := loadTasks(path)
	if err != nil {
		return nil, err
	}
	var out []contents
	var faults []error
	add := func(split, source string) []tasks.Task {
		if source == "" {
			return nil
		}
		one, err := read(ctx, s.Tasks, s.Grader, source)
		if err != nil {
			faults = append(faults, fmt.Errorf("tasks.%s: %w", split, err))
		}
		one.Split = split
		if one.faulty != nil {
			one.faulty = fmt.Errorf("tasks.%s: %w", split, one.faulty)
		}
		out = append(out, one)
		return one.Tasks
	}
	var train [][]tasks.Task
	for _, source := range s.TrainSources() {
		train = append(train, add(string(record.Train), source))
	}
	if len(train) > 0 && len(faults) == 0 {
		list, parts, err := grading.Join(s.TrainSources(), train)
		if err == nil {
			_, err = curriculum.NewPool(s, list, parts)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("tasks.train: %w", err))
		}
	}
	add(string(record.Gate), s.Tasks.Gate)
	add(string(record.Test), s.Tasks.Test)
	add(string(record.Validation), s.Tasks.Validation)
	return out, errors.Join(faults...)
}

// loadTasks reads a spec of which only tasks, grader and curriculum have to be right.
func loadTasks(path string) (spec.Spec, error) {
	s, err := spec.Load(path)
	if err != nil {
		return s, err
	}
	s, err = s.Complete()
	if len(s.TrainSources()) == 0 && s.Tasks.Gate == "" && s.Tasks.Test == "" && s.Tasks.Validation == "" {
		return s, fmt.Errorf("%s: it names no tasks: give tasks.train, tasks.gate or tasks.test", path)
	}
	var faults *spec.Faults
	if err != nil && !errors.As(err, &faults) {
		return s, err
	}
	if faults == nil {
		return s, nil
	}
	var ours []error
	for _, f := range faults.List {
		split := strings.TrimPrefix(f.Key, "tasks.")
		source, known := s.Tasks.Split(split)
		missing := known && split != f.Key && source == "" // it may be a spec that evaluates
		if !missing && (strings.HasPrefix(f.Key, "tasks") || strings.HasPrefix(f.Key, "grader") || strings.HasPrefix(f.Key, "training.curriculum")) {
			ours = append(ours, fmt.Errorf("%s: %s", path, f))
		}
	}
	return s, errors.Join(ours...)
}
