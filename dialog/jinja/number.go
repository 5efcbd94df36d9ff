package jinja

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// exactFloat is the number up to which a float can hold every integer.
const exactFloat = 1 << 53

// toNumber returns an int64, *big.Int or float64, or nil if v is no number. A bool is a
// number in Python.
func toNumber(v any) any {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case int64, *big.Int, float64:
		return v
	}
	return nil
}

// signed returns a number with the sign + or - before it.
func (r *run) signed(sign string, v any) any {
	if u, ok := v.(*undefined); ok {
		r.undefined(u)
	}
	switch n := toNumber(v).(type) {
	case int64:
		if sign == "+" {
			return n
		}
		return r.integers("-", 0, n)
	case float64:
		if sign == "-" {
			n = -n
		}
		return n
	case nil:
		r.wrong("%s before a %s", sign, typeName(v))
	}
	r.refuse("arithmetic with integers beyond 64 bits")
	return nil
}

// arithmetic applies one of the operators + - * / // % **.
func (r *run) arithmetic(op string, left, right any) any {
	if _, ok := left.(string); ok && op == "%" {
		r.refuse("%% after a string")
	}
	for _, v := range []any{left, right} {
		if u, ok := v.(*undefined); ok {
			r.undefined(u)
		}
	}
	if joined := r.addSafe(op, left, right); joined != nil {
		return joined
	}
	a, b := toNumber(left), toNumber(right)
	if a == nil || b == nil {
		return r.sequences(op, left, right)
	}
	i, iIs := a.(int64)
	j, jIs := b.(int64)
	if iIs && jIs {
		return r.integers(op, i, j)
	}
	x, y := r.toFloat(a), r.toFloat(b)
	z := r.floats(op, x, y)
	if math.IsInf(z, 0) || math.IsNaN(z) {
		r.refuse("arithmetic that gives %s", floatText(z))
	}
	return z
}

// toFloat returns Python's float of a number, if that is exact.
func (r *run) toFloat(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case int64:
		if -exactFloat <= v && v <= exactFloat {
			return float64(v)
		}
	}
	r.refuse("arithmetic with floats and integers beyond 53 bits")
	return 0
}

func (r *run) integers(op string, a, b int64) any {
	x, y, c := big.NewInt(a), big.NewInt(b), new(big.Int)
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		r.wrong("division by zero")
	}
	switch op {
	case "+":
		c.Add(x, y)
	case "-":
		c.Sub(x, y)
	case "*":
		c.Mul(x, y)
	case "/":
		return r.toFloat(a) / r.toFloat(b)
	case "//", "%": // Python rounds down
		rest := new(big.Int)
		if c.QuoRem(x, y, rest); rest.Sign() == -y.Sign() {
			c.Sub(c, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			c = rest
		}
	case "**":
		if b < 0 {
			r.refuse("a negative power")
		}
		if b > 63 && max(a, -a) > 1 {
			r.refuse("arithmetic with integers beyond 64 bits")
		}
		c.Exp(x, y, nil)
	}
	if !c.IsInt64() {
		r.refuse("arithmetic with integers beyond 64 bits")
	}
	return c.Int64()
}

func (r *run) floats(op string, x, y float64) float64 {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		r.refuse("a power of floats")
	}
	if y == 0 {
		r.wrong("division by zero")
	}
	if op == "/" {
		return x / y
	}
	rest := math.Mod(x, y)
	quotient := (x - rest) / y
	if rest != 0 && (rest < 0) != (y < 0) {
		rest += y
		quotient--
	} else if rest == 0 {
		rest = math.Copysign(0, y)
	}
	if op == "%" {
		return rest
	}
	if quotient == 0 {
		return math.Copysign(0, x/y)
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole
}

// sequences adds or repeats strings and lists.
func (r *run) sequences(op string, left, right any) any {
	if op == "*" {
		if toNumber(left) != nil {
			left, right = right, left
		}
		if n, ok := toNumber(right).(int64); ok {
			return r.repeat(left, n)
		}
	}
	a, aIs := left.(string)
	b, bIs := right.(string)
	if op == "+" && aIs && bIs {
		r.make(len(a) + len(b))
		return a + b
	}
	x, xIs := left.(*list)
	y, yIs := right.(*list)
	if op == "+" && xIs && yIs && x.kind == y.kind && x.joins() {
		r.make(valueSize * (len(x.items) + len(y.items)))
		r.step((len(x.items) + len(y.items)) / 8)
		return &list{items: slices.Concat(x.items, y.items), kind: x.kind}
	}
	r.wrong("%s %s %s", typeName(left), op, typeName(right))
	return nil
}

// joins reports whether lists of this kind can be added and repeated.
func (l *list) joins() bool { return l.kind == listKind || l.kind == tupleKind }

// addSafe adds two strings of which one is marked as safe; it escapes the other one for
// HTML. It returns nil if neither is marked.
func (r *run) addSafe(op string, left, right any) any {
	_, leftIs := left.(markup)
	_, rightIs := right.(markup)
	if !leftIs && !rightIs {
		return nil
	}
	a, aIs := r.escaped(left)
	b, bIs := r.escaped(right)
	if op != "+" || !aIs || !bIs {
		r.refuse("%s %s %s", typeName(left), op, typeName(right))
	}
	r.make(len(a) + len(b))
	return markup(a + b)
}

func (r *run) escaped(v any) (string, bool) {
	switch v := v.(type) {
	case markup:
		return string(v), true
	case string:
		pairs := []string{"&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;"}
		for i, c := range r.alphabet {
			if at := slices.Index(pairs, string(c)); at >= 0 && at%2 == 0 {
				pairs = append(pairs, string(FirstMark+rune(i)), pairs[at+1])
			}
		}
		return strings.NewReplacer(pairs...).Replace(v), true
	}
	return "", false
}

func (r *run) repeat(of any, n int64) any {
	times := func(size int) int {
		if n <= 0 || size == 0 {
			return 0
		}
		if n > maxBytes {
			r.make(maxBytes + 1)
		}
		r.make(size * int(n))
		return int(n)
	}
	switch v := of.(type) {
	case string:
		return strings.Repeat(v, times(len(v)))
	case *list:
		if v.joins() {
			return &list{items: slices.Repeat(v.items, times(valueSize*len(v.items))), kind: v.kind}
		}
	}
	r.wrong("%s * int", typeName(of))
	return nil
}
