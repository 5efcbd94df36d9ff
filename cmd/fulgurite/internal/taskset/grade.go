package taskset

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// Grade is `fulgurite grade`.
type Grade struct {
	Source       string  `arg:"" help:"Source of the tasks, as a spec names it, such as spider:DIR/dev.json. Or a spec, YAML or JSON: its tasks, and its grader, which may be a program."`
	Split        string  `help:"With a spec: the split whose tasks have the results, train, gate, test or validation (default: all)." enum:",train,gate,test,validation" default:""`
	Results      string  `arg:"" help:"JSONL file of results, {\"id\": …, \"result\": …} on each line; - is standard input."`
	Grader       string  `help:"exact, numeric, contains, qa or sql (default: the one of a data set)." placeholder:"TYPE"`
	Metric       string  `help:"What qa measures: f1 or exact. By whose rules sql compares: spider or bird (default: those of the data set)." enum:",f1,exact,spider,bird" default:""`
	Tolerance    float64 `help:"Largest difference that numeric accepts."`
	Extract      string  `help:"Where the answer is in a result: last_number, boxed, 'after TEXT' or 'regex PATTERN' (default: as grader.extract)." placeholder:"HOW"`
	KeepDistinct bool    `help:"Have sql compare queries with DISTINCT, which Spider's evaluation removes (BIRD's never does)."`
	Seconds      float64 `help:"Most time that sql gives a query." default:"0" placeholder:"10"`
}

// Run prints {"id": …, "reward": …} for each result, in their order. Nothing is
// printed if any line can't be graded.
func (c *Grade) Run(ctx context.Context, t *terminal.Terminal) error {
	s, list, err := c.tasks(ctx)
	if err != nil {
		return terminal.Usage(err)
	}
	var graders grading.Graders
	defer graders.Close()
	results, err := c.read(list)
	if err != nil {
		return terminal.Usage(err)
	}
	rewards := make([]float64, len(results))
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for i, r := range results {
		if ctx.Err() != nil {
			break
		}
		all.Go(func() (err error) {
			if rewards[i], err = grade(ctx, &graders, s, r); err != nil {
				return fmt.Errorf("%s: %w", c.Source, err)
			}
			return nil
		})
	}
	if err := errors.Join(all.Wait(), ctx.Err()); err != nil {
		return err
	}
	out := bufio.NewWriter(t.Out)
	for i, r := range results {
		line, err := json.Marshal(struct {
			ID     json.RawMessage `json:"id"`
			Reward float64         `json:"reward"`
		}{r.ID, rewards[i]})
		if err != nil {
			return err
		}
		_, _ = out.Write(append(line, '\n')) // Flush reports it
	}
	return out.Flush()
}

// grade grades one result by the grader of a spec.
func grade(ctx context.Context, graders *grading.Graders, s spec.Spec, r tasks.Result) (float64, error) {
	switch s.Grader.Type {
	case spec.GraderCommand:
		grade, err := tasks.GradeCommand(ctx, s.Grader, tasks.GraderInput{Task: r.Task, Result: r.Text})
		return grade.Reward, err
	case spec.GraderTasks:
		return graders.GradeByProgram(ctx, s.Tasks, s.Grader, r.Task, r.Text)
	}
	reward, _, err := graders.Grade(ctx, s.Grader, r.Task, r.Text)
	return reward, err
}

// tasks returns the tasks of the source, and a spec with the grader that the flags
// describe; or, if the source is a spec, that spec and its tasks.
func (c *Grade) tasks(ctx context.Context) (s spec.Spec, list []tasks.Task, err error) {
	sources := []string{c.Source}
	if looksLikeSpec(c.Source) {
		if s, sources, err = c.spec(); err != nil {
			return s, nil, err
		}
	} else {
		if c.Split != "" {
			return s, nil, errors.New("--split is only for a spec")
		}
		if s.Grader, err = c.grader(); err != nil {
			return s, nil, err
		}
	}
	from := map[string]string{}
	for _, source := range sources {
		some, err := tasks.OpenSplit(ctx, s.Tasks, source)
		if err == nil {
			err = tasks.CheckAnswers(s.Grader, some)
			if err != nil {
				err = tasks.OfSource(source, err)
			}
		}
		if err != nil {
			return s, nil, err
		}
		for _, t := range some {
			if earlier, twice := from[t.ID]; twice {
				return s, nil, fmt.Errorf("%s: id %q is there, and in %s: give --split", source, t.ID, earlier)
			}
			from[t.ID] = source
		}
		list = append(list, some...)
	}
	return s, list, nil
}

