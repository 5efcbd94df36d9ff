package jinja

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// applied applies a filter, a test or a method to a value.
type applied func(r *run, v any, a actual) any

// functions holds the filters, tests and methods, which templates find by name.
type functions struct{ filterOf, testOf, methodOf map[string]applied }

// allFunctions returns the functions of all templates.
var allFunctions = sync.OnceValue(newFunctions)

func newFunctions() *functions {
	return &functions{collect(valueFilters(), collectionFilters()), collect(tests(), kinds()), collect(textMethods())}
}

// definition is a filter, a test or a method. parameters are written as [run.bind] reads
// them, and args has a value for each of them.
type definition struct {
	parameters string
	apply      func(r *run, v any, args []any) any
}

// definitions maps the names of a definition, separated by spaces, to it. Errors use the
// first name.
type definitions map[string]definition

func collect(all ...definitions) map[string]applied {
	byName := map[string]applied{}
	for _, one := range all {
		for key, d := range one {
			names, parameters := strings.Fields(key), strings.Fields(d.parameters)
			f := func(r *run, v any, a actual) any { return d.apply(r, v, r.bind(names[0], a, parameters...)) }
			if d.parameters == lazy {
				f = func(r *run, v any, a actual) any { return d.apply(r, v, []any{a}) }
			}
			for _, name := range names {
				byName[name] = f
			}
		}
	}
	return byName
}

// lazy stands in place of the parameters of a definition that reads its arguments itself:
// args then has one element, the actual.
const lazy = "…"

// filtersAndTests reads "| filter" and "is test" after an expression.
func (p *parser) filtersAndTests(e expression) expression {
	for {
		switch t := p.peek(); {
		case t.is(operator, "|"):
			e = p.filters(e)
		case t.is(name, "is"):
			p.next()
			e = p.test(t, e)
		case t.is(operator, "("):
			e = &call{t.pos, e, p.arguments()}
		default:
			return e
		}
	}
}

// filters reads filters. The first one begins after the next token.
func (p *parser) filters(e expression) expression {
	for first := true; first || p.peek().is(operator, "|"); first = false {
		p.next()
		pos, word := p.dotted()
		a := &arguments{}
		if p.peek().is(operator, "(") {
			a = p.arguments()
		}
		e = p.applied("filter", word, pos, e, p.filterOf[word], a)
	}
	return e
}

// applied returns a filter or a test with its arguments. An unknown one is an error when
// it is used, if not earlier.
func (p *parser) applied(what, word string, pos int, e expression, f applied, a *arguments) expression {
	if f == nil {
		p.unknown = append(p.unknown, newFault(ErrUnsupported, pos, "%s %s", what, word))
	}
	return code(func(r *run) any {
		v := r.value(e)
		given := r.given(a)
		r.pos = pos
		if f == nil {
			r.refuse("%s %s", what, word)
		}
		return f(r, v, given)
	})
}

// dotted reads the name of a filter or a test. No known name has a dot, but a name with
// dots is an error only if it is used.
func (p *parser) dotted() (pos int, word string) {
	t := p.expect(name, "")
	word = t.text
	for p.skip(operator, ".") {
		word += "." + p.expect(name, "").text
	}
	return t.pos, word
}

func (p *parser) test(is token, of expression) expression {
	not := p.skip(name, "not")
	_, word := p.dotted()
	a := &arguments{}
	switch next := p.peek(); {
	case next.is(operator, "("):
		a = p.arguments()
	case next.is(name, "is"):
		fail(ErrSyntax, next.pos, "one test behind another")
	case p.atOperand():
		a.positional = []expression{p.postfix(p.primary())}
	}
	e := p.applied("test", word, is.pos, of, p.testOf[word], a)
	if not {
		return negation(e)
	}
	return e
}

// atOperand reports whether the next token begins the operand of a test without brackets.
func (p *parser) atOperand() bool {
	switch t := p.peek(); t.kind {
	case name:
		return !slices.Contains([]string{"else", "or", "and"}, t.text)
	case text, integer, float:
		return true
	case operator:
		return t.text == "[" || t.text == "{"
	}
	return false
}

// tests returns the tests that compare.
func tests() definitions {
	all := definitions{
		"divisibleby": {"num", func(r *run, v any, args []any) any { return r.divides(args[0], v) }},
		"odd":         {"", func(r *run, v any, _ []any) any { return !r.divides(int64(2), v) }},
		"even":        {"", func(r *run, v any, _ []any) any { return r.divides(int64(2), v) }},
		"lower":       {"", func(r *run, v any, _ []any) any { return r.kindOf("islower", r.str(v)) }},
		"upper":       {"", func(r *run, v any, _ []any) any { return r.kindOf("isupper", r.str(v)) }},
	}
	for names, op := range map[string]string{
		"== eq equalto": "==", "!= ne": "!=", "< lt lessthan": "<", "<= le": "<=", "> gt greaterthan": ">", ">= ge": ">=", "in": "in",
	} {
		all[names] = definition{"other /", func(r *run, v any, args []any) any { return r.compare(op, v, args[0]) }}
	}
	return all
}

func (r *run) divides(by, v any) bool { return r.equal(r.arithmetic("%", v, by), int64(0)) }

