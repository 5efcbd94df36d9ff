package jinja

func (s *plainText) exec(r *run) flow {
	r.write(s.text)
	return onward
}

func (s *output) exec(r *run) flow {
	v := r.value(s.of)
	r.pos = s.pos
	r.write(r.str(v))
	return onward
}

func (s *assignment) exec(r *run) flow {
	r.spaces(&s.target)
	v := r.value(s.value)
	r.pos = s.pos
	r.assign(&s.target, v)
	return onward
}

func (s *captureAssignment) exec(r *run) flow {
	r.enter(&s.layout)
	text, f := r.capture(s.body)
	if f != onward {
		return f
	}
	var v any = text
	if s.filtered != nil {
		r.captured = text
		v = r.value(s.filtered)
	}
	if s.target.attribute != "" {
		r.space(&s.target)
	}
	r.assign(&s.target, v)
	r.leave(&s.layout)
	return onward
}

func (s *filterBlock) exec(r *run) flow {
	r.enter(&s.layout)
	text, f := r.capture(s.body)
	if f != onward {
		return f
	}
	r.captured = text
	r.write(r.str(r.value(s.filtered)))
	r.leave(&s.layout)
	return onward
}

func (*captured) eval(r *run) any { return r.captured }

func (s *withBlock) exec(r *run) flow {
	r.enter(&s.layout)
	for i, value := range s.values {
		r.assign(&s.targets[i], r.value(value))
	}
	f := r.do(s.body)
	r.leave(&s.layout)
	return f
}

func (s *branches) exec(r *run) flow {
	for i, test := range s.tests {
		if r.truth(r.value(test)) {
			return r.do(s.bodies[i])
		}
	}
	return r.do(s.otherwise)
}

func (s *leave) exec(*run) flow { return s.flow }

func (s *macro) exec(r *run) flow {
	*r.frame.at(s.place) = &closure{s, r.frame}
	return onward
}

func (s *callBlock) exec(r *run) flow {
	body := &closure{s.body, r.frame}
	if s.of == nil {
		r.write(r.invoke(body, actual{}))
		return onward
	}
	of := r.value(s.of.of)
	a := r.given(&s.of.arguments)
	a.named = append(a.named, namedValue{"caller", body})
	r.pos = s.pos
	r.write(r.str(r.call(of, a)))
	return onward
}
