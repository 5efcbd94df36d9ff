package schema

// constants is the shape of the values of enum and const.
type constants []*document

func (c constants) cost([]*rule) int {
	if len(c) == 0 {
		return never
	}
	return 0
}

func (c constants) needs() []int { return nil }

func (c constants) node(a *automaton, _ int) *node {
	var options []*node
	for _, v := range c {
		options = append(options, a.constant(v))
	}
	return a.choice(options...)
}

// bareTexts returns the strings among the constants, without quotes or escapes.
func (c constants) bareTexts(a *automaton) *node {
	var options []*node
	for _, v := range c {
		if v.kind == '"' {
			options = append(options, a.literal(v.text))
		}
	}
	return a.choice(options...)
}

// constants returns the values of enum and const that the other keywords allow.
func (c *compiler) constants(f *facts) ([]shape, error) {
	own, err := c.newTexts(f)
	if err != nil && f.possible()&text != 0 {
		return nil, err
	}
	var kept constants
	for _, v := range f.values {
		if v.types()&f.types == 0 {
			continue
		}
		fits := true
		switch v.kind {
		case '0':
			fits, err = f.allow(v)
		case '"':
			fits = c.matches(own.inner, v.text)
		case '[', '{':
			err = f.untouched(v)
		}
		if err != nil {
			return nil, err
		}
		if fits {
			kept = append(kept, v)
		}
	}
	return []shape{kept}, nil
}

// untouched refuses an array or object that other keywords restrict as well.
func (f *facts) untouched(v *document) error {
	plain := true
	for _, part := range f.arrays {
		plain = plain && (v.kind == '{' || !part.closes && (part.items == nil || part.items.kind == 't') && f.size == count{0, unbounded})
	}
	for _, part := range f.objects {
		plain = plain && (v.kind == '[' || part.properties == nil && len(part.required) == 0 && (part.additional == nil || part.additional.kind == 't'))
	}
	if !plain {
		return v.refuse("enum or const has an array or object among its values, and other keywords restrict arrays or objects")
	}
	return nil
}

// matches reports whether n accepts text.
func (a *automaton) matches(n *node, text string) bool {
	for i := 0; n != nil && i < len(text); i++ {
		n = a.derive(n, int32(text[i]))
	}
	return n != nil && n.nullable
}

// constant returns the expression of one value, with its members in the order of the
// schema.
func (a *automaton) constant(v *document) *node {
	comma := a.literal("")
	parts := []*node{}
	switch v.kind {
	case '[':
		for _, item := range v.items {
			parts = append(parts, comma, a.constant(item))
			comma = a.comma()
		}
	case '{':
		for _, m := range v.members {
			parts = append(parts, comma, a.literal(spell(m.name, quoted)), a.colon(), a.constant(m.value))
			comma = a.comma()
		}
	default:
		return a.literal(v.spelled())
	}
	return a.enclose(v.kind, parts...)
}

// spelled returns a text that identifies a value: values with the same text are equal.
func (d *document) spelled() string {
	switch d.kind {
	case 'n':
		return "null"
	case 't':
		return "true"
	case 'f':
		return "false"
	case '0':
		return d.text
	case '"':
		return spell(d.text, quoted)
	}
	all := string(d.kind)
	for _, item := range d.items {
		all += item.spelled() + ","
	}
	for _, m := range d.members {
		all += spell(m.name, quoted) + ":" + m.value.spelled() + ","
	}
	return all
}

// White space: one space may follow a comma or a colon. No other white space is allowed.

func (a *automaton) comma() *node { return a.sequence(a.literal(","), a.optional(a.literal(" "))) }

func (a *automaton) colon() *node { return a.sequence(a.literal(":"), a.optional(a.literal(" "))) }

// enclose puts parts in the brackets that begin with open.
func (a *automaton) enclose(open byte, parts ...*node) *node {
	return a.sequence(a.literal(string(open)), a.sequence(parts...), a.literal(string(open+2)))
}
