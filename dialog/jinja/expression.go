package jinja

import (
	"slices"
	"strings"
)

// tupleForm says where a tuple without brackets may stand.
type tupleForm struct {
	conditions bool     // "a if b else c" may be an item
	brackets   bool     // the tuple is in brackets, so it may be empty
	until      []string // words that end it
}

// endOfTuple says whether what comes can't be an item of a tuple.
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
	return &tupleLiteral{items}
}

func (p *parser) expression() expression {
	defer p.nest()()
	e := p.or()
	for p.peek().is(name, "if") {
		c := &conditional{pos: p.next().pos, then: e}
		c.test = p.or()
		if p.skip(name, "else") {
			c.otherwise = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() expression {
	e := p.and()
	for p.skip(name, "or") {
		e = &choice{false, e, p.and()}
	}
	return e
}

func (p *parser) and() expression {
	e := p.not()
	for p.skip(name, "and") {
		e = &choice{true, e, p.not()}
	}
	return e
}

func (p *parser) not() expression {
	if p.skip(name, "not") {
		defer p.nest()()
		return &negation{p.not()}
	}
	return p.comparison()
}

func (p *parser) comparison() expression {
	c := &comparison{pos: p.peek().pos, first: p.sum()}
	for {
		t := p.peek()
		switch {
		case t.kind == operator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text), t.is(name, "in"):
			p.next()
		case t.is(name, "not") && p.ahead().is(name, "in"):
			p.next()
			p.next()
			t.text = "not in"
		case len(c.rest) == 0:
			return c.first
		default:
			return c
		}
		c.pos = t.pos
		c.rest = append(c.rest, compared{t.text, p.sum()})
	}
}

// chain reads operands with any of the operators between, from the left.
func (p *parser) chain(operand func() expression, operators ...string) expression {
	e := operand()
	for p.peek().kind == operator && slices.Contains(operators, p.peek().text) {
		t := p.next()
		e = &binary{t.pos, t.text, e, operand()}
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
	return &concatenation{parts}
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
		e = &unary{t.pos, t.text, p.unary(false)}
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
			return &constant{true}
		case "false", "False":
			return &constant{false}
		case "none", "None":
			return &constant{none{}}
		}
		return &variable{pos: t.pos, name: t.text}
	case text:
		s := t.value.(string)
		for p.peek().kind == text {
			s += p.next().value.(string)
		}
		return &constant{s}
	case integer, float:
		return &constant{t.value}
	}
	switch {
	case t.is(operator, "("):
		e := p.tuple(tupleForm{conditions: true, brackets: true})
		p.expect(operator, ")")
		return e
	case t.is(operator, "["):
		return &listLiteral{p.list("]")}
	case t.is(operator, "{"):
		return p.dict(t)
	}
	fail(ErrSyntax, t.pos, "unexpected %s", t)
	return nil
}

func (p *parser) list(closing string) []expression {
	var items []expression
	for !p.skip(operator, closing) {
		if len(items) > 0 {
			p.expect(operator, ",")
			if p.skip(operator, closing) {
				break
			}
		}
		items = append(items, p.expression())
	}
	return items
}

func (p *parser) dict(t token) expression {
	d := &dictLiteral{pos: t.pos}
	for !p.skip(operator, "}") {
		if len(d.keys) > 0 {
			p.expect(operator, ",")
			if p.skip(operator, "}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.expect(operator, ":")
		d.values = append(d.values, p.expression())
	}
	return d
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
		return &item{dot.pos, of, &constant{t.value}}
	case t.kind != name:
		fail(ErrSyntax, t.pos, "%s where the name of an attribute is expected", t)
	case strings.HasPrefix(t.text, "__"):
		fail(ErrUnsupported, t.pos, "attribute %s", t.text)
	}
	return &attribute{dot.pos, of, t.text}
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
		return &item{t.pos, of, parts[0]}
	}
	if colons == 0 {
		fail(ErrSyntax, t.pos, "an empty subscript")
	}
	parts = append(parts, nil, nil, nil)
	return &slice{t.pos, of, parts[0], parts[1], parts[2]}
}

// filtersAndTests reads "| filter" and "is test" behind an expression.
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

// filters reads filters, of which the first begins behind the next token.
func (p *parser) filters(e expression) expression {
	for first := true; first || p.peek().is(operator, "|"); first = false {
		p.next()
		pos, word := p.dotted()
		f := &filter{pos: pos, of: e, name: word}
		f.apply = filterOf(f.name)
		if p.peek().is(operator, "(") {
			f.arguments = p.arguments()
		}
		e = f
	}
	return e
}

// dotted reads the name of a filter or a test. No known one has a dot, but names with
// dots are not an error where they aren't used.
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
	t := &test{pos: is.pos, of: of, name: word}
	t.apply = testOf(t.name)
	switch next := p.peek(); {
	case next.is(operator, "("):
		t.arguments = p.arguments()
	case next.is(name, "is"):
		fail(ErrSyntax, next.pos, "one test behind another")
	case p.atOperand():
		t.positional = []expression{p.postfix(p.primary())}
	}
	if not {
		return &negation{t}
	}
	return t
}

// atOperand says whether what comes is the operand of a test without brackets.
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

func (p *parser) arguments() arguments {
	defer p.nest()()
	var a arguments
	p.expect(operator, "(")
	for first := true; !p.skip(operator, ")"); first = false {
		if !first {
			p.expect(operator, ",")
			if p.skip(operator, ")") {
				break
			}
		}
		p.argument(&a)
	}
	return a
}

func (p *parser) argument(a *arguments) {
	t := p.peek()
	switch {
	case t.is(operator, "**"), t.is(operator, "*") && len(a.named) > 0:
		fail(ErrUnsupported, t.pos, "an argument with %s", t.text)
	case a.spread != nil:
		fail(ErrUnsupported, t.pos, "an argument behind one with *")
	case p.skip(operator, "*"):
		a.spread = p.expression()
	case t.kind == name && p.ahead().is(operator, "="):
		p.next()
		p.next()
		if slices.ContainsFunc(a.named, func(other namedArgument) bool { return other.name == t.text }) {
			fail(ErrSyntax, t.pos, "two arguments %s", t.text)
		}
		a.named = append(a.named, namedArgument{t.text, p.expression()})
	case len(a.named) > 0:
		fail(ErrSyntax, t.pos, "an argument without a name behind one that has a name")
	default:
		a.positional = append(a.positional, p.expression())
	}
}
