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
	tenth := spec.Grader{Type: spec.GraderNumeric, Tolerance: 0.1}
	with := func(grader, extract string) spec.Grader { return spec.Grader{Type: grader, Extract: extract} }
	last, boxed := with(spec.GraderNumeric, "last_number"), with(spec.GraderNumeric, "boxed")
	mark, pattern := with(spec.GraderNumeric, `after "Answer:"`), with(spec.GraderNumeric, `regex "is (\S+)"`)
	exactBoxed, exactMark, wordsMark := with(spec.GraderExact, "boxed"), with(spec.GraderExact, "after Answer:"), with(spec.GraderQA, "after Answer:")
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
		{numeric, "72", "48+24 = 72 clips.\n#### 72", 1}, {numeric, "1080", "#### 1,080 dollars", 1}, {numeric, "18", "####$18.", 1}, {numeric, "72", "72 #### 71", 0}, {numeric, "72", "####", 0}, {numeric, "72", "#### none 72", 0}, {numeric, "72", "#### 72, 73", 1}, {numeric, "33", "33 apples", 1}, {numeric, "33", "34", 0}, {numeric, "33", "0x21", 0},
		{numeric, "33", "NaN", 0}, {numeric, "33", "inf", 0}, {numeric, "33", "", 0}, {numeric, "33", "1e999", 0}, {numeric, "33", "3_3", 0},
		{words, "The Beatles", "beatles!", 1}, {words, `["G. Stanley Hall","Stanley Hall"]`, "stanley hall", 1}, {words, "a an the", "", 0}, {words, "A", "", 0}, {words, "A", " a ", 1}, {words, "..", "the", 0}, {words, "..", "..", 1}, {words, `["A","type A"]`, "", 0}, {words, "Hall", "the", 0}, {strict, "the", "", 0}, {strict, "the", "The", 1},
		{words, "yes", "yes no", 0}, {words, "no", "No.", 1}, {words, "noanswer", "no answer", 0}, {words, "No Doubt", "no", 0}, {words, `["yes","yeah"]`, "yes or no", 0}, {words, "yes indeed", "yes no", 0.5},
		{words, "Hall", "", 0},
		{words, "Granville Stanley Hall", "Hall", 0.5}, {words, "to be or not to be", "to to to be", 0.6}, {words, "[sic]", "sic", 1}, {words, "a–b", "b", 0}, {words, "theory", "ory", 0},
		{strict, "The Beatles", "beatles!", 1}, {strict, "Granville Stanley Hall", "Hall", 0}, {strict, `["x y","z"]`, "Z.", 1},
		{near, "33", "33.009", 1}, {near, "33", "33.02", 0}, {near, "33", "32.995", 1},
		{numeric, "9007199254740993", "9007199254740992", 0}, {numeric, "9007199254740993", "9007199254740993", 1}, {numeric, "0.1", "0.1000000000000000055511151231257827", 0}, {numeric, "1/3", "0.3333333333333333", 0}, {numeric, "1/3", "2/6", 1},
		{tenth, "0.3", "0.4", 1}, {tenth, "72", "72.1", 1}, {tenth, "72", "72.10000001", 0}, {near, "1.11", "1.10", 1}, {near, "1.11", "1.099", 0}, {tenth, "-0.3", "−0.2", 1},
		{numeric, "29", "$29.00", 1}, {numeric, "72", `\boxed{72}`, 1}, {numeric, "72", "**72**", 1}, {numeric, "9500", "9{,}500", 1}, {numeric, "-5", "−5", 1}, {numeric, "72", "The answer is 72.", 1},
		{numeric, "3", "#### 6/2", 1}, {numeric, "6", "#### 6/2", 0}, {numeric, "72", `so \boxed{71}, no, \boxed{72} in 3 steps`, 1}, {numeric, "3", `so \boxed{72} in 3 steps`, 0}, {numeric, "72", "#### Step 1\n48+24\n#### 72\n", 1}, {numeric, "72", "#### Answer\n\\boxed{72}", 1}, {numeric, "72", `\boxed{72, 73}`, 0},
		{numeric, "48", "#### 48+24", 0}, {numeric, "24", "48+24", 0}, {numeric, "50%", "50", 1}, {numeric, "$1,000", "1000", 1}, {numeric, `["72", "73.5"]`, "147/2", 1}, {numeric, "[72, 73]", "72", 1}, {numeric, "[72, 73]", "74", 0},
		{exact, `["a", "b"]`, "b", 1}, {exact, `["a", "b"]`, "c", 0}, {exact, `["a", "b"]`, `["a", "b"]`, 1}, {exact, "[1,2]", "[1,2]", 1}, {exact, "[1,2]", "1", 0}, {exact, "[]", "[]", 1}, {contains, `["Paris", "Lyon"]`, "in Lyon", 1}, {contains, `["Paris", "Lyon"]`, "in Nice", 0},
		{last, "72", "#### 71, no, 72", 1}, {last, "71", `\boxed{71} of 72`, 0}, {boxed, "72", `72 \boxed{\text{72 clips}}`, 1}, {boxed, "72", "72", 0}, {boxed, "72", `\boxed{72`, 0}, {boxed, "7", `\boxed 7$`, 1},
		{mark, "72", "Answer: 71\nAnswer: **72** of 80", 1}, {mark, "72", "Answer: 72\nAnswer:", 1}, {mark, "72", "Answer: about 72", 0}, {mark, "72", "72", 0}, {pattern, "72", "it is 71, is 72 clips", 1}, {pattern, "72", "72", 0},
		{exactBoxed, "x+1", `thus \boxed{x+1}.`, 1}, {exactBoxed, "x+1", "x+1", 0}, {exactMark, "Paris", "Answer: Rome\nAnswer: Paris\nBye", 1}, {exactMark, "Paris", "Paris", 0}, {wordsMark, "the Hall", "I think so. Answer: hall.", 1}, {wordsMark, "A", "no mark", 0},
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
	for answer, want := range map[string]string{`["a",""]`: "one of its texts is empty", "[]": "its list has no texts"} {
		require.ErrorContains(t, tasks.CheckAnswers(spec.Grader{Type: spec.GraderQA}, []tasks.Task{{ID: "a", Answer: answer}}), want)
	}
	for _, grader := range []string{spec.GraderExact, spec.GraderContains} {
		require.ErrorContains(t, tasks.CheckAnswers(spec.Grader{Type: grader}, []tasks.Task{{ID: "a", Answer: `["a", " "]`}}), "one of its texts is empty")
	}
	require.ErrorContains(t, tasks.CheckAnswers(spec.Grader{Type: spec.GraderNumeric}, []tasks.Task{{ID: "a", Answer: `[72, "x"]`}}), `needs a number, not "x"`)
	require.Equal(t, []string{"b", "c"}, tasks.Wordless([]tasks.Task{{ID: "a", Answer: "Hall"}, {ID: "b", Answer: "A"}, {ID: "c", Answer: `["x", ".."]`}}))
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
