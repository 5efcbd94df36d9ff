package schema

import (
	"math/big"
	"slices"
	"strings"
)

// maxDigits is the largest number of digits before the point of a number, and after it.
const maxDigits = 18

// numbers is the shape of the numbers of a schema. Without limits they may have an
// exponent of two digits, with limits none.
type numbers struct {
	whole     bool // only integers
	low, high *limit
	none      bool // no number is within the limits
}

// limit is a bound of numbers.
type limit struct {
	at     *big.Rat
	strict bool // the bound itself is out
}

// magnitude is a limit of numbers that are not negative, by its digits.
type magnitude struct {
	whole, fraction string
	strict          bool
}

func (c *compiler) newNumbers(f *facts) (shape, error) {
	n := &numbers{whole: f.types&fraction == 0, low: f.low, high: f.high}
	for _, end := range []*limit{n.low, n.high} {
		if end == nil {
			continue
		}
		if digits, exact := end.at.FloatPrec(); !exact || digits > maxDigits {
			return nil, f.limits[0].refuse("a limit of more than %d digits after the point", maxDigits)
		}
	}
	if n.whole {
		n.low, n.high = n.low.integer(1), n.high.integer(-1)
	}
	n.none = n.node(c.automaton, 0) == nil
	return n, nil
}

// integer returns the integer within l that is closest to it. direction, 1 or -1, points
// to the allowed numbers.
func (l *limit) integer(direction int64) *limit {
	if l == nil {
		return nil
	}
	floor := new(big.Int).Div(l.at.Num(), l.at.Denom())
	switch {
	case l.at.IsInt() && l.strict:
		floor.Add(floor, big.NewInt(direction))
	case !l.at.IsInt() && direction > 0:
		floor.Add(floor, big.NewInt(1))
	}
	return &limit{at: new(big.Rat).SetInt(floor)}
}

// allow reports whether a number is within the limits.
func (f *facts) allow(v *document) (bool, error) {
	n, err := v.number()
	if err != nil {
		return false, err
	}
	above := f.low == nil || n.Cmp(f.low.at) > 0 || !f.low.strict && n.Cmp(f.low.at) == 0
	below := f.high == nil || n.Cmp(f.high.at) < 0 || !f.high.strict && n.Cmp(f.high.at) == 0
	divides := !slices.ContainsFunc(f.multiples, func(of *big.Rat) bool { return !new(big.Rat).Quo(n, of).IsInt() })
	return above && below && divides, nil
}

func (n *numbers) cost([]*rule) int {
	if n.none {
		return never
	}
	return 0
}

func (n *numbers) needs() []int { return nil }

func (n *numbers) node(a *automaton, _ int) *node {
	minus := a.literal("-")
	if n.low == nil && n.high == nil && !n.whole {
		var sign ByteSet
		sign.Add('+')
		sign.Add('-')
		exponent := a.sequence(a.choice(a.literal("e"), a.literal("E")), a.optional(a.in(sign)), a.repeat(a.digit(), 1, 2))
		return a.sequence(a.optional(minus), a.between(nil, nil, false), a.optional(exponent))
	}
	return a.choice(a.sequence(minus, n.below(a)), n.above(a))
}

// below returns the expression of the negative numbers, without their sign.
func (n *numbers) below(a *automaton) *node {
	if n.low != nil && n.low.at.Sign() >= 0 {
		return nil
	}
	low := &magnitude{whole: "0", strict: true}
	if n.whole {
		low = &magnitude{whole: "1"}
	}
	if n.high != nil && n.high.at.Sign() < 0 {
		low = n.high.magnitude()
	}
	return a.between(low, n.low.magnitude(), n.whole)
}

// above returns the expression of the numbers that are not negative.
func (n *numbers) above(a *automaton) *node {
	if n.high != nil && n.high.at.Sign() < 0 {
		return nil
	}
	low := n.low
	if low != nil && low.at.Sign() < 0 {
		low = nil
	}
	return a.between(low.magnitude(), n.high.magnitude(), n.whole)
}

