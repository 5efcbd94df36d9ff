package arithmetic_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/tasks/arithmetic"
)

func TestEvaluateFollowsPrecedence(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]int{
		"7": 7, "0": 0, "007": 7, "-7": -7, "12+7*3": 33, "2*3+4*5": 26, "10-3-2": 5, "10-3*2": 4, "3*-4": -12,
		"2--3": 5, "-2*-3": 6, " 1 + 2 ": 3, "- 3": -3, "0-0*9": 0, "2*3*4-5+6": 25, "9007199254740992": 1 << 53,
	} {
		got, err := arithmetic.Evaluate(expression)
		require.NoError(t, err, expression)
		require.Equal(t, want, got, expression)
	}
}

func TestEvaluateRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"", " ", "+", "1+", "*1", "+1", "--1", "1 2", "1+*2", "(1)", "1/2", "1.5", "1e3", "0x1", "1_0", "a", "1a", "١", "1\n", "1\t+2",
		"9007199254740993", "9007199254740992+1", "-9007199254740992-1", "94906266*94906266", "99999999999999999999",
		"9007199254740992*9007199254740992", "-3037000500*3037000500*3037000500",
	} {
		_, err := arithmetic.Evaluate(expression)
		require.ErrorIs(t, err, arithmetic.ErrExpression, "%q", expression)
	}
	_, err := arithmetic.Evaluate("12+/3")
	require.EqualError(t, err, `bad expression "12+/3": unexpected '/' at column 4`)
}

func TestEvaluateNeverPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		_, _ = arithmetic.Evaluate(rapid.StringOf(rapid.SampledFrom([]rune("0123456789+-* x"))).Draw(t, "expression"))
	})
}

// The test builds the value together with the text, as a sum of signed products.
func TestEvaluateAgreesWithHowTheExpressionWasMade(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		operand := rapid.IntRange(-99, 99)
		text, want := "", 0
		for i := range rapid.IntRange(1, 6).Draw(t, "terms") {
			sign := 1
			if i > 0 && rapid.Bool().Draw(t, "minus") {
				sign = -1
			}
			if i > 0 {
				text += map[int]string{1: "+", -1: "-"}[sign]
			}
			product := 1
			for j := range rapid.IntRange(1, 3).Draw(t, "factors") {
				if j > 0 {
					text += "*"
				}
				n := operand.Draw(t, "operand")
				product *= n
				text += strconv.Itoa(n)
			}
			want += sign * product
		}
		got, err := arithmetic.Evaluate(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	})
}
