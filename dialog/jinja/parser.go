package jinja

import "slices"

// deepest is how deep tags and brackets may nest in a source.
const deepest = 150

// parser makes a tree of tokens. It panics with an *Error.
type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) ahead() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	p.at = min(p.at+1, len(p.tokens)-1)
	return t
}

// skip moves on if this word or operator is next.
func (p *parser) skip(k kind, text string) bool {
	if p.peek().is(k, text) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(k kind, text string) token {
	t := p.next()
	if t.kind != k || text != "" && t.text != text {
		wanted := map[kind]string{name: "a name", blockEnd: "%}", variableEnd: "}}"}[k]
		if text != "" {
			wanted = text
		}
		fail(ErrSyntax, t.pos, "%s where %s is expected", t, wanted)
	}
	return t
}

// nest counts how deep the source nests; call what it gives on the way out.
func (p *parser) nest() func() {
	if p.depth++; p.depth > deepest {
		fail(ErrLimit, p.peek().pos, "the template nests deeper than %d", deepest)
	}
	return func() { p.depth-- }
}

// body reads statements up to a tag that begins with one of the words, whose begin
// and word it leaves behind. Without words it reads to the end of the source.
func (p *parser) body(until ...string) (block, string) {
	defer p.nest()()
	var body block
	for {
		t := p.next()
		switch t.kind {
		case data:
			body = append(body, &plainText{t.text})
		case variableBegin:
			body = append(body, &output{t.pos, p.tuple(tupleForm{conditions: true})})
			p.expect(variableEnd, "")
		case blockBegin:
			if word := p.peek(); word.kind == name && slices.Contains(until, word.text) {
				p.next()
				return body, word.text
			}
			body = append(body, p.statement()...)
			p.expect(blockEnd, "")
		default:
			if len(until) > 0 {
				fail(ErrSyntax, t.pos, "the template ends where {%% %s %%} is expected", until[len(until)-1])
			}
			return body, ""
		}
	}
}

// inside reads the end of a tag and the body behind it.
func (p *parser) inside(until ...string) (block, string) {
	p.skip(operator, ":")
	p.expect(blockEnd, "")
	return p.body(until...)
}

func (p *parser) statement() []statement {
	t := p.expect(name, "")
	switch t.text {
	case "set":
		return []statement{p.set(t)}
	case "if":
		return []statement{p.branches()}
	case "for":
		return []statement{p.loop(t)}
	case "macro":
		return []statement{p.macro(t)}
	case "call":
		return []statement{p.callBlock(t)}
	case "generation":
		body, _ := p.inside("endgeneration")
		return []statement{&callBlock{pos: t.pos, body: &macro{pos: t.pos, body: body}}}
	case "filter":
		p.at-- // a filter begins behind a word
		filtered := p.filters(&captured{})
		body, _ := p.inside("endfilter")
		return []statement{&filterBlock{filtered: filtered, body: body}}
	case "with":
		return []statement{p.with()}
	case "print":
		return p.print(t)
	case "break":
		return []statement{&leave{t.pos, breaking}}
	case "continue":
		return []statement{&leave{t.pos, continuing}}
	case "block", "extends", "include", "import", "from", "autoescape":
		fail(ErrUnsupported, t.pos, "{%% %s %%}", t.text)
	}
	fail(ErrSyntax, t.pos, "unknown tag %s", t)
	return nil
}

func (p *parser) set(t token) statement {
	to := p.target(true)
	if p.skip(operator, "=") {
		return &assignment{t.pos, to, p.tuple(tupleForm{conditions: true})}
	}
	var filtered expression
	if p.peek().is(operator, "|") {
		filtered = p.filters(&captured{})
	}
	body, _ := p.inside("endset")
	return &captureAssignment{target: to, filtered: filtered, body: body}
}

func (p *parser) branches() statement {
	s := &branches{}
	for word := "elif"; word == "elif"; {
		s.tests = append(s.tests, p.tuple(tupleForm{}))
		var body block
		if body, word = p.inside("elif", "else", "endif"); word == "else" {
			s.otherwise, _ = p.inside("endif")
		}
		s.bodies = append(s.bodies, body)
	}
	return s
}

func (p *parser) loop(t token) statement {
	s := &loop{pos: t.pos, target: p.target(false, "in")}
	p.expect(name, "in")
	s.of = p.tuple(tupleForm{until: []string{"recursive"}})
	if p.skip(name, "if") {
		s.test = p.expression()
	}
	if r := p.peek(); r.is(name, "recursive") {
		fail(ErrUnsupported, r.pos, "a recursive loop")
	}
	var word string
	if s.body, word = p.inside("endfor", "else"); word == "else" {
		s.fallback, _ = p.inside("endfor")
	}
	return s
}

func (p *parser) macro(t token) statement {
	m := &macro{pos: t.pos, name: p.expect(name, "").text}
	m.parameters = p.signature()
	m.body, _ = p.inside("endmacro")
	return m
}

// signature reads the parameters of a macro or of a call block.
func (p *parser) signature() []parameter {
	var all []parameter
	p.expect(operator, "(")
	for !p.peek().is(operator, ")") {
		if len(all) > 0 {
			p.expect(operator, ",")
		}
		t := p.expect(name, "")
		one := parameter{name: t.text}
		if t.text == "caller" || t.text == "varargs" || t.text == "kwargs" {
			fail(ErrUnsupported, t.pos, "parameter %s", t.text)
		}
		if slices.ContainsFunc(all, func(other parameter) bool { return other.name == one.name }) {
			fail(ErrSyntax, t.pos, "two parameters %s", one.name)
		}
		if p.skip(operator, "=") {
			one.fallback = p.expression()
		} else if len(all) > 0 && all[len(all)-1].fallback != nil {
			fail(ErrSyntax, t.pos, "parameter %s has no default and stands behind one that has", t.text)
		}
		all = append(all, one)
	}
	p.next()
	return all
}

func (p *parser) callBlock(t token) statement {
	m := &macro{pos: t.pos, name: "caller"}
	if p.peek().is(operator, "(") {
		m.parameters = p.signature()
	}
	of, ok := p.expression().(*call)
	if !ok {
		fail(ErrSyntax, t.pos, "{%% call %%} calls nothing")
	}
	m.body, _ = p.inside("endcall")
	return &callBlock{t.pos, of, m}
}

func (p *parser) with() statement {
	s := &withBlock{}
	for p.peek().kind != blockEnd {
		if len(s.targets) > 0 {
			p.expect(operator, ",")
		}
		s.targets = append(s.targets, p.target(false))
		p.expect(operator, "=")
		s.values = append(s.values, p.expression())
	}
	s.body, _ = p.inside("endwith")
	return s
}

func (p *parser) print(t token) []statement {
	var all []statement
	for p.peek().kind != blockEnd {
		if len(all) > 0 {
			p.expect(operator, ",")
		}
		all = append(all, &output{t.pos, p.expression()})
	}
	return all
}

// target reads what is assigned to; a comma makes it a tuple. until are words that
// end it.
func (p *parser) target(attributes bool, until ...string) target {
	whole := target{pos: p.peek().pos, tuple: true}
	for !p.endOfTuple(until) {
		whole.parts = append(whole.parts, p.onePart(attributes))
		if !p.skip(operator, ",") {
			if len(whole.parts) == 1 {
				return whole.parts[0]
			}
			break
		}
	}
	if len(whole.parts) == 0 {
		fail(ErrSyntax, whole.pos, "%s where a name is expected", p.peek())
	}
	return whole
}

func (p *parser) onePart(attributes bool) target {
	defer p.nest()()
	t := p.next()
	if t.is(operator, "(") {
		inner := p.target(false)
		p.expect(operator, ")")
		return inner
	}
	if t.kind != name || slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, t.text) {
		fail(ErrSyntax, t.pos, "can't assign to %s", t)
	}
	one := target{pos: t.pos, name: t.text}
	if attributes && p.skip(operator, ".") {
		one.attribute = p.expect(name, "").text
	}
	return one
}
