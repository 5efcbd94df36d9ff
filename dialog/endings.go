package dialog

import (
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// endings ends a reply at the token with which one of the texts is complete.
type endings struct {
	texts []string
	bytes func(token int32) string
	// within restricts the reply besides; it may be nil.
	within model.Constraint
	// tail is the end of the reply, long enough for any of the texts to begin in it.
	tail string
	keep int
}

func newEndings(texts []string, within model.Constraint, bytes func(token int32) string) *endings {
	e := &endings{bytes: bytes, within: within}
	for _, t := range texts {
		if t != "" {
			e.texts, e.keep = append(e.texts, t), max(e.keep, len(t)-1)
		}
	}
	return e
}

// Allowed implements model.Constraint.
func (e *endings) Allowed(set model.TokenSet) bool { return e.within != nil && e.within.Allowed(set) }

// Accept implements model.Constraint.
func (e *endings) Accept(token int32) (done bool) {
	done = e.within != nil && e.within.Accept(token)
	e.tail += e.bytes(token)
	for _, t := range e.texts {
		done = done || strings.Contains(e.tail, t)
	}
	e.tail = e.tail[max(0, len(e.tail)-e.keep):]
	return done
}
