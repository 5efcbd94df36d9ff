package spec

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
)

// Digest returns a name for the content of s: "sha256:<hex>" of its JSON with all defaults
// written out. Two files that mean the same have the same digest, whatever their order,
// layout and format, and whether or not they repeat defaults. The digest is also the same
// in every release: a key that the first release did not have is left out if it has its
// default.
func Digest(s Spec) string {
	s = s.WithDefaults()
	s.Algorithm = "" // the spec contains its parts
	s = withoutNewDefaults(s)
	data, err := json.Marshal(s)
	if err != nil {
		// Only NaN and infinities can't be encoded; Validate refuses them.
		data = fmt.Appendf(nil, "%#v", s)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}

// withoutNewDefaults returns s without the keys that the first release did not write, if they
// have their defaults.
func withoutNewDefaults(s Spec) Spec {
	omitDefault(&s, func(s *Spec) *int { return &s.Model.Context })
	omitDefault(&s, func(s *Spec) *string { return &s.Sampling.History })
	omitDefault(&s, func(s *Spec) *int { return &s.Agent.Limits.MemoryBytes })
	omitDefault(&s, func(s *Spec) *float64 { return &s.Grader.Limit })
	omitDefault(&s, func(s *Spec) *int { return &s.Training.Passes })
	omitDefault(&s, func(s *Spec) *int { return &s.Training.Minibatches })
	omitDefault(&s, func(s *Spec) *string { return &s.Credit.Combine })
	omitDefault(&s, func(s *Spec) *string { return &s.Credit.Truncated })
	omitDefault(&s, func(s *Spec) *credit.Spread { return &s.Credit.Tokens })
	omitDefault(&s, func(s *Spec) *credit.Level { return &s.Credit.Whiten })
	omitDefault(&s, func(s *Spec) *float64 { return &s.Loss.ImportanceCap })
	omitDefault(&s, func(s *Spec) *credit.CorrectionKind { return &s.Loss.Correction })
	omitDefault(&s, func(s *Spec) *float64 { return &s.Promotion.ApprovalHours })
	omitDefault(&s, func(s *Spec) *float64 { return &s.Promotion.Significance })
	return s
}

// omitDefault empties a key if it has its default.
func omitDefault[T comparable](s *Spec, key func(*Spec) *T) {
	var none T
	without := *s
	*key(&without) = none
	filled := without.WithDefaults()
	if *key(&filled) == *key(s) {
		*key(s) = none
	}
}
