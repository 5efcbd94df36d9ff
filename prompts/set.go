package prompts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Set is what requests are rewritten with: prompts, and the rules that name them. It never
// changes. The zero value rewrites nothing.
type Set struct {
	prompts Prompts
	rules   []Rule
}

// Format is the format of an encoded set.
const Format = "fulgurite.prompts/1"

// setJSON is the JSON of a set.
type setJSON struct {
	Format  string  `json:"format"`
	Prompts Prompts `json:"prompts"`
	Rules   []Rule  `json:"rules"`
}

// NewSet returns a set. The error is an *Error that lists all faults of the rules.
func NewSet(p Prompts, rules []Rule) (Set, error) {
	if err := asError(RuleFaults(rules, p.Names())); err != nil {
		return Set{}, err
	}
	return Set{p, cloneRules(rules)}, nil
}

func cloneRules(rules []Rule) []Rule {
	out := slices.Clone(rules)
	for i := range out {
		if at := out[i].Match.Position; at != nil {
			n := *at
			out[i].Match.Position = &n
		}
	}
	return out
}

// Prompts returns the prompts of the set.
func (s Set) Prompts() Prompts { return s.prompts }

// Rules returns the rules, in the order in which they are tried.
func (s Set) Rules() []Rule { return cloneRules(s.rules) }

// Empty reports whether the set has no prompts.
func (s Set) Empty() bool { return len(s.prompts.byName) == 0 }

// ByModel reports whether a rule depends on the model that a request asks for.
func (s Set) ByModel() bool {
	return slices.ContainsFunc(s.rules, func(r Rule) bool { return r.Match.Model != "" })
}

// Encode returns the canonical JSON of the set, of which Digest is the digest. Equal sets
// have equal bytes.
func (s Set) Encode() []byte {
	rules := s.rules
	if rules == nil {
		rules = []Rule{}
	}
	data, err := json.Marshal(setJSON{Format, s.prompts, rules})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return data
}

// Digest returns "sha256:" and the hex digest of Encode. It is the name of the set's
// content in the terms of attempts.
func (s Set) Digest() string { return digestOf(json.RawMessage(s.Encode())) }

// Decode reads what Encode returned. It refuses unknown fields and sets with faults.
func Decode(data []byte) (Set, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var encoded setJSON
	if err := d.Decode(&encoded); err != nil {
		return Set{}, fmt.Errorf("decode prompts: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Set{}, errors.New("decode prompts: there is more after the end")
	}
	if encoded.Format != Format {
		return Set{}, fmt.Errorf("decode prompts: the format is %q: want %q", encoded.Format, Format)
	}
	s, err := NewSet(encoded.Prompts, encoded.Rules)
	if err != nil {
		return s, fmt.Errorf("decode prompts: %w", err)
	}
	return s, nil
}
