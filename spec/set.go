package spec

import "strings"

// Set returns s with other numbers for some of the keys that may change while a
// run is under way: those that only later steps read. Keys are written as in
// error messages ("loss.clip_low"). A key that can't be set and a spec that
// would then be impossible are *Faults, and nothing is changed.
func (s Spec) Set(values map[string]float64) (Spec, error) {
	s = s.WithDefaults()
	numbers := s.settable()
	f := &Faults{}
	for _, key := range sortedKeys(values) {
		number, ok := numbers[key]
		if !ok {
			f.add(key, "one of "+strings.Join(Settable(), ", "), "can't be set while a run is under way")
			continue
		}
		number(values[key])
	}
	if err := f.err(); err != nil {
		return Spec{}, err
	}
	return s, s.Validate()
}

// Settable lists the keys that Set knows, sorted.
func Settable() []string {
	return sortedKeys(new(Spec).settable())
}

func (s *Spec) settable() map[string]func(float64) {
	number := func(field *float64) func(float64) { return func(v float64) { *field = v } }
	return map[string]func(float64){
		"training.optimizer.learning_rate": number(&s.Training.Optimizer.LearningRate),
		"training.optimizer.weight_decay":  number(&s.Training.Optimizer.WeightDecay),
		"training.optimizer.clip_norm":     number(&s.Training.Optimizer.ClipNorm),
		"loss.clip_low":                    number(&s.Loss.ClipLow),
		"loss.clip_high":                   number(&s.Loss.ClipHigh),
		"promotion.margin":                 number(&s.Promotion.Margin),
		"promotion.significance":           number(&s.Promotion.Significance),
		// Validate refuses what a fraction of a step becomes.
		"evaluation.every": func(v float64) {
			s.Evaluation.Every = int(v)
			if v != float64(s.Evaluation.Every) {
				s.Evaluation.Every = -1
			}
		},
	}
}
