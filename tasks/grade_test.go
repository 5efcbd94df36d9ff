package tasks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

func TestGradersCompareAsDocumented(t *testing.T) {
	t.Parallel()
	exact, contains := spec.Grader{Type: spec.GraderExact}, spec.Grader{Type: spec.GraderContains}
	numeric, near := spec.Grader{Type: spec.GraderNumeric}, spec.Grader{Type: spec.GraderNumeric, Tolerance: 0.01}
	words, strict := spec.Grader{Type: spec.GraderQA}, spec.Grader{Type: spec.GraderQA, Metric: spec.MetricExact}
	for _, c := range []struct {
		grader         spec.Grader
		answer, result string
		want           float64
	}{
		{exact, "33", "33", 1}, {exact, "33", " 33\n", 1}, {exact, " 33 ", "33", 1}, {exact, "33", "33.0", 0},
		{exact, "a b", "A b", 0}, {exact, "33", "", 0}, {exact, "33", "the answer is 33", 0},
		{contains, "33", "the answer is 33.", 1}, {contains, "Paris", "paris", 0}, {contains, "33", "", 0}, {contains, " 33 ", "x33y", 1},
		{numeric, "33", "33.0", 1}, {numeric, "33", "3.3e1", 1}, {numeric, "-0.5", "-.5", 1}, {numeric, "33", "+33", 1},
		{numeric, "3000", "3,000", 1}, {numeric, "3000", "30,00", 0}, {numeric, "3000", ",3000", 0}, {numeric, "1234567.5", "-1,234,567.5", 0}, {numeric, "-1234567.5", "-1,234,567.5", 1},
		{numeric, "72", "48+24 = 72 clips.\n#### 72", 1}, {numeric, "1080", "#### 1,080 dollars", 1}, {numeric, "18", "####$18.", 1}, {numeric, "72", "72 #### 71", 0}, {numeric, "72", "####", 0}, {numeric, "72", "#### none 72", 0}, {numeric, "72", "#### 72, 73", 1}, {numeric, "33", "33 apples", 0}, {numeric, "33", "34", 0}, {numeric, "33", "0x21", 0},
		{numeric, "33", "NaN", 0}, {numeric, "33", "inf", 0}, {numeric, "33", "", 0}, {numeric, "33", "1e999", 0}, {numeric, "33", "3_3", 0},
		{words, "The Beatles", "beatles!", 1}, {words, `["G. Stanley Hall","Stanley Hall"]`, "stanley hall", 1}, {words, "a an the", "", 1}, {words, "Hall", "", 0},
		{words, "Granville Stanley Hall", "Hall", 0.5}, {words, "to be or not to be", "to to to be", 0.6}, {words, "[sic]", "sic", 1}, {words, "a–b", "b", 0}, {words, "theory", "ory", 0},
		{strict, "The Beatles", "beatles!", 1}, {strict, "Granville Stanley Hall", "Hall", 0}, {strict, `["x y","z"]`, "Z.", 1},
		{near, "33", "33.009", 1}, {near, "33", "33.02", 0}, {near, "33", "32.995", 1},
	} {
		got, err := tasks.Grade(c.grader, tasks.Task{ID: "t", Answer: c.answer}, c.result)
		require.NoError(t, err)
		require.InDelta(t, c.want, got, 1e-12, "%s: %q for %q", c.grader.Type, c.result, c.answer)
	}
}

func TestMissingAnswersAreErrors(t *testing.T) {
	t.Parallel()
	list := []tasks.Task{{ID: "a", Answer: "1"}, {ID: "b"}, {ID: "c", Answer: " \n"}, {ID: "d", Answer: "four"}}
	const missing = `unusable answer: grader %q needs one, and there is none (also task c)`
	for grader, want := range map[string]string{
		spec.GraderExact: fmt.Sprintf("task b: "+missing, "exact"), spec.GraderContains: fmt.Sprintf("task b: "+missing, "contains"),
		spec.GraderNumeric: fmt.Sprintf("task b: "+missing, "numeric") + "\n" + `task d: unusable answer: grader "numeric" needs a number, not "four"`,
		spec.GraderCommand: "", spec.GraderAgent: "",
	} {
		err := tasks.CheckAnswers(spec.Grader{Type: grader}, list)
		if want == "" {
			require.NoError(t, err, grader)
			continue
		}
		require.ErrorIs(t, err, tasks.ErrAnswer)
		require.EqualError(t, err, want)
		for _, one := range list[1:3] {
			_, err := tasks.Grade(spec.Grader{Type: grader}, one, "1")
			require.ErrorIs(t, err, tasks.ErrAnswer, "an answer that can't be compared with never makes a reward")
			require.ErrorContains(t, err, "task "+one.ID+": ")
		}
	}
	many := make([]tasks.Task, 25)
	for i := range many {
		many[i] = tasks.Task{ID: fmt.Sprint(i), Answer: strings.Repeat("x", i+1)}
	}
	err := tasks.CheckAnswers(spec.Grader{Type: spec.GraderNumeric}, many)
	require.True(t, strings.HasSuffix(err.Error(), "\nand 5 more"))
	require.ErrorContains(t, tasks.CheckAnswers(spec.Grader{Type: spec.GraderSQL}, many), `grader "sql" needs tasks about a database, such as those of spider:FILE`)
}

func TestGradersThatDecideElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	for _, grader := range []string{spec.GraderCommand, spec.GraderAgent, "regex", ""} {
		_, err := tasks.Grade(spec.Grader{Type: grader}, tasks.Task{ID: "t", Answer: "1"}, "1")
		require.ErrorIs(t, err, tasks.ErrGrader, grader)
		require.ErrorContains(t, err, "task t")
	}
}
