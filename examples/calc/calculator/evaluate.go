package calculator

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// longest is the most bytes of an expression; it bounds the work and the depth
// of one evaluation.
const longest = 256

// ErrExpression is wrapped by every error of Evaluate.
var ErrExpression = errors.New("bad expression")

// Evaluate computes an expression of whole numbers with +, - and *, parentheses
// and signs. Multiplication binds tighter, and spaces don't matter.
func Evaluate(expression string) (*big.Int, error) {
	if len(expression) > longest {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrExpression, longest)
	}
	p := parser{rest: expression}
	value, err := p.sum()
	if err != nil {
		return nil, err
	}
	if p.peek(); p.rest != "" {
		return nil, fmt.Errorf("%w: %q is left over", ErrExpression, p.rest)
	}
	return value, nil
}

type parser struct{ rest string }

// peek returns the next byte that isn't a space, or 0 at the end.
func (p *parser) peek() byte {
	p.rest = strings.TrimLeft(p.rest, " ")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *parser) take(b byte) bool {
	if p.peek() != b || b == 0 {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) sum() (*big.Int, error) {
	total, err := p.product()
	for err == nil {
		var term *big.Int
		switch {
		case p.take('+'):
			if term, err = p.product(); err == nil {
				total.Add(total, term)
			}
		case p.take('-'):
			if term, err = p.product(); err == nil {
				total.Sub(total, term)
			}
		default:
			return total, nil
		}
	}
	return nil, err
}

func (p *parser) product() (*big.Int, error) {
	total, err := p.factor()
	for err == nil && p.take('*') {
		var term *big.Int
		if term, err = p.factor(); err == nil {
			total.Mul(total, term)
		}
	}
	return total, err
}

func (p *parser) factor() (*big.Int, error) {
	switch {
	case p.take('-'):
		value, err := p.factor()
		if err != nil {
			return nil, err
		}
		return value.Neg(value), nil
	case p.take('('):
		value, err := p.sum()
		if err == nil && !p.take(')') {
			err = fmt.Errorf("%w: a parenthesis is not closed", ErrExpression)
		}
		return value, err
	default:
		return p.number()
	}
}

func (p *parser) number() (*big.Int, error) {
	p.peek()
	n := 0
	for n < len(p.rest) && '0' <= p.rest[n] && p.rest[n] <= '9' {
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: want a number before %q", ErrExpression, p.rest)
	}
	value, _ := new(big.Int).SetString(p.rest[:n], 10)
	p.rest = p.rest[n:]
	return value, nil
}
