// Package grading opens the tasks of a source for a grader, and computes the rewards of
// the graders that run in this process. These are the graders of package tasks, and sql,
// which queries databases (package sqlmatch).
//
// It doesn't run graders that are commands, and asks no agent for its reward.
//
// Guarantees: tasks that Open returns can be graded, as long as their databases don't
// change. Nothing that an agent returns causes an error; it only lowers the reward.
package grading

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

// Graders compute rewards. The zero value is ready for use, by several goroutines at
// once.
type Graders struct {
	databases sqlmatch.Databases
	programs  tasks.Programs
	queries   sqlmatch.Finder
}

// Grade returns the reward of an agent's result. It works like tasks.Grade, and knows the
// grader "sql", too: its reward is 1 if the result is a query that returns the same as
// the task's answer, else 0. Its verdict says why, as a sentence without the answer's
// values; that of other graders is empty, because it follows from the result and the answer.
// An error that wraps sqlmatch.ErrDatabase is about this machine. An error of ctx says
// nothing about the machine, the grader or the task. Other errors are faults of the grader
// or the task.
func (g *Graders) Grade(ctx context.Context, grader spec.Grader, t tasks.Task, result string) (reward float64, verdict string, err error) {
	if grader.Type != spec.GraderSQL {
		reward, err = tasks.Grade(grader, t, result)
		return reward, "", err
	}
	c, err := comparison(grader, t)
	if err != nil {
		return 0, "", err
	}
	c.Query = result
	out, err := g.databases.Match(ctx, c)
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("grade task %s: %w", t.ID, err)
	case out.Right:
		reward = 1
	}
	return reward, out.Text, nil
}

// GradeByProgram returns the reward that the program of tasks.command computes. Its
// errors are those of tasks.Programs.
func (g *Graders) GradeByProgram(ctx context.Context, of spec.Tasks, grader spec.Grader, t tasks.Task, result string) (float64, error) {
	return g.programs.Grade(ctx, of, grader.Seconds, t, result)
}

// Open reads the tasks of a source and checks that the grader can grade them: that
// answers have the form that it needs, and that gold queries run on their databases. Each
// line of the error names the source and a task. For a source "command:<split>" the
// command in of lists the tasks.
func (g *Graders) Open(ctx context.Context, of spec.Tasks, grader spec.Grader, source string) ([]tasks.Task, error) {
	list, _, err := g.OpenChecked(ctx, of, grader, source)
	if err != nil {
		return nil, WayOn(err, source, len(list))
	}
	return list, nil
}

// WayOn adds to an error of OpenChecked how to go on with the tasks that can be graded, if
// there are any.
func WayOn(err error, source string, graded int) error {
	if graded == 0 {
		return err
	}
	named := source
	if s, parse := spec.ParseSource(source); parse == nil && s.Family == spec.Command {
		named = "SPEC"
	}
	return fmt.Errorf("%w\n`%s` writes the other %d tasks; with --json instead, it lists all faults", err, shell.Command("tasks", named, "--write", "DIR"), graded)
}

// OpenChecked works like Open, but returns the tasks that can be graded although others
// can't, and the ids of those whose gold query returns no rows. For such a task, any query
// that returns no rows is right. If tasks can't be graded, the error is a *FaultsError.
// With any other error the list is empty.
func (g *Graders) OpenChecked(ctx context.Context, of spec.Tasks, grader spec.Grader, source string) (list []tasks.Task, empty []string, err error) {
	list, inFile := tasks.OpenSplit(ctx, of, source)
	var file *tasks.FileError
	if inFile != nil && !errors.As(inFile, &file) {
		return nil, nil, inFile
	}
	faults := &FaultsError{File: file}
	if file != nil {
		faults.parts = append(faults.parts, inFile)
	}
	add := func(err error) {
		if err != nil {
			err = tasks.OfSource(source, err)
			faults.parts = append(faults.parts, err)
		}
		var some *tasks.ListError
		if errors.As(err, &some) {
			faults.Tasks = append(faults.Tasks, some)
		}
	}
	list, err = without(list, tasks.CheckAnswers(grader, list))
	add(err)
	if grader.Type == spec.GraderSQL {
		empty, err = g.checkQueries(ctx, grader, list)
		list, err = without(list, err)
		add(err)
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case len(faults.parts) == 0:
		return list, empty, nil
	}
	return list, empty, faults
}

