package arithmetic_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/arithmetic"
)

// supply is the number of problems in each split, in total 1,200 + 72,000.
var supply = map[arithmetic.Split]int{arithmetic.Train: 58443, arithmetic.Gate: 7179, arithmetic.Test: 7578}

func all(t *testing.T, split arithmetic.Split) []arithmetic.Problem {
	t.Helper()
	problems, err := arithmetic.Problems(split, supply[split], 1)
	require.NoError(t, err)
	return problems
}

// swapped returns an expression with the operands of its last operator exchanged, and
// true if that has the same meaning.
func swapped(expression string) (string, bool) {
	i := strings.LastIndexAny(expression, "+*")
	if i < 0 || strings.ContainsAny(expression[:i], "+-*") || strings.ContainsAny(expression[i+1:], "-") {
		return "", false
	}
	return expression[i+1:] + expression[i:i+1] + expression[:i], true
}

func TestSplitsShareNoProblem(t *testing.T) {
	t.Parallel()
	home := map[string]arithmetic.Split{}
	total := 0
	for split := range supply {
		for _, p := range all(t, split) {
			if other, ok := home[p.Expression]; ok {
				t.Fatalf("%s is in %s and %s", p.Expression, other, split)
			}
			home[p.Expression] = split
			total++
		}
	}
	require.Equal(t, 1200+72000, total)
	pairs := 0
	for expression, split := range home {
		if other, ok := swapped(expression); ok {
			pairs++
			if home[other] != split {
				t.Fatalf("%s is in %s, %s in %s", expression, split, other, home[other])
			}
		}
	}
	require.Equal(t, 800, pairs)
	for _, same := range [][]string{{"2+3*4", "3*4+2", "4*3+2", "2+4*3"}, {"7-2-3", "7-3-2"}, {"5-2+1", "1+5-2"}} {
		for _, expression := range same {
			require.Equal(t, home[same[0]], home[expression], expression)
		}
	}
}

func TestProblemsAreWhatTheySay(t *testing.T) {
	t.Parallel()
	problems, err := arithmetic.Problems(arithmetic.Train, 2000, 7)
	require.NoError(t, err)
	for i, p := range problems {
		value, err := arithmetic.Evaluate(p.Expression)
		require.NoError(t, err)
		require.Equal(t, value, p.Value)
		require.Equal(t, 1+strings.Count(strings.NewReplacer("-", "+", "*", "+").Replace(p.Expression), "+"), p.Operands)
		if i < 1000 {
			require.Equal(t, 2+i%2, p.Operands, "two and three operands in turn")
		}
		require.Equal(t, arithmetic.Train, arithmetic.SplitOf(p.Expression))
	}
	require.Equal(t, "train-000000", problems[0].ID)
	require.Equal(t, "train-001999", problems[1999].ID)
}

func TestProblemsDependOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	gate := func(count int, seed uint64) []arithmetic.Problem {
		problems, err := arithmetic.Problems(arithmetic.Gate, count, seed)
		require.NoError(t, err)
		return problems
	}
	require.Equal(t, gate(50, 3), gate(50, 3))
	require.Equal(t, gate(50, 3), gate(200, 3)[:50], "more problems begin with the same ones")
	require.NotEqual(t, gate(50, 3), gate(50, 4))
}

// The tasks of finished runs are on record, so these may never change.
func TestProblemsAreTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	problems, err := arithmetic.Problems(arithmetic.Train, 6, 1)
	require.NoError(t, err)
	var got []string
	for _, p := range problems {
		got = append(got, p.Expression)
	}
	require.Equal(t, []string{"5-13", "19*2*8", "13-2", "13+1+1", "17-11", "9-16+18"}, got)
}

func TestImpossibleProblemsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := arithmetic.Problems(arithmetic.Gate, supply[arithmetic.Gate]+1, 1)
	require.ErrorIs(t, err, arithmetic.ErrSupply)
	require.ErrorContains(t, err, "has 7179, not 7180")
	_, err = arithmetic.Problems("dev", 1, 1)
	require.ErrorIs(t, err, arithmetic.ErrSplit)
	_, err = arithmetic.Problems(arithmetic.Gate, 0, 1)
	require.Error(t, err)
}
