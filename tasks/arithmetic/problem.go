package arithmetic

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// operands is the number of different operands, the integers from 0 to operands-1.
const operands = 20

// operators join operands.
const operators = "+-*"

// Split names one of three sets of problems. No problem is in two of them.
type Split string

// The splits.
const (
	Train Split = "train"
	Gate  Split = "gate"
	Test  Split = "test"
)

// ErrSupply is wrapped when a split has fewer problems than were asked for.
var ErrSupply = errors.New("not enough arithmetic problems")

// ErrSplit is wrapped when a split is none of the three.
var ErrSplit = errors.New("unknown split")

// Problem is an expression with its value.
type Problem struct {
	ID         string // the split and the problem's place in it: "train-000017"
	Expression string
	Value      int
	Operands   int // 2 or 3
}

// Problems returns count different problems of a split. Problems with two and with three
// operands alternate; when one kind is used up, only the other follows. Another seed
// gives other problems in another order. With the same seed, a larger count begins with
// the same problems.
func Problems(split Split, count int, seed uint64) ([]Problem, error) {
	if !slices.Contains([]Split{Train, Gate, Test}, split) {
		return nil, fmt.Errorf("%w %q: want %s, %s or %s", ErrSplit, split, Train, Gate, Test)
	}
	if count < 1 {
		return nil, fmt.Errorf("make %d arithmetic problems: want at least 1", count)
	}
	sources := []*source{{operands: 2, split: split, seed: seed}, {operands: 3, split: split, seed: seed}}
	problems := make([]Problem, 0, min(count, space(2)+space(3)))
	for turn := 0; len(problems) < count; turn++ {
		expression, ok := sources[turn%len(sources)].next()
		if !ok {
			if sources = slices.Delete(sources, turn%len(sources), turn%len(sources)+1); len(sources) == 0 {
				return nil, fmt.Errorf("%w: the %s split has %d, not %d", ErrSupply, split, len(problems), count)
			}
			continue
		}
		problems = append(problems, problem(split, len(problems), expression))
	}
	return problems, nil
}

func problem(split Split, i int, expression string) Problem {
	return Problem{
		ID: fmt.Sprintf("%s-%06d", split, i), Expression: expression, Value: mustEvaluate(expression),
		Operands: 1 + strings.Count(expression, "+") + strings.Count(expression, "-") + strings.Count(expression, "*"),
	}
}

// source goes through the problems with one number of operands, in an order that the seed
// decides.
type source struct {
	operands int
	split    Split
	seed     uint64
	at       int
}

func (s *source) next() (expression string, ok bool) {
	key := shuffle.Key(s.seed, uint64(s.operands))
	for s.at < space(s.operands) {
		expression = nth(s.operands, shuffle.Index(key, space(s.operands), s.at))
		s.at++
		if SplitOf(expression) == s.split {
			return expression, true
		}
	}
	return "", false
}

// space returns the number of expressions with n operands.
func space(n int) int {
	size := operands
	for range n - 1 {
		size *= operands * len(operators)
	}
	return size
}

// nth returns the i-th expression with n operands. It reads i as a number whose digits
// are alternately operands and operators.
func nth(n, i int) string {
	b := strconv.AppendInt(nil, int64(i%operands), 10)
	i /= operands
	for range n - 1 {
		b = append(b, operators[i%len(operators)])
		i /= len(operators)
		b = strconv.AppendInt(b, int64(i%operands), 10)
		i /= operands
	}
	return string(b)
}

// SplitOf returns the split of an expression that the generator made.
func SplitOf(expression string) Split {
	switch sum := sha256.Sum256([]byte(canonical(expression))); sum[0] % 10 {
	case 0:
		return Gate
	case 1:
		return Test
	default:
		return Train
	}
}

// canonical sorts what may be exchanged: the factors of a product, and the terms of the
// sum with their signs. So "3+4" and "4+3" are in the same split.
func canonical(expression string) string {
	signed := strings.ReplaceAll("+"+expression, "-", "+-")
	terms := strings.Split(signed[1:], "+")
	for i, term := range terms {
		sign := ""
		if rest, negative := strings.CutPrefix(term, "-"); negative {
			sign, term = "-", rest
		}
		factors := strings.Split(term, "*")
		slices.Sort(factors)
		terms[i] = sign + strings.Join(factors, "*")
	}
	slices.Sort(terms)
	return strings.Join(terms, "+")
}

// mustEvaluate evaluates an expression that this package wrote.
func mustEvaluate(expression string) int {
	value, err := Evaluate(expression)
	if err != nil {
		panic(err)
	}
	return value
}
