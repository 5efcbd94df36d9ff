package spec

import (
	"errors"
	"slices"
	"strings"
)

// KeySteps is the key of the number of steps. Set takes it, too, but it is not among
// SettableKeys: it may change only after a run has ended, so that the run goes on.
const KeySteps = "training.steps"

// Set returns s with new numbers for some of the keys that may change while a run is under
// way. These are the keys that only later steps read. Keys are written as in error
// messages ("loss.clip_low"). Set returns *Faults, and changes nothing, if a key can't be
// set or if the new spec would be impossible. Faults that s already had do not count, so
// that a run can continue under a release that would refuse to begin it.
func (s Spec) Set(values map[string]float64) (Spec, error) {
	s = s.WithDefaults()
	numbers, before := s.settable(), s.Validate()
	f := &Faults{}
	for _, key := range sortedKeys(values) {
		if key == KeySteps {
			s.Training.Steps, s.Training.Epochs = int(values[key]), 0
			if float64(s.Training.Steps) != values[key] {
				f.add(key, "give a whole number", "%v is not possible", values[key])
			}
			continue
		}
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

// SettableValues returns the current numbers of the keys that Set can change.
func (s Spec) SettableValues() map[string]float64 {
	s = s.WithDefaults()
	out := map[string]float64{}
	for key, number := range s.settable() {
		out[key] = number.value()
	}
	return out
}

// settable reads and changes one number of a spec.
type settable struct {
	value func() float64
	set   func(float64)
}

// newer returns the faults in after that are not in before.
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

// settable returns the keys that Set can change. It leaves out keys of optional parts that
// s does not have.
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
		// Validate refuses -1, which stands here for a number that is not whole.
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
		// WithDefaults filled in both, so neither is nil. The copies leave the caller's
		// numbers as they are.
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