// spec returns the spec that is the source, and the sources of the tasks that have
// results.
func (c *Grade) spec() (spec.Spec, []string, error) {
	if *c != (Grade{Source: c.Source, Results: c.Results, Split: c.Split}) {
		return spec.Spec{}, nil, fmt.Errorf("%s says how results are graded: leave out all flags but --split", c.Source)
	}
	s, err := loadTasks(c.Source)
	if err != nil {
		return s, nil, err
	}
	if s.Grader.Type == spec.GraderAgent || s.Grader.Type == spec.GraderHarbor {
		return s, nil, fmt.Errorf("%s: grader.type %q grades attempts, not results on their own", c.Source, s.Grader.Type)
	}
	var sources []string
	for _, split := range []struct {
		name    string
		sources []string
	}{{"train", s.TrainSources()}, {"gate", []string{s.Tasks.Gate}}, {"test", []string{s.Tasks.Test}}, {"validation", []string{s.Tasks.Validation}}} {
		if c.Split == "" || c.Split == split.name {
			sources = append(sources, slices.DeleteFunc(split.sources, func(source string) bool { return source == "" })...)
		}
	}
	if len(sources) == 0 {
		return s, nil, fmt.Errorf("%s: tasks.%s is missing", c.Source, c.Split)
	}
	return s, sources, nil
}

// checkType refuses graders that can't grade a result on their own.
func checkType(name string) error {
	known := []string{spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA, spec.GraderSQL}
	if name == spec.GraderCommand || name == spec.GraderTasks {
		return fmt.Errorf("--grader %q: give the spec instead of a source: it names the program", name)
	}
	if !slices.Contains(known, name) {
		return fmt.Errorf("--grader %q: give one of %s", name, strings.Join(known, ", "))
	}
	return nil
}

// grader returns the grader that the flags describe.
func (c *Grade) grader() (spec.Grader, error) {
	g := spec.Grader{Type: c.Grader, Metric: c.Metric, Extract: c.Extract, Tolerance: c.Tolerance, KeepDistinct: c.KeepDistinct, Seconds: c.Seconds}
	if g.Type == "" {
		g.Type = usualGrader(c.Source)
	}
	if _, err := textfile.Read(c.Source); g.Type == "" && errors.Is(err, textfile.ErrText) { // a spec, perhaps
		return g, err
	}
	if g.Type == "" {
		return g, errors.New("--grader is missing: the source is no data set, so give exact, numeric, contains, qa or sql")
	}
	if err := checkType(g.Type); err != nil {
		return g, err
	}
	var fault string
	switch {
	case (g.Metric == spec.MetricF1 || g.Metric == spec.MetricExact) && g.Type != spec.GraderQA:
		fault = "--metric " + g.Metric + " is only for qa"
	case (g.Metric == spec.MetricSpider || g.Metric == spec.MetricBIRD) && g.Type != spec.GraderSQL:
		fault = "--metric " + g.Metric + " is only for sql"
	case g.Extract != "" && !slices.Contains([]string{spec.GraderNumeric, spec.GraderExact, spec.GraderQA}, g.Type):
		fault = "--extract is only for numeric, exact and qa"
	case g.Tolerance != 0 && g.Type != spec.GraderNumeric:
		fault = "--tolerance is only for numeric"
	case g.Tolerance < 0:
		fault = "--tolerance can't be negative"
	case g.KeepDistinct && g.Type != spec.GraderSQL:
		fault = "--keep-distinct is only for sql"
	case g.KeepDistinct && g.Metric == spec.MetricBIRD:
		fault = "--keep-distinct is without effect: BIRD's metric always keeps it"
	case g.Seconds != 0 && g.Type != spec.GraderSQL:
		fault = "--seconds is only for sql"
	case g.Seconds < 0 || g.Seconds > 24*3600:
		fault = "--seconds must be more than 0 and at most a day"
	}
	if fault == "" {
		fault = extractFault(g)
	}
	if fault != "" {
		return g, errors.New(fault)
	}
	return g, nil
}

// extractFault says what is wrong with --extract.
func extractFault(g spec.Grader) string {
	e, err := spec.ParseExtract(g.Extract)
	switch {
	case err != nil:
		return "--extract: " + err.Error() + "; give last_number, boxed, 'after TEXT' or 'regex PATTERN'"
	case e.Kind == spec.ExtractLastNumber && g.Type != spec.GraderNumeric:
		return "--extract last_number is only for numeric"
	}
	return ""
}

// read reads the results and finds their tasks.
func (c *Grade) read(list []tasks.Task) ([]tasks.Result, error) {
	if c.Results == "-" {
		return tasks.ReadResults(os.Stdin, "standard input", list)
	}
	f, err := os.Open(c.Results)
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	defer f.Close()
	if stat, err := f.Stat(); err == nil && stat.IsDir() {
		return nil, fmt.Errorf("open results: %s is a directory: name a file in it", c.Results)
	}
	return tasks.ReadResults(f, c.Results, list)
}
