package jinja

import (
	"slices"
	"strings"
)

// expression is a part of a template that has a value.
type expression interface {
	eval(r *run) any
}

// code is an expression as a function.
type code func(r *run) any

func (c code) eval(r *run) any { return c(r) }

func constant(v any) expression { return code(func(*run) any { return v }) }

// tupleForm describes where a tuple without brackets may stand.
type tupleForm struct {
	conditions bool     // "a if b else c" may be an item
	brackets   bool     // the tuple is in brackets, so it may be empty
	until      []string // words that end it
}

// endOfTuple reports whether the next token can't be an item of a tuple.
func (p *parser) endOfTuple(until []string) bool {
	t := p.peek()
	return t.kind == variableEnd || t.kind == blockEnd || t.is(operator, ")") ||
		t.kind == name && slices.Contains(until, t.text)
}

// tuple reads an expression, or several with commas between.
func (p *parser) tuple(form tupleForm) expression {
	var items []expression
	for !p.endOfTuple(form.until) {
		if form.conditions {
			items = append(items, p.expression())
		} else {
			items = append(items, p.or())
		}
		if !p.skip(operator, ",") {
			if len(items) == 1 {
				return items[0]
			}
			break
		}
	}
	if len(items) == 0 && !form.brackets {
		fail(ErrSyntax, p.peek().pos, "%s where an expression is expected", p.peek())
	}
	return code(func(r *run) any { return &list{items: r.values(items), kind: tupleKind} })
}

func (p *parser) expression() expression {
	defer p.nest()()
	unknown := len(p.unknown)
	e := p.or()
	for p.skip(name, "if") {
		then, test := e, p.or()
		var otherwise expression = code(func(*run) any { return &undefined{what: "the value of an if without else"} })
		if p.skip(name, "else") {
			otherwise = p.expression()
		}
		p.unknown = p.unknown[:unknown] // they are errors only when they are used
		e = code(func(r *run) any {
			if r.truth(r.value(test)) {
				return r.value(then)
			}
			return r.value(otherwise)
		})
	}
	return e
}

func (p *parser) or() expression { return p.choice("or", p.and) }

func (p *parser) and() expression { return p.choice("and", p.not) }

// choice reads "and" or "or". It has the value of one of its sides.
func (p *parser) choice(word string, side func() expression) expression {
	e := side()
	for p.skip(name, word) {
		left, right := e, side()
		e = code(func(r *run) any {
			if v := r.value(left); r.truth(v) != (word == "and") {
				return v
			}
			return r.value(right)
		})
	}
	return e
}

func (p *parser) not() expression {
	if p.skip(name, "not") {
		defer p.nest()()
		return negation(p.not())
	}
	return p.comparison()
}

func negation(of expression) expression {
	return code(func(r *run) any { return !r.truth(r.value(of)) })
}

// comparison reads a chain: 1 < x <= 3.
func (p *parser) comparison() expression {
	type compared struct {
		op string
		to expression
	}
	var rest []compared
	var pos int
	for first := p.sum(); ; {
		t := p.peek()
		switch {
		case t.kind == operator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text), t.is(name, "in"):
			p.next()
		case t.is(name, "not") && p.ahead().is(name, "in"):
			p.next()
			p.next()
			t.text = "not in"
		case len(rest) == 0:
			return first
		default:
			return code(func(r *run) any {
				left := r.value(first)
				for _, c := range rest {
					right := r.value(c.to)
					r.pos = pos
					if !r.compare(c.op, left, right) {
						return false
					}
					left = right
				}
				return true
			})
		}
		pos = t.pos
		rest = append(rest, compared{t.text, p.sum()})
	}
}

// chain reads operands with any of the operators between them, and applies these from
// left to right.
func (p *parser) chain(operand func() expression, operators ...string) expression {
	e := operand()
	for p.peek().kind == operator && slices.Contains(operators, p.peek().text) {
		t, first := p.next(), e
		second := operand()
		e = code(func(r *run) any {
			left, right := r.value(first), r.value(second)
			r.pos = t.pos
			return r.arithmetic(t.text, left, right)
		})
	}
	return e
}

func (p *parser) sum() expression { return p.chain(p.concatenation, "+", "-") }

func (p *parser) concatenation() expression {
	parts := []expression{p.product()}
	for p.skip(operator, "~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return code(func(r *run) any {
		var texts []string
		for _, part := range r.values(parts) {
			texts = append(texts, r.str(part))
		}
		return r.glue(texts, "")
	})
}

