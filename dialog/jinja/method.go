package jinja

// method calls a method.
func (r *run) method(m *method, a actual) any {
	r.step(1)
	switch of := m.of.(type) {
	case string:
		return r.textMethod(of, m.name, a)
	case markup:
		r.refuse("method %s of a string that is marked as safe", m.name)
	case *dict:
		return r.dictMethod(of, m.name, a)
	case *list:
		return r.listMethod(of.items, m.name, a)
	case *tuple:
		return r.listMethod(of.items, m.name, a)
	}
	r.refuse("method %s of a %s", m.name, typeName(m.of))
	return nil
}

func (r *run) dictMethod(d *dict, name string, a actual) any {
	if name != "get" {
		r.bindPositional(name, a)
		return &view{d, name}
	}
	args := r.bindPositional(name, a, "key", "default?")
	if r.hasKey(d, args[0]) {
		key, _ := keyOf(args[0])
		v, _ := d.get(key)
		return v
	}
	if args[1] == nil {
		return none{}
	}
	return args[1]
}

func (r *run) listMethod(items []any, name string, a actual) any {
	v := r.bindPositional(name, a, "value")[0]
	n := int64(0)
	for i, one := range items {
		if !r.equal(one, v) {
			continue
		}
		if name == "index" {
			return int64(i)
		}
		n++
	}
	if name == "index" {
		r.wrong("the value is not in the list")
	}
	return n
}
