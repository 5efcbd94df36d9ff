package schema

import (
	"encoding/json"
)

// Grammar is a set of texts. It is safe for concurrent use.
type Grammar struct {
	*automaton
	start *node
}

// Compile returns the grammar of the JSON values that satisfy a schema.
func Compile(schema json.RawMessage) (*Grammar, error) {
	b := NewBuilder()
	e, err := b.Value(schema)
	if err != nil {
		return nil, err
	}
	return b.Grammar(e), nil
}

// Matcher returns a matcher at the beginning of a text. Copies of a matcher are
// independent of it.
func (g *Grammar) Matcher() Matcher { return Matcher{g.automaton, g.start} }

// Matcher follows one text through a grammar, byte by byte. Its copies are cheap.
// It is not safe for concurrent use.
type Matcher struct {
	a  *automaton
	at *node // nil once the text has left the grammar
}

// Allowed returns the bytes that may come next. After any of them the text can be
// completed.
func (m *Matcher) Allowed() ByteSet {
	var s ByteSet
	if m.at != nil {
		m.a.mu.Lock()
		defer m.a.mu.Unlock()
		m.a.first(m.at, &s)
	}
	return s
}

// Step reads the next byte and reports whether it was allowed. After a byte that was not
// allowed, no byte is.
func (m *Matcher) Step(b byte) bool { return m.step(func() *node { return m.a.take(m.at, b) }) }

// StepSpecial takes a special token, as Step does a byte.
func (m *Matcher) StepSpecial(token int32) bool {
	return m.step(func() *node { return m.a.derive(m.at, specialSymbol(token)) })
}

func (m *Matcher) step(to func() *node) bool {
	if m.at != nil {
		m.a.mu.Lock()
		defer m.a.mu.Unlock()
		m.at = to()
	}
	return m.at != nil
}

// Complete reports whether the text may end here.
func (m *Matcher) Complete() bool { return m.at != nil && m.at.nullable }

// Final reports whether the text has to end here.
func (m *Matcher) Final() bool { return m.at != nil && m.at.kind == empty }
