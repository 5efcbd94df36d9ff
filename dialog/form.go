package dialog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
)

// ErrForm is wrapped by errors about forms that a codec does not support.
var ErrForm = errors.New("unsupported form")

// constrain makes the constraint that holds a reply to a form. If the form masks, grammar
// is built over the tokens of v. The form's stop texts end a reply in its content.
// content returns, for each token of the reply, its bytes that are content.
func constrain(form model.Form, grammar func(*schema.Builder) (schema.Expression, error), v func() *schema.Vocabulary,
	content func(token int32) string) (model.Constraint, error) {
	var within model.Constraint
	if form.Masks() {
		b := schema.NewBuilder()
		e, err := grammar(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		within = schema.NewConstraint(b.Grammar(e), v())
		if len(form.Stop) == 0 {
			return within, nil
		}
	}
	return newEndings(form.Stop, within, content), nil
}

// replies returns the grammar of a form that masks: texts by the schema, calls, or either
// of them if the form has a schema and tools.
func replies(b *schema.Builder, form model.Form, calls func() (schema.Expression, error)) (schema.Expression, error) {
	var all []schema.Expression
	if !form.Call {
		text, err := b.Reply(form.Schema)
		if err != nil {
			return schema.Expression{}, fmt.Errorf("schema: %w", err)
		}
		all = append(all, text)
	}
	if form.Call || len(form.Tools) > 0 {
		call, err := calls()
		if err != nil {
			return schema.Expression{}, err
		}
		all = append(all, call)
	}
	return b.Choice(all...), nil
}

// endings ends a reply at the token with which one of the texts is complete.
type endings struct {
	texts []string
	bytes func(token int32) string
	// within is a further restriction of the reply; it may be nil.
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