// kinds returns the tests of the type of a value.
func kinds() definitions {
	all := definitions{}
	for name, is := range map[string]func(v any) bool{
		"defined":   func(v any) bool { return !isOf[*undefined](v) },
		"undefined": isOf[*undefined],
		"none":      isOf[none],
		"boolean":   isOf[bool],
		"true":      func(v any) bool { return v == any(true) },
		"false":     func(v any) bool { return v == any(false) },
		"integer":   isInteger,
		"float":     isOf[float64],
		"number":    func(v any) bool { return toNumber(v) != nil },
		"string":    func(v any) bool { return isOf[string](v) || isOf[markup](v) },
		"mapping":   isOf[*dict],
		"iterable": func(v any) bool {
			return isSequence(v) || isOf[*list](v) || isOf[*generator](v) || isOf[*loopContext](v)
		},
		"sequence": isSequence,
		"callable": func(v any) bool { return isOf[*undefined](v) || isOf[*loopContext](v) || isOf[*function](v) },
	} {
		all[name] = definition{"", func(_ *run, v any, _ []any) any { return is(v) }}
	}
	return all
}

func isOf[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isInteger(v any) bool { return isOf[int64](v) || isOf[*big.Int](v) }

func isSequence(v any) bool {
	switch v := v.(type) {
	case string, markup, *dict, *undefined:
		return true
	case *list:
		return !v.isView()
	}
	return false
}

// longestRange is the limit of Jinja's sandbox.
const longestRange = 100_000

// globalOf returns the global function of a name, or nil if there is none. Every template
// sees these functions.
func globalOf(name string) func(r *run, a actual) any {
	switch name {
	case "range":
		return (*run).newRange
	case "namespace":
		return func(r *run, a actual) any { return &namespace{*r.newDict(name, a)} }
	case "dict":
		return func(r *run, a actual) any { return r.newDict(name, a) }
	case "raise_exception":
		return func(r *run, a actual) any {
			fail(ErrRaised, r.pos, "%s", r.bare(r.str(r.bind(name, a, "message")[0])))
			return nil
		}
	case "strftime_now":
		return func(r *run, a actual) any { return r.clock(r.text(name, r.bind(name, a, "format")[0])) }
	case "lipsum", "cycler", "joiner":
		return func(r *run, _ actual) any { r.refuse("the function %s", name); return nil }
	}
	return nil
}

func (r *run) newRange(a actual) any {
	args := r.bind("range", a, "start", "stop?", "step?", "/")
	for _, v := range args {
		if u, ok := v.(*undefined); ok {
			r.undefined(u)
		}
	}
	start, stop, step := int64(0), r.whole("range", args[0], 0), r.whole("range", args[2], 1)
	if args[1] != nil {
		start, stop = stop, r.whole("range", args[1], 0)
	}
	const far = 1 << 53
	if max(start, stop, step) > far || min(start, stop, step) < -far {
		r.refuse("a range of integers beyond 53 bits")
	}
	if step == 0 {
		r.wrong("a range with step 0")
	}
	n := int64(0)
	if step > 0 && stop > start || step < 0 && stop < start {
		n = (stop-start-step/max(step, -step))/step + 1
	}
	if n > longestRange {
		r.wrong("a range of more than %d numbers", longestRange)
	}
	r.make(valueSize * int(n))
	l := &list{items: make([]any, n), kind: rangeKind, text: fmt.Sprintf("range(%d, %d", start, stop)}
	for i := range l.items {
		l.items[i] = start + int64(i)*step
	}
	if step != 1 {
		l.text += fmt.Sprintf(", %d", step)
	}
	l.text += ")"
	return l
}

// newDict makes an object from another object, or from pairs, and from named arguments.
func (r *run) newDict(what string, a actual) *dict {
	if len(a.positional) > 1 {
		r.wrong("%s gets %d arguments", what, len(a.positional))
	}
	n := &namespace{}
	put := func(key, v any) {
		if name, ok := key.(string); ok && what == "namespace" && name != "" {
			n.set(r, name, v)
			return
		}
		r.make(2 * valueSize)
		n.put(key, v)
	}
	for _, from := range a.positional {
		switch from := from.(type) {
		case *dict:
			for i, key := range from.keys {
				put(key, from.values[i])
			}
		case *namespace, *function, *loopContext:
			r.refuse("%s of a %s", what, typeName(from))
		default:
			for _, one := range r.all(from) {
				pair := r.all(one)
				if len(pair) != 2 {
					r.wrong("%s of a list whose items aren't pairs", what)
				}
				put(r.key(pair[0]), pair[1])
			}
		}
	}
	for _, one := range a.named {
		put(one.name, one.value)
	}
	return &n.dict
}

// clock formats the caller's time as Python's strftime does, with English names.
func (r *run) clock(format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			r.refuse("a time format that ends with %%")
		}
		directive := format[i : i+1]
		if directive == "-" && i+1 < len(format) {
			i++
			directive += format[i : i+1]
		}
		b.WriteString(r.clockPart(directive))
	}
	return b.String()
}

func (r *run) clockPart(directive string) string {
	layout := map[string]string{
		"d": "02", "e": "_2", "m": "01", "y": "06", "Y": "2006", "H": "15", "I": "03", "M": "04", "S": "05", "j": "002",
		"-d": "2", "-m": "1", "-M": "4", "-S": "5", "-I": "3",
		"a": "Mon", "A": "Monday", "b": "Jan", "h": "Jan", "B": "January", "p": "PM",
		"F": time.DateOnly, "T": time.TimeOnly, "R": "15:04", "D": "01/02/06",
	}[directive]
	switch {
	case layout != "":
		return r.now.Format(layout)
	case directive == "%":
		return "%"
	case directive == "z", directive == "Z":
		return "" // Python's now() has no time zone
	case directive == "-H":
		return strconv.Itoa(r.now.Hour())
	case directive == "-j":
		return strconv.Itoa(r.now.YearDay())
	case directive == "-y":
		return strconv.Itoa(r.now.Year() % 100)
	}
	r.refuse("the time directive %%%s", directive)
	return ""
}
