package jinja

import "strings"

func (e *constant) eval(*run) any { return e.value }

func (e *tupleLiteral) eval(r *run) any { return &tuple{r.values(e.items)} }

func (e *listLiteral) eval(r *run) any { return &list{r.values(e.items)} }

func (r *run) values(all []expression) []any {
	r.make(valueSize * len(all))
	values := make([]any, len(all))
	for i, e := range all {
		values[i] = r.value(e)
	}
	return values
}

func (e *dictLiteral) eval(r *run) any {
	r.make(2 * valueSize * len(e.keys))
	d := &dict{}
	for i := range e.keys {
		key := r.value(e.keys[i])
		v := r.value(e.values[i])
		r.pos = e.pos
		d.put(r.key(key), v)
	}
	return d
}

// key is the key of an object that a template makes.
func (r *run) key(v any) any {
	switch v := v.(type) {
	case string, int64:
		return v
	case *list, *dict:
		r.wrong("a %s can't be a key", typeName(v))
	}
	r.refuse("a %s as a key", typeName(v))
	return nil
}

func (e *negation) eval(r *run) any { return !r.truth(r.value(e.of)) }

func (e *choice) eval(r *run) any {
	if left := r.value(e.left); r.truth(left) != e.and {
		return left
	}
	return r.value(e.right)
}

func (e *conditional) eval(r *run) any {
	if r.truth(r.value(e.test)) {
		return r.value(e.then)
	}
	if e.otherwise == nil {
		return &undefined{what: "the value of an if without else"}
	}
	return r.value(e.otherwise)
}

func (e *concatenation) eval(r *run) any {
	parts := make([]any, len(e.parts))
	for i, part := range e.parts {
		parts[i] = r.value(part)
	}
	var b strings.Builder
	for _, part := range parts {
		s := r.str(part)
		r.make(len(s))
		b.WriteString(s)
	}
	return b.String()
}

func (e *unary) eval(r *run) any {
	v := r.value(e.of)
	r.pos = e.pos
	if u, is := v.(*undefined); is {
		r.undefined(u)
	}
	switch n := toNumber(v).(type) {
	case int64:
		if e.op == "+" {
			return n
		}
		return r.integers("-", 0, n)
	case float64:
		if e.op == "-" {
			n = -n
		}
		return n
	case nil:
		r.wrong("%s before a %s", e.op, typeName(v))
	default:
		r.refuse("arithmetic with integers beyond 64 bits")
	}
	return nil
}

func (e *binary) eval(r *run) any {
	left := r.value(e.left)
	right := r.value(e.right)
	r.pos = e.pos
	return r.arithmetic(e.op, left, right)
}

func (e *comparison) eval(r *run) any {
	left := r.value(e.first)
	for _, c := range e.rest {
		right := r.value(c.to)
		r.pos = e.pos
		if !r.compare(c.op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (e *attribute) eval(r *run) any {
	of := r.value(e.of)
	r.pos = e.pos
	return r.attribute(of, e.name)
}

func (e *item) eval(r *run) any {
	of := r.value(e.of)
	key := r.value(e.key)
	r.pos = e.pos
	return r.item(of, key)
}

func (e *slice) eval(r *run) any {
	of := r.value(e.of)
	bounds := [3]any{}
	for i, bound := range []expression{e.from, e.to, e.step} {
		if bound != nil {
			bounds[i] = r.value(bound)
		}
	}
	r.pos = e.pos
	return r.slice(of, bounds)
}

func (e *call) eval(r *run) any {
	of := r.value(e.of)
	a := r.given(&e.arguments)
	r.pos = e.pos
	return r.call(of, a)
}

func (e *filter) eval(r *run) any {
	of := r.value(e.of)
	a := r.given(&e.arguments)
	r.pos = e.pos
	if e.apply == nil {
		r.refuse("filter %s", e.name)
	}
	return e.apply(r, of, a)
}

func (e *test) eval(r *run) any {
	of := r.value(e.of)
	a := r.given(&e.arguments)
	r.pos = e.pos
	if e.apply == nil {
		r.refuse("test %s", e.name)
	}
	return e.apply(r, of, a)
}

// undefined reports that something was done with what has no value.
func (r *run) undefined(u *undefined) {
	if u.unsafe {
		r.wrong("the sandbox hides %s", u.what)
	}
	r.wrong("%s is undefined", u.what)
}

// call calls what can be called.
func (r *run) call(of any, a actual) any {
	switch of := of.(type) {
	case *closure:
		return r.invoke(of, a)
	case *method:
		if c, is := of.of.(*loopContext); is {
			return r.loopMethod(c, of.name, a)
		}
		return r.method(of, a)
	case *builtin:
		return r.builtin(of.name, a)
	case *undefined:
		r.undefined(of)
	case *loopContext:
		r.refuse("a call of loop")
	}
	r.wrong("a %s can't be called", typeName(of))
	return nil
}
