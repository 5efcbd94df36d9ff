package jinja

import "slices"

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