// FaultsError is the error of a source of which some tasks can't be graded.
type FaultsError struct {
	File  *tasks.FileError   // nil if all rows are tasks
	Tasks []*tasks.ListError // without those of File

	parts []error
}

// Error has the faults, one on a line.
func (e *FaultsError) Error() string { return errors.Join(e.parts...).Error() }

// Unwrap returns the causes.
func (e *FaultsError) Unwrap() []error { return e.parts }

// without returns a list without the tasks that a *tasks.ListError names. With any other
// error, no task is left.
func without(list []tasks.Task, err error) ([]tasks.Task, error) {
	var faults *tasks.ListError
	switch {
	case err == nil:
		return list, nil
	case !errors.As(err, &faults):
		return nil, err
	}
	faulty := map[string]bool{}
	for _, f := range faults.List {
		faulty[f.Place] = true
		for _, id := range f.Also {
			faulty[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(t tasks.Task) bool { return faulty[t.ID] }), err
}

// Close closes the databases and ends the programs.
func (g *Graders) Close() error { return errors.Join(g.databases.Close(), g.programs.Close()) }

func comparison(grader spec.Grader, t tasks.Task) (sqlmatch.Comparison, error) {
	path, err := t.Database()
	if err != nil {
		return sqlmatch.Comparison{}, err
	}
	metric, err := t.Metric(grader)
	return sqlmatch.Comparison{
		Metric: sqlmatch.Metric(metric), Database: path, Gold: t.Answer, KeepDistinct: grader.KeepDistinct,
		Most: time.Duration(grader.Seconds * float64(time.Second)),
	}, err
}

// checkQueries runs the gold queries, and returns the ids of the tasks whose query
// returns no rows.
func (g *Graders) checkQueries(ctx context.Context, grader spec.Grader, list []tasks.Task) (empty []string, err error) {
	faults, without := make([]error, len(list)), make([]bool, len(list))
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range list {
		all.Go(func() error {
			c, err := comparison(grader, t)
			if err == nil {
				without[i], err = g.databases.CheckGold(ctx, c)
			}
			faults[i] = err
			return ctx.Err()
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	named := &tasks.ListError{}
	for i, t := range list {
		if faults[i] != nil {
			named.Add(t.ID, faults[i])
		}
		if without[i] {
			empty = append(empty, t.ID)
		}
	}
	return empty, named.OrNil()
}

// GradesTexts reports whether a grader compares a text with a task's answer, and nothing
// else: then it can also grade what an agent said on its way. The others run programs,
// look at files, or ask the agent.
func GradesTexts(grader spec.Grader) bool {
	switch grader.Type {
	case spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA, spec.GraderSQL:
		return true
	}
	return false
}

// KnowsProse reports whether GradeWithoutProse has a rule for a grader.
func KnowsProse(grader spec.Grader) bool {
	switch grader.Type {
	case spec.GraderExact, spec.GraderNumeric, spec.GraderSQL:
		return true
	}
	return false
}

// GradeWithoutProse returns the reward that Grade would, for a text in which other words surround the answer.
//
//   - sql: the query that sqlmatch.Finder finds.
//   - numeric: the last number, whatever grader.extract says.
//   - exact: the content of the first code fence, without a word that follows the opening
//     fence on its line; without a fence, the last line that is not blank.
//
// For other graders it returns what Grade does.
func (g *Graders) GradeWithoutProse(ctx context.Context, grader spec.Grader, t tasks.Task, text string) (float64, error) {
	switch grader.Type {
	case spec.GraderSQL:
		if query, ok := g.queries.Find(text); ok {
			text = query
		}
	case spec.GraderNumeric:
		grader.Extract = spec.ExtractLastNumber
	case spec.GraderExact:
		grader.Extract, text = "", lastSaid(text)
	}
	reward, _, err := g.Grade(ctx, grader, t, text)
	return reward, err
}

// lastSaid returns the part of a text that GradeWithoutProse grades for exact.
func lastSaid(text string) string {
	const fence = "```"
	if _, code, fenced := strings.Cut(text, fence); fenced {
		code, _, _ = strings.Cut(code, fence)
		if language, rest, lines := strings.Cut(code, "\n"); lines && !strings.ContainsAny(strings.TrimSpace(language), " \t") {
			return rest
		}
		return code
	}
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
