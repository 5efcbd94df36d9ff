package schema

import "github.com/fulgurite/fulgurite/model"

// Constraint holds a reply to a grammar token by token. It implements
// model.Constraint.
type Constraint struct {
	v *Vocabulary
	m Matcher
}

// NewConstraint begins a reply. It ends where the grammar leaves no way on.
func NewConstraint(g *Grammar, v *Vocabulary) *Constraint { return &Constraint{v, g.Matcher()} }

// Allowed implements model.Constraint. After a token that was not allowed, none is.
func (c *Constraint) Allowed(set model.TokenSet) bool {
	if c.m.at != nil {
		c.m.a.mu.Lock()
		defer c.m.a.mu.Unlock()
		copy(set, c.m.a.mask(c.v, c.m.at))
	}
	return true
}

// Accept implements model.Constraint.
func (c *Constraint) Accept(token int32) (done bool) {
	switch {
	case token < 0 || int(token) >= c.v.Size():
		c.m.at = nil
	case len(c.v.bytes[token]) == 0:
		c.m.StepSpecial(token)
	default:
		for _, b := range c.v.bytes[token] {
			c.m.Step(b)
		}
	}
	return c.m.Final()
}

// Clone is a constraint of the same reply that goes on separately.
func (c *Constraint) Clone() *Constraint {
	clone := *c
	return &clone
}
