// Package arithmetic is the built-in family of tasks: sums, differences and products of
// two or three small integers, such as "12+7*3", with their values, and demonstrations
// that use a calculator for them.
//
// A problem has two or three operands from 0 to 19 joined by +, - and *, written without
// blanks. There are 1,200 problems with two operands and 72,000 with three.
// Multiplication binds first; + and - go from left to right.
//
// Each problem belongs to exactly one [Split], which a hash of the problem's canonical
// form decides. In this form, operands that may be exchanged are sorted, so "3+4" and
// "4+3" are in the same split. About 8 in 10 problems are in [Train], 1 in [Gate] and 1
// in [Test]. Demonstrations use problems of [Train] alone.
//
// It is not a benchmark of mathematics, and it reads no expressions outside of its own
// grammar. Guarantees: everything here is a function of its arguments. It is the same on
// every machine and in every version, because the tasks of a finished run are identified
// by their digest.
package arithmetic

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
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

// ErrExpression is wrapped by every error of Evaluate.
var ErrExpression = errors.New("bad expression")

// limit is the largest magnitude of an operand and of any result, also of intermediate
// ones: JSON carries integers up to this size exactly.
const limit = 1 << 53

// Evaluate computes an expression of decimal integers:
//
//	expression = term { ("+" | "-") term }
//	term       = operand { "*" operand }
//	operand    = [ "-" ] digit { digit }
//
// Blanks may stand between operands and operators. There are no parentheses and
// no division. Operands and results beyond 2^53 are refused.
func Evaluate(expression string) (int, error) {
	p := parser{text: expression}
	value := p.sum()
	if p.err == nil && p.at < len(p.text) {
		p.fail("unexpected %q", p.text[p.at])
	}
	if p.err != nil {
		return 0, fmt.Errorf("%w %q: %w", ErrExpression, expression, p.err)
	}
	return value, nil
}

// parser reads one expression; after its first error it reads nothing more.
type parser struct {
	text string
	at   int
	err  error
}

func (p *parser) sum() int {
	value := p.product()
	for p.err == nil {
		switch {
		case p.skip('+'):
			value = p.inside(value + p.product())
		case p.skip('-'):
			value = p.inside(value - p.product())
		default:
			return value
		}
	}
	return value
}

func (p *parser) product() int {
	value := p.operand()
	for p.err == nil && p.skip('*') {
		factor := p.operand()
		if factor != 0 && (value > limit/abs(factor) || -value > limit/abs(factor)) {
			p.fail("result beyond 2^53")
			break
		}
		value *= factor
	}
	return value
}

func (p *parser) operand() int {
	negative := p.skip('-')
	p.blanks()
	begin := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	switch {
	case p.at > begin:
	case p.at == len(p.text):
		p.fail("it ends where an operand should be")
	default:
		p.fail("unexpected %q", p.text[p.at])
	}
	if p.err != nil {
		return 0
	}
	value, err := strconv.Atoi(p.text[begin:p.at])
	if err != nil || value > limit {
		p.fail("operand beyond 2^53")
		return 0
	}
	p.blanks()
	if negative {
		return -value
	}
	return value
}

// inside returns value, or fails if it is beyond the limit.
func (p *parser) inside(value int) int {
	if abs(value) > limit {
		p.fail("result beyond 2^53")
	}
	return value
}

// skip skips blanks and then c, if it follows. It reports whether it did.
func (p *parser) skip(c byte) bool {
	p.blanks()
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

func (p *parser) blanks() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format+" at column %d", append(args, p.at+1)...)
	}
}

func abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

// In the first four fifths of the updates, 9 in 10 demonstrations use the tool, so that
// the model learns to copy an expression. In the rest, 1 in 4 does. The policy then knows
// how to use the tool but seldom does, which leaves something for reinforcement learning
// to find.
const (
	earlyUse = 0.90
	lateUse  = 0.25
)

// Tool returns the calculator that demonstrations use. It has one required string, the
// expression.
func Tool() dialog.Tool {
	return dialog.Tool{
		Name: "calculator", Description: "Evaluates integer arithmetic with +, - and *.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`),
	}
}

// Demonstrations are the dialogs of a warm start with a number of updates. In each of
// them, a user asks a problem of the train split. The assistant either calls the
// calculator with it and repeats the result, or immediately gives a wrong answer.
type Demonstrations struct {
	Seed    uint64
	Updates int
}

// Batch returns the dialogs of one update, counted from 0. A dialog depends only on Seed,
// the update and its place in the batch.
func (d Demonstrations) Batch(update, size int) []dialog.Dialog {
	use := earlyUse
	if 5*update >= 4*d.Updates {
		use = lateUse
	}
	batch := make([]dialog.Dialog, size)
	for i := range batch {
		draw := &draws{key: shuffle.Key(d.Seed, uint64(update), uint64(i))}
		expression := trainExpression(draw)
		if draw.chance(use) {
			batch[i] = calculated(expression)
		} else {
			batch[i] = guessed(expression, draw)
		}
	}
	return batch
}

// trainExpression draws an expression of the train split, with two or three
// operands equally often.
func trainExpression(draw *draws) string {
	for {
		n := 2 + draw.below(2)
		if expression := nth(n, draw.below(space(n))); SplitOf(expression) == Train {
			return expression
		}
	}
}

func calculated(expression string) dialog.Dialog {
	const id = "call_1"
	arguments, err := json.Marshal(map[string]string{"expression": expression})
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	result := strconv.Itoa(mustEvaluate(expression))
	call := dialog.ToolCall{ID: id, Type: "function", Function: dialog.Function{Name: Tool().Name, Arguments: string(arguments)}}
	return dialog.Dialog{Tools: []dialog.Tool{Tool()}, Messages: []dialog.Message{
		{Role: dialog.User, Content: expression},
		{Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{call}},
		{Role: dialog.ToolReply, Content: result, ToolCallID: id},
		{Role: dialog.Assistant, Content: result},
	}}
}

// guessed returns a dialog whose answer is wrong by 1 to 20.
func guessed(expression string, draw *draws) dialog.Dialog {
	off := 1 + draw.below(20)
	if draw.chance(0.5) {
		off = -off
	}
	return dialog.Dialog{Tools: []dialog.Tool{Tool()}, Messages: []dialog.Message{
		{Role: dialog.User, Content: expression},
		{Role: dialog.Assistant, Content: strconv.Itoa(mustEvaluate(expression) + off)},
	}}
}

// draws generates the random numbers of one dialog.
type draws struct{ key, used uint64 }

func (d *draws) next() uint64 {
	d.used++
	return shuffle.Key(d.key, d.used)
}

// below returns a number from 0 to n-1. For such small n the bias of a remainder is
// negligible.
func (d *draws) below(n int) int { return int(d.next() % uint64(n)) }

func (d *draws) chance(p float64) bool { return float64(d.next()>>11)/(1<<53) < p }
