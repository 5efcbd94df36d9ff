package calculator_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/examples/calc/calculator"
)

func TestExpressionsHaveTheirUsualValue(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"7":                         "7",
		"007":                       "7",
		"12+7*3":                    "33",
		"12-7-3":                    "2",
		"2*3*4-5*6":                 "-6",
		" 1 + 2 * 3 ":               "7",
		"-3*-4":                     "12",
		"2--2":                      "4",
		"(1+2)*(3-5)":               "-6",
		"-(4-9)":                    "5",
		"99999999999*99999999999+1": "9999999999800000000002",
	} {
		got, err := calculator.Evaluate(expression)
		require.NoError(t, err, expression)
		require.Equal(t, want, got.String(), expression)
	}
}

func TestWhatIsNoExpressionIsAnError(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", " ", "+", "1+", "*1", "1 2", "(1", "1)", "()", "1/2", "1.5", "x", "１", "1\x00", "1+2=3",
		strings.Repeat("(", 1000), "1" + strings.Repeat("+1", 1000),
	} {
		_, err := calculator.Evaluate(s)
		require.ErrorIs(t, err, calculator.ErrExpression, "%q", s)
	}
}

// expression draws an expression and its value.
func expression(t *rapid.T, depth int) (string, *big.Int) {
	if depth == 0 || rapid.IntRange(0, 3).Draw(t, "leaf") == 0 {
		n := rapid.Int64Range(0, 999).Draw(t, "number")
		return fmt.Sprint(n), big.NewInt(n)
	}
	left, a := expression(t, depth-1)
	right, b := expression(t, depth-1)
	v := new(big.Int)
	switch op := rapid.SampledFrom([]string{"+", "-", "*"}).Draw(t, "operator"); op {
	case "+":
		return "(" + left + " + " + right + ")", v.Add(a, b)
	case "-":
		return "(" + left + "-" + right + ")", v.Sub(a, b)
	default:
		return left + "*" + right, v.Mul(a, b)
	}
}

func TestEvaluationAgreesWithHowTheExpressionWasBuilt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, want := expression(t, 4)
		got, err := calculator.Evaluate(text)
		require.NoError(t, err)
		require.Equal(t, want.String(), got.String())
	})
}
