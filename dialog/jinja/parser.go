package jinja

import "slices"

// deepest is how deep tags and brackets may nest in a source.
const deepest = 150

// parser turns tokens into statements. It panics with a *fault.
type parser struct {
	*functions
	tokens   []token
	at       int
	depth    int
	scope    *names   // of the body that is read
	scopes   []*names // all of the template
	mentions []mention
	unknown  []*fault // unknown filters and tests; Python allows them in some places
	loose    []loose
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) ahead() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	p.at = min(p.at+1, len(p.tokens)-1)
	return t
}

// skip steps over the next token if it is this word or operator, and reports whether it
// was.
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

// more reports whether a list has another item. If not, it skips the closing bracket. n
// is the number of items that were read; it expects a comma before each item but the
// first.
func (p *parser) more(n int, closing string) bool {
	if p.skip(operator, closing) {
		return false
	}
	if n > 0 {
		p.expect(operator, ",")
		return !p.skip(operator, closing)
	}
	return true
}

// nest counts how deep the source nests. The caller has to call the returned function
// when it leaves this level.
func (p *parser) nest() func() {
	if p.depth++; p.depth > deepest {
		fail(ErrLimit, p.peek().pos, "the template nests deeper than %d", deepest)
	}
	return func() { p.depth-- }
}

// body reads statements up to a tag that begins with one of the words. It steps over the
// beginning of that tag and the word, and returns the word. Without words it reads to the
// end of the source.
func (p *parser) body(until ...string) (block, string) {
	defer p.nest()()
	var body block
	for {
		t := p.next()
		switch t.kind {
		case data:
			body = append(body, func(r *run) flow { r.write(t.text); return onward })
		case variableBegin:
			body = append(body, output(t.pos, p.tuple(tupleForm{conditions: true})))
			p.expect(variableEnd, "")
		case blockBegin:
			if word := p.peek(); word.kind == name && slices.Contains(until, word.text) {
				p.next()
				return body, word.text
			}
			body = append(body, p.statement())
			p.expect(blockEnd, "")
		default:
			if len(until) > 0 {
				fail(ErrSyntax, t.pos, "the template ends where {%% %s %%} is expected", until[len(until)-1])
			}
			return body, ""
		}
	}
}

// inside reads the end of a tag and the body after it.
func (p *parser) inside(until ...string) (block, string) {
	p.skip(operator, ":")
	p.expect(blockEnd, "")
	return p.body(until...)
}

// scoped works like inside, for a body with its own variables.
func (p *parser) scoped(n *names, until ...string) (block, string) {
	outside, unknown := p.scope, len(p.unknown)
	p.scope = n
	body, word := p.inside(until...)
	p.scope = outside
	p.refuse(unknown)
	return body, word
}

func (p *parser) statement() statement {
	t := p.expect(name, "")
	switch t.text {
	case "set":
		return p.set(t)
	case "if":
		return p.branches()
	case "for":
		return p.loop(t)
	case "macro":
		return p.macro(t)
	case "call":
		return p.callBlock(t)
	case "generation":
		m := &macro{names: p.names()}
		m.names.inLoop, m.names.function = false, true
		m.body, _ = p.scoped(m.names, "endgeneration")
		return func(r *run) flow { r.write(r.invoke(m, r.scope, actual{})); return onward }
	case "filter":
		return p.filterBlock()
	case "with":
		return p.with()
	case "print":
		return p.print(t)
	case "break", "continue":
		if !p.scope.inLoop {
			fail(ErrSyntax, t.pos, "there is no loop to leave or to continue")
		}
		f := map[string]flow{"break": breaking, "continue": continuing}[t.text]
		return func(*run) flow { return f }
	case "block", "extends", "include", "import", "from", "autoescape":
		fail(ErrUnsupported, t.pos, "{%% %s %%}", t.text)
	}
	fail(ErrSyntax, t.pos, "unknown tag %s", t)
	return nil
}