func (p *parser) product() expression { return p.chain(p.power, "*", "/", "//", "%") }

func (p *parser) power() expression {
	return p.chain(func() expression { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expression {
	defer p.nest()()
	var e expression
	if t := p.peek(); t.is(operator, "-") || t.is(operator, "+") {
		p.next()
		of := p.unary(false)
		e = code(func(r *run) any {
			v := r.value(of)
			r.pos = t.pos
			return r.signed(t.text, v)
		})
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.filtersAndTests(e)
	}
	return e
}

func (p *parser) primary() expression {
	t := p.next()
	switch t.kind {
	case name:
		switch t.text {
		case "true", "True":
			return constant(true)
		case "false", "False":
			return constant(false)
		case "none", "None":
			return constant(none{})
		}
		p.read(t)
		return code(func(r *run) any { return r.lookUp(t) })
	case text:
		s := t.value.(string)
		for p.peek().kind == text {
			s += p.next().value.(string)
		}
		return constant(s)
	case integer, float:
		return constant(t.value)
	}
	switch {
	case t.is(operator, "("):
		e := p.tuple(tupleForm{conditions: true, brackets: true})
		p.expect(operator, ")")
		return e
	case t.is(operator, "["):
		var items []expression
		for p.more(len(items), "]") {
			items = append(items, p.expression())
		}
		return code(func(r *run) any { return &list{items: r.values(items), kind: listKind} })
	case t.is(operator, "{"):
		return p.dict(t)
	}
	fail(ErrSyntax, t.pos, "unexpected %s", t)
	return nil
}

func (p *parser) dict(t token) expression {
	var keys, values []expression
	for p.more(len(keys), "}") {
		keys = append(keys, p.expression())
		p.expect(operator, ":")
		values = append(values, p.expression())
	}
	return code(func(r *run) any {
		r.make(2 * valueSize * len(keys))
		d := &dict{}
		for i := range keys {
			key, v := r.value(keys[i]), r.value(values[i])
			r.pos = t.pos
			d.put(r.key(key), v)
		}
		return d
	})
}

func (p *parser) postfix(e expression) expression {
	for {
		switch t := p.peek(); {
		case t.is(operator, "."):
			p.next()
			e = p.member(t, e)
		case t.is(operator, "["):
			p.next()
			e = p.subscript(t, e)
		case t.is(operator, "("):
			e = &call{t.pos, e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) member(dot token, of expression) expression {
	t := p.next()
	switch {
	case t.kind == integer:
		return item(dot, of, constant(t.value))
	case t.kind != name:
		fail(ErrSyntax, t.pos, "%s where the name of an attribute is expected", t)
	case strings.HasPrefix(t.text, "__"):
		fail(ErrUnsupported, t.pos, "attribute %s", t.text)
	}
	return code(func(r *run) any {
		v := r.value(of)
		r.pos = dot.pos
		return r.attribute(v, t.text)
	})
}

func item(t token, of, key expression) expression {
	return code(func(r *run) any {
		v, k := r.value(of), r.value(key)
		r.pos = t.pos
		return r.item(v, k)
	})
}

func (p *parser) subscript(t token, of expression) expression {
	parts := make([]expression, 0, 3)
	colons := 0
	for !p.peek().is(operator, "]") {
		switch {
		case p.skip(operator, ":"):
			if colons++; colons > 2 {
				fail(ErrSyntax, t.pos, "a slice has three parts at most")
			}
		case p.peek().is(operator, ","):
			fail(ErrUnsupported, p.peek().pos, "a subscript with a comma")
		case len(parts) > colons:
			fail(ErrSyntax, p.peek().pos, "%s where ] is expected", p.peek())
		default:
			for len(parts) < colons {
				parts = append(parts, nil)
			}
			parts = append(parts, p.expression())
		}
	}
	p.next()
	if colons == 0 && len(parts) == 1 {
		return item(t, of, parts[0])
	}
	if colons == 0 {
		fail(ErrSyntax, t.pos, "an empty subscript")
	}
	return code(func(r *run) any {
		v := r.value(of)
		bounds := [3]any{}
		for i, part := range parts {
			if part != nil {
				bounds[i] = r.value(part)
			}
		}
		r.pos = t.pos
		return r.slice(v, bounds)
	})
}
