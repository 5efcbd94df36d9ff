package schema

import (
	"slices"
	"strconv"
)

const maxAlternatives = 512 // of anyOf, multiplied out, in one place

// conjunction lists schemas that all have to hold, in the order of their ids. The
// references in a schema of the list don't count: the schemas that it refers to are in
// the conjunction, too.
type conjunction []*document

func (c conjunction) key() string {
	var key []byte
	for _, d := range c {
		key = append(strconv.AppendInt(key, int64(d.id), 36), ' ')
	}
	return string(key)
}

func (c conjunction) and(other conjunction) conjunction {
	both := append(slices.Clone(c), other...)
	slices.SortFunc(both, func(x, y *document) int { return x.id - y.id })
	return slices.Compact(both)
}

// alternatives resolves the references and the anyOf, oneOf and allOf of a schema. A
// value satisfies the schema if it satisfies at least one of the conjunctions.
func (c *compiler) alternatives(d *document) ([]conjunction, error) {
	if known, done := c.resolved[d]; done {
		if known == nil {
			return nil, d.refuse("refers to itself without an object or array between")
		}
		return known, nil
	}
	c.resolved[d] = nil // until it is done
	found, err := c.resolve(d)
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = []conjunction{} // empty but not nil: no value satisfies the schema
	}
	c.resolved[d] = found
	return found, nil
}

func (c *compiler) resolve(d *document) ([]conjunction, error) {
	switch d.kind {
	case 't':
		return []conjunction{{}}, nil
	case 'f':
		return nil, nil
	case '{':
	default:
		return nil, d.refuse("a schema is an object or a boolean")
	}
	if not := d.member("not"); not != nil && not.allows() {
		return nil, nil
	}
	all := []conjunction{{}}
	if d.restricts() {
		all[0] = conjunction{d}
	}
	var err error
	for _, m := range d.members {
		switch m.name {
		case "$ref":
			all, err = c.refer(all, m.value)
		case "allOf", "anyOf", "oneOf":
			all, err = c.combine(all, m)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *compiler) refer(all []conjunction, reference *document) ([]conjunction, error) {
	if reference.kind != '"' {
		return nil, reference.refuse("$ref is a string")
	}
	target := c.root.at(reference.text)
	if target == nil {
		return nil, reference.refuse("$ref %q leads nowhere; only places in the same schema, as #/$defs/name, are known", reference.text)
	}
	found, err := c.alternatives(target)
	if err != nil {
		return nil, err
	}
	return c.product(all, found, reference)
}

// combine adds to the conjunctions a list of schemas. For allOf each of them has to hold,
// for anyOf and oneOf one of them.
func (c *compiler) combine(all []conjunction, m member) ([]conjunction, error) {
	list := m.value
	if list.kind != '[' || len(list.items) == 0 {
		return nil, list.refuse("want a list of schemas")
	}
	var union []conjunction
	for _, one := range list.items {
		found, err := c.alternatives(one)
		if err == nil && m.name == "allOf" {
			all, err = c.product(all, found, list)
		}
		if err != nil {
			return nil, err
		}
		union = append(union, found...)
	}
	if m.name == "allOf" {
		return all, nil
	}
	return c.product(all, distinct(union), list)
}

// product returns all pairs of two lists of alternatives, each pair as one conjunction.
// place is the schema that an error names.
func (c *compiler) product(some, others []conjunction, place *document) ([]conjunction, error) {
	if len(some)*len(others) > maxAlternatives {
		return nil, place.refuse("more than %d alternatives", maxAlternatives)
	}
	var pairs []conjunction
	for _, one := range some {
		for _, other := range others {
			if c.work += 1 + len(one) + len(other); c.work > maxWork {
				return nil, place.refuse("too much to combine")
			}
			pairs = append(pairs, one.and(other))
		}
	}
	return distinct(pairs), nil
}

func distinct(all []conjunction) []conjunction {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(c conjunction) bool {
		key := c.key()
		twice := seen[key]
		seen[key] = true
		return twice
	})
}