func output(pos int, e expression) statement {
	return func(r *run) flow {
		v := r.value(e)
		r.pos = pos
		r.write(r.str(v))
		return onward
	}
}

func (p *parser) print(t token) statement {
	var all block
	for p.peek().kind != blockEnd {
		if len(all) > 0 {
			p.expect(operator, ",")
		}
		all = append(all, output(t.pos, p.expression()))
	}
	return all.run
}

func (p *parser) set(t token) statement {
	to := p.target(true)
	if p.skip(operator, "=") {
		value := p.tuple(tupleForm{conditions: true})
		p.scope.assign(&to)
		return func(r *run) flow {
			r.spaces(&to)
			v := r.value(value)
			r.pos = t.pos
			r.assign(&to, v)
			return onward
		}
	}
	p.scope.assign(&to)
	n := p.names()
	unknown := len(p.unknown)
	filtered := expression(captured())
	if p.peek().is(operator, "|") {
		outside := p.scope
		p.scope = &names{outer: n} // Python looks no name up for these filters
		filtered = p.filters(filtered)
		p.scope = outside
	}
	p.refuse(unknown)
	body, _ := p.scoped(n, "endset")
	return func(r *run) flow {
		var v any
		f := r.filtered(n, body, filtered, func(text any) { v = text })
		if f == onward {
			r.spaces(&to)
			r.assign(&to, v)
		}
		return f
	}
}

// captured returns the text of a block, to which filters are applied.
func captured() code { return func(r *run) any { return r.captured } }

func (p *parser) filterBlock() statement {
	p.at-- // filters expects a token before the first filter
	unknown := len(p.unknown)
	filtered := p.filters(captured())
	p.refuse(unknown)
	n := p.names()
	body, _ := p.scoped(n, "endfilter")
	return func(r *run) flow {
		return r.filtered(n, body, filtered, func(v any) { r.write(r.str(v)) })
	}
}

// filtered runs a body, applies the filters to its text, and calls use with the result.
func (r *run) filtered(n *names, body block, filters expression, use func(any)) flow {
	var text string
	var f flow
	r.within(n, func() {
		if text, f = r.capture(body); f == onward {
			r.captured = text
			v := r.value(filters)
			use(v)
		}
	})
	return f
}

func (p *parser) branches() statement {
	type branch struct {
		test expression
		body block
	}
	unknown := len(p.unknown)
	p.scope.conditional++
	var all []branch
	var otherwise block
	for word := "elif"; word == "elif"; {
		one := branch{test: p.tuple(tupleForm{})}
		if one.body, word = p.inside("elif", "else", "endif"); word == "else" {
			otherwise, _ = p.inside("endif")
		}
		all = append(all, one)
	}
	p.scope.conditional--
	p.unknown = p.unknown[:unknown] // they are errors only when they are used
	return func(r *run) flow {
		for _, one := range all {
			if r.truth(r.value(one.test)) {
				return one.body.run(r)
			}
		}
		return otherwise.run(r)
	}
}

func (p *parser) with() statement {
	var targets []target
	var values []expression
	n := p.names()
	for p.peek().kind != blockEnd {
		if len(targets) > 0 {
			p.expect(operator, ",")
		}
		targets = append(targets, p.target(false))
		n.assign(&targets[len(targets)-1])
		n.give(&targets[len(targets)-1])
		p.expect(operator, "=")
		values = append(values, p.expression())
	}
	body, _ := p.scoped(n, "endwith")
	return func(r *run) (f flow) {
		given := r.values(values)
		r.within(n, func() {
			for i := range targets {
				r.assign(&targets[i], given[i])
			}
			f = body.run(r)
		})
		return f
	}
}

// target is the left side of an assignment: a variable, an attribute of a namespace or, with
// parts, a tuple of targets.
type target struct {
	pos       int
	name      string
	attribute string
	tuple     bool
	parts     []target
}

// target reads the left side of an assignment; a comma makes it a tuple. until has the
// words that end it.
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
	p.mentions = append(p.mentions, mention{t.text, one.attribute == ""})
	return one
}
