package jinja

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// exactFloat is the size up to which every integer is a float.
const exactFloat = 1 << 53

// toNumber gives an int64, *big.Int or float64, or nil where v is no number. A bool
// is a number in Python.
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

// arithmetic is one of + - * / // % **.
func (r *run) arithmetic(op string, left, right any) any {
	if _, is := left.(string); is && op == "%" {
		r.refuse("%% after a string")
	}
	for _, v := range []any{left, right} {
		if u, is := v.(*undefined); is {
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

// toFloat is Python's float of a number, where that is exact.
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
	fits := true
	var c int64
	switch op {
	case "+":
		c = a + b
		fits = (c > a) == (b > 0)
	case "-":
		c = a - b
		fits = (c < a) == (b > 0)
	case "*":
		c, fits = multiply(a, b)
	case "//", "%":
		return r.floor(op, a, b)
	case "/":
		if b == 0 {
			r.wrong("division by zero")
		}
		return r.toFloat(a) / r.toFloat(b)
	case "**":
		if b < 0 {
			r.refuse("a negative power")
		}
		c = 1
		for ; b > 0 && fits && c != 0; b-- {
			r.step(1)
			c, fits = multiply(c, a)
		}
	}
	if !fits {
		r.refuse("arithmetic with integers beyond 64 bits")
	}
	return c
}

func multiply(a, b int64) (product int64, fits bool) {
	if a == math.MinInt64 || b == math.MinInt64 {
		return 0, false
	}
	high, low := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	return a * b, high == 0 && low <= math.MaxInt64
}

// floor is Python's division of integers, which rounds down.
func (r *run) floor(op string, a, b int64) any {
	if b == 0 {
		r.wrong("division by zero")
	}
	if a == math.MinInt64 {
		r.refuse("arithmetic with integers beyond 64 bits")
	}
	quotient, rest := a/b, a%b
	if rest != 0 && (rest < 0) != (b < 0) {
		quotient--
		rest += b
	}
	if op == "%" {
		return rest
	}
	return quotient
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
	switch op {
	case "+":
		if joined := r.join(left, right); joined != nil {
			return joined
		}
	case "*":
		if n, is := toNumber(right).(int64); is {
			return r.repeat(left, n, right)
		}
		if n, is := toNumber(left).(int64); is {
			return r.repeat(right, n, left)
		}
	}
	r.wrong("%s %s %s", typeName(left), op, typeName(right))
	return nil
}

// addSafe adds a string to one that is marked as safe, which escapes it for HTML. It
// gives nil where none is.
func (r *run) addSafe(op string, left, right any) any {
	_, leftIs := left.(markup)
	_, rightIs := right.(markup)
	if !leftIs && !rightIs {
		return nil
	}
	a, aIs := escaped(left)
	b, bIs := escaped(right)
	if op != "+" || !aIs || !bIs {
		r.refuse("%s %s %s", typeName(left), op, typeName(right))
	}
	r.make(len(a) + len(b))
	return markup(a + b)
}

func escaped(v any) (string, bool) {
	switch v := v.(type) {
	case markup:
		return string(v), true
	case string:
		return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(v), true
	}
	return "", false
}

// join adds two of the same type; it gives nil for others.
func (r *run) join(left, right any) any {
	switch a := left.(type) {
	case string:
		if b, is := right.(string); is {
			r.make(len(a) + len(b))
			return a + b
		}
	case *list:
		if b, is := right.(*list); is {
			return &list{r.chained(a.items, b.items)}
		}
	case *tuple:
		if b, is := right.(*tuple); is {
			return &tuple{r.chained(a.items, b.items)}
		}
	}
	return nil
}

func (r *run) chained(a, b []any) []any {
	r.make(valueSize * (len(a) + len(b)))
	r.step((len(a) + len(b)) / 8)
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

func (r *run) repeat(of any, n int64, number any) any {
	times := func(size int) int {
		if n <= 0 || size == 0 {
			return 0
		}
		if n > mostBytes {
			r.make(mostBytes + 1)
		}
		r.make(size * int(n))
		return int(n)
	}
	switch v := of.(type) {
	case string:
		return strings.Repeat(v, times(len(v)))
	case *list:
		return &list{repeated(v.items, times(valueSize*len(v.items)))}
	case *tuple:
		return &tuple{repeated(v.items, times(valueSize*len(v.items)))}
	}
	r.wrong("%s * %s", typeName(of), typeName(number))
	return nil
}

func repeated(items []any, n int) []any {
	all := make([]any, 0, n*len(items))
	for range n {
		all = append(all, items...)
	}
	return all
}
