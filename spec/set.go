package spec

import (
	"errors"
	"slices"
	"strings"
)

// Set returns s with other numbers for some of the keys that may change while a
// run is under way: those that only later steps read. Keys are written as in
// error messages ("loss.clip_low"). A key that can't be set and a spec that
// would then be impossible are *Faults, and nothing is changed. Faults that s had before
// do not count: a run goes on under a release that would refuse to begin it.
func (s Spec) Set(values map[string]float64) (Spec, error) {
	s = s.WithDefaults()
	numbers, before := s.settable(), s.Validate()
	f := &Faults{}
	for _, key := range sortedKeys(values) {
		number, ok := numbers[key]
		if !ok {
			f.add(key, "one of "+strings.Join(sortedKeys(numbers), ", "), "can't be set while this run is under way")
			continue
		}
		number.set(values[key])
	}
	if err := f.err(); err != nil {
		return Spec{}, err
	}
	return s, newer(before, s.Validate())
}

// SettableKeys returns the keys that Set can change in this spec, sorted.
func (s Spec) SettableKeys() []string {
	s = s.WithDefaults()
	return sortedKeys(s.settable())
}

// SettableValues are the numbers that those keys have.
func (s Spec) SettableValues() map[string]float64 {
	s = s.WithDefaults()
	out := map[string]float64{}
	for key, number := range s.settable() {
		out[key] = number.value()
	}
	return out
}

// settable is a number of a spec that Set can change.
type settable struct {
	value func() float64
	set   func(float64)
}

// newer are the faults that a spec did not have before.
func newer(before, after error) error {
	var had, has *Faults
	if !errors.As(after, &has) || !errors.As(before, &had) {
		return after
	}
	left := &Faults{Name: has.Name}
	for _, f := range has.List {
		if !slices.Contains(had.List, f) {
			left.List = append(left.List, f)
		}
	}
	return left.err()
}

// settable are the keys that Set knows. Those of parts that s does not have are not
// among them.
func (s *Spec) settable() map[string]settable {
	number := func(field *float64) settable {
		return settable{func() float64 { return *field }, func(v float64) { *field = v }}
	}
	keys := map[string]settable{
		"training.optimizer.learning_rate": number(&s.Training.Optimizer.LearningRate),
		"training.optimizer.weight_decay":  number(&s.Training.Optimizer.WeightDecay),
		"training.optimizer.clip_norm":     number(&s.Training.Optimizer.ClipNorm),
		"loss.clip_low":                    number(&s.Loss.ClipLow),
		"loss.clip_high":                   number(&s.Loss.ClipHigh),
		"loss.dual_clip":                   number(&s.Loss.DualClip),
		"loss.entropy":                     number(&s.Loss.Entropy),
		"loss.importance_cap":              number(&s.Loss.ImportanceCap),
		"loss.importance_floor":            number(&s.Loss.ImportanceFloor),
		"promotion.margin":                 number(&s.Promotion.Margin),
		"promotion.significance":           number(&s.Promotion.Significance),
		// Validate refuses what a fraction of a step becomes.
		"evaluation.every": {func() float64 { return float64(s.Evaluation.Every) }, func(v float64) {
			s.Evaluation.Every = int(v)
			if v != float64(s.Evaluation.Every) {
				s.Evaluation.Every = -1
			}
		}},
	}
	if s.Loss.KL != nil {
		keys["loss.kl.weight"] = number(&s.Loss.KL.Weight)
	}
	if c := s.Training.Curriculum; c != nil && c.Type == CurriculumBand {
		// WithDefaults made both.
		low, explore := *c.Low, *c.Explore
		c.Low, c.Explore = &low, &explore
		keys["training.curriculum.low"], keys["training.curriculum.high"] = number(c.Low), number(&c.High)
		keys["training.curriculum.explore"], keys["training.curriculum.forget"] = number(c.Explore), number(&c.Forget)
	}
	if s.Critic != nil {
		keys["critic.learning_rate"], keys["critic.clip"] = number(&s.Critic.LearningRate), number(&s.Critic.Clip)
	}
	return keys
}
