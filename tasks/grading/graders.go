package grading

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

// Graders give rewards. The zero value is ready, and may be used by several
// goroutines.
type Graders struct {
	databases sqlmatch.Databases
	programs  tasks.Programs
}

// Grade returns the reward of an agent's result. It decides as tasks.Grade does; for the
// grader "sql" the reward is 1 if the result is a query that returns the same as the
// task's answer, else 0. An error that wraps sqlmatch.ErrDatabase is about this machine,
// and an error of ctx is about neither; others are faults of the grader or the task.
func (g *Graders) Grade(ctx context.Context, grader spec.Grader, t tasks.Task, result string) (float64, error) {
	if grader.Type != spec.GraderSQL {
		return tasks.Grade(grader, t, result)
	}
	c, err := comparison(grader, t)
	if err != nil {
		return 0, err
	}
	c.Query = result
	right, err := g.databases.Match(ctx, c)
	switch {
	case err != nil:
		return 0, fmt.Errorf("grade task %s: %w", t.ID, err)
	case right:
		return 1, nil
	}
	return 0, nil
}

// GradeByProgram returns the reward that the program of tasks.command gives. Its errors
// are those of tasks.Programs.
func (g *Graders) GradeByProgram(ctx context.Context, of spec.Tasks, grader spec.Grader, t tasks.Task, result string) (float64, error) {
	return g.programs.Grade(ctx, of, grader.Seconds, t, result)
}

// Open reads the tasks of a source and makes sure that the grader can grade them:
// answers are as it needs them, and gold queries run on their databases. The error
// names the source and up to 20 tasks. A source "command:<split>" is asked of the command
// in of.
func (g *Graders) Open(ctx context.Context, of spec.Tasks, grader spec.Grader, source string) ([]tasks.Task, error) {
	list, err := tasks.OpenSplit(ctx, of, source)
	if err != nil {
		return nil, err
	}
	err = tasks.CheckAnswers(grader, list)
	if err == nil && grader.Type == spec.GraderSQL {
		err = g.checkQueries(ctx, grader, list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return list, nil
}

// Close closes the databases and ends the programs.
func (g *Graders) Close() error { return errors.Join(g.databases.Close(), g.programs.Close()) }

func comparison(grader spec.Grader, t tasks.Task) (sqlmatch.Comparison, error) {
	path, err := t.Database()
	return sqlmatch.Comparison{
		Database: path, Gold: t.Answer, KeepDistinct: grader.KeepDistinct,
		Most: time.Duration(grader.Seconds * float64(time.Second)),
	}, err
}

// shownFaults is how many tasks an error names.
const shownFaults = 20

// checkQueries runs the gold queries.
func (g *Graders) checkQueries(ctx context.Context, grader spec.Grader, list []tasks.Task) error {
	faults := make([]error, len(list))
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range list {
		all.Go(func() error {
			c, err := comparison(grader, t)
			if err == nil {
				err = g.databases.CheckGold(ctx, c)
			}
			if err != nil {
				faults[i] = fmt.Errorf("task %s: %w", t.ID, err)
			}
			return ctx.Err()
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if more := len(faults) - shownFaults; more > 0 {
		faults = append(faults[:shownFaults], fmt.Errorf("and %d more", more))
	}
	return errors.Join(faults...)
}
