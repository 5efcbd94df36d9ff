package arithmetic

import (
	"errors"
	"fmt"
	"strconv"
)

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