func (l *limit) magnitude() *magnitude {
	if l == nil {
		return nil
	}
	digits := strings.TrimPrefix(l.at.FloatString(maxDigits), "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	return &magnitude{whole, strings.TrimRight(fraction, "0"), l.strict}
}

// between returns the expression of the magnitudes from low to high; nil means no limit.
func (a *automaton) between(low, high *magnitude, whole bool) *node {
	least, most := 1, maxDigits
	if low != nil {
		least = len(low.whole)
	}
	if high != nil {
		most = min(most, len(high.whole))
	}
	var options []*node
	for length := least; length <= most; length++ {
		l, h := low, high
		if l != nil && len(l.whole) < length {
			l = nil
		}
		if h != nil && len(h.whole) > length {
			h = nil
		}
		options = append(options, a.wholeDigits(length, 0, l, h, whole))
	}
	return a.choice(options...)
}

// wholeDigits returns the expression of what follows the first i digits of a number whose
// whole part has length digits. If low is not nil, the digits so far are equal to those
// of the lower limit. It is nil if they are above it, so that it limits nothing more.
// high is the same for the upper limit.
func (a *automaton) wholeDigits(length, i int, low, high *magnitude, whole bool) *node {
	if i == length {
		if whole {
			return a.empty()
		}
		return a.choice(a.endHere(low, high), a.sequence(a.literal("."), a.fractionDigits(maxDigits, low, high)))
	}
	if i > 0 && low == nil && high == nil {
		return a.sequence(a.repeat(a.digit(), length-i, length-i), a.wholeDigits(length, length, nil, nil, whole))
	}
	var groups digitGroups
	for d := byte('0'); d <= '9'; d++ {
		l, h := low, high
		if d == '0' && i == 0 && length > 1 || l != nil && d < l.whole[i] || h != nil && d > h.whole[i] {
			continue
		}
		if l != nil && d > l.whole[i] {
			l = nil
		}
		if h != nil && d < h.whole[i] {
			h = nil
		}
		groups.add(d, l, h)
	}
	var options []*node
	for _, g := range groups {
		options = append(options, a.sequence(a.in(g.digits), a.wholeDigits(length, i+1, g.low, g.high, whole)))
	}
	return a.choice(options...)
}

// digitGroups groups digits by the limits that hold after them.
type digitGroups []struct {
	digits    ByteSet
	low, high *magnitude
}

func (g *digitGroups) add(d byte, low, high *magnitude) {
	if n := len(*g); n > 0 && (*g)[n-1].low == low && (*g)[n-1].high == high {
		(*g)[n-1].digits.Add(d)
		return
	}
	*g = append(*g, struct {
		digits    ByteSet
		low, high *magnitude
	}{span(d, d), low, high})
}

// fractionDigits returns the expression of one to n digits that are within the fractions
// of low and high.
func (a *automaton) fractionDigits(n int, low, high *magnitude) *node {
	if low == nil && high == nil {
		return a.repeat(a.digit(), 1, n)
	}
	if n == 0 {
		return nil
	}
	var groups digitGroups
	for d := byte('0'); d <= '9'; d++ {
		l, tooLow := low.after(d, -1)
		h, tooHigh := high.after(d, 1)
		if !tooLow && !tooHigh {
			groups.add(d, l, h)
		}
	}
	var options []*node
	for _, g := range groups {
		rest := a.choice(a.endHere(g.low, g.high), a.fractionDigits(n-1, g.low, g.high))
		options = append(options, a.sequence(a.in(g.digits), rest))
	}
	return a.choice(options...)
}

// after returns what is left of a limit after digit d of a fraction. It returns nil if d
// decides: beyond is then true if d is on the wrong side of the limit. direction is the
// side of the limit on which numbers are not allowed.
func (m *magnitude) after(d byte, direction int) (rest *magnitude, beyond bool) {
	if m == nil {
		return nil, false
	}
	own, fraction := byte('0'), ""
	if m.fraction != "" {
		own, fraction = m.fraction[0], m.fraction[1:]
	}
	if d != own {
		return nil, (d > own) == (direction > 0)
	}
	return &magnitude{fraction: fraction, strict: m.strict}, false
}

// endHere returns the empty text if a number may end where these fractions are left, else
// nil.
func (a *automaton) endHere(low, high *magnitude) *node {
	if low != nil && (low.fraction != "" || low.strict) || high != nil && high.fraction == "" && high.strict {
		return nil
	}
	return a.empty()
}

func (a *automaton) digit() *node { return a.in(span('0', '9')) }
