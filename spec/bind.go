package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
)

// binder sets the fields of a Spec from a node, and collects the values that do not fit.
type binder struct{ faults Faults }

func (b *binder) add(line int, key, remedy, format string, args ...any) {
	b.faults.List = append(b.faults.List, Fault{Key: key, Line: line, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// bind sets target, the field of the given key. It treats an empty value in the file as an
// absent key.
func (b *binder) bind(target reflect.Value, n node, key string) {
	if n.value == nil {
		return
	}
	switch target.Kind() {
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		if target.Type().Elem().Kind() == reflect.Struct {
			b.fields(target.Elem(), n, key)
		} else {
			b.scalar(target.Elem(), n, key) // a pointer distinguishes a zero from an absent key
		}
	case reflect.Struct:
		b.fields(target, n, key)
	case reflect.Map:
		b.mapping(target, n, key)
	case reflect.Slice:
		b.list(target, n, key)
	default:
		if b.scalar(target, n, key) && target.IsZero() {
			b.zero(n, key)
		}
	}
}

func (b *binder) fields(target reflect.Value, n node, key string) {
	entries, ok := n.value.([]entry)
	if !ok {
		b.add(n.line, key, "", "%s where a mapping is expected", n.kind())
		return
	}
	var names []string
	indices := map[string]int{}
	for i := range target.NumField() {
		name := jsonName(target.Type().Field(i))
		names = append(names, name)
		indices[name] = i
	}
	for _, e := range entries {
		path := join(key, e.key)
		i, known := indices[e.key]
		if !known {
			b.unknown(e, key, names)
			continue
		}
		b.bind(target.Field(i), node{line: e.line, value: e.value.value}, path)
	}
}

// mapping binds a mapping whose keys the user chooses. All its values have one kind, which is
// a scalar or a mapping with known keys.
func (b *binder) mapping(target reflect.Value, n node, key string) {
	entries, ok := n.value.([]entry)
	if !ok {
		b.add(n.line, key, "", "%s where a mapping is expected", n.kind())
		return
	}
	bound := reflect.MakeMap(target.Type())
	for _, e := range entries {
		value := reflect.New(target.Type().Elem()).Elem()
		if value.Kind() == reflect.Struct {
			if e.value.value != nil {
				b.fields(value, node{line: e.line, value: e.value.value}, join(key, e.key))
			}
			bound.SetMapIndex(reflect.ValueOf(e.key), value)
			continue
		}
		if e.value.value == nil || b.scalar(value, node{line: e.line, value: e.value.value}, join(key, e.key)) {
			bound.SetMapIndex(reflect.ValueOf(e.key), value)
		}
	}
	target.Set(bound)
}

// expected returns what an element of a list must be, in the words of messages to users.
func expected(element reflect.Value) string {
	if element.Kind() == reflect.Struct {
		return "a mapping"
	}
	return "text"
}

func (b *binder) list(target reflect.Value, n node, key string) {
	items, ok := n.value.([]node)
	if !ok {
		b.add(n.line, key, "write [a, b]", "%s where a list is expected", n.kind())
		return
	}
	list := reflect.MakeSlice(target.Type(), len(items), len(items))
	for i, item := range items {
		path := fmt.Sprintf("%s[%d]", key, i)
		switch of := list.Index(i); {
		case item.value == nil:
			b.add(item.line, path, "remove it", "nothing where %s is expected", expected(of))
		case of.Kind() == reflect.Struct:
			b.fields(of, item, path)
		default:
			b.scalar(of, item, path)
		}
	}
	target.Set(list)
}

// scalar sets a field of text, a number, or true or false, and reports whether
// the value is of that kind.
func (b *binder) scalar(target reflect.Value, n node, key string) bool {
	var ok bool
	switch target.Kind() {
	case reflect.Interface:
		value := n.plain()
		if value != nil {
			target.Set(reflect.ValueOf(value))
		}
		return true
	case reflect.String:
		var text string
		if text, ok = n.value.(string); ok {
			target.SetString(text)
			return true
		}
		advice := "put quotes around it"
		switch n.value.(type) {
		case []node, []entry:
			advice = "write one text" // quotes would make it a text that nobody means
		}
		b.add(n.line, key, advice, "%s where text is expected", n.kind())
		return false
	case reflect.Bool:
		var yes bool
		if yes, ok = n.value.(bool); ok {
			target.SetBool(yes)
			return true
		}
		b.add(n.line, key, "give true or false", "%s where true or false is expected", n.kind())
		return false
	case reflect.Float64:
		if text, huge := n.value.(outOfRange); huge {
			b.add(n.line, key, "", "the number %s is out of range", string(text))
		} else if ok = setFloat(target, n.value); !ok {
			b.add(n.line, key, "", "%s where a number is expected", n.kind())
		}
	case reflect.Uint64:
		if ok = setUint(target, n.value); !ok {
			b.add(n.line, key, "give a whole number from 1 to 18446744073709551615", "%v is not possible", n.shown())
		}
	default:
		if ok = setInt(target, n.value); !ok {
			b.add(n.line, key, "give a whole number", "%v is not possible", n.shown())
		}
	}
	return ok
}

// zero refuses a zero that would silently become a default, or the value of the run where a
// policy has it.
func (b *binder) zero(n node, key string) {
	if name, rest, ok := policyPath(key); ok {
		b.zeroOfPolicy(n, key, name, rest)
		return
	}
	if standard, ok := defaultOf(key); ok {
		b.add(n.line, key, fmt.Sprintf("leave the key out for its default, %v", standard), "%v is not possible", n.shown())
	}
}

// zeroOfPolicy refuses a zero of a policy: rest is the key without the policy, and name is the
// first part of it.
func (b *binder) zeroOfPolicy(n node, key, name, rest string) {
	remedy := "leave the key out"
	switch name {
	case "frozen":
		return
	case "lora", "warm_start":
		standard, ok := defaultOf("model." + rest)
		if !ok {
			return
		}
		remedy += fmt.Sprintf(" for its default, %v", standard)
	case "optimizer", "credit", "critic", "loss":
		remedy += " for the value of the run"
	}
	b.add(n.line, key, remedy, "%v is not possible", n.shown())
}

// plain returns the value as JSON has it, for keys whose values may be anything.
func (n node) plain() any {
	switch v := n.value.(type) {
	case []node:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = one.plain()
		}
		return all
	case []entry:
		all := map[string]any{}
		for _, e := range v {
			all[e.key] = e.value.plain()
		}
		return all
	case outOfRange:
		return string(v)
	case int64:
		return float64(v) // as a spec that was stored and read again has it
	case uint64:
		return float64(v)
	}
	return n.value
}

// shown returns the value in the form in which messages show it.
func (n node) shown() any {
	switch v := n.value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []node, []entry:
		return n.kind()
	default:
		return v
	}
}

func setFloat(target reflect.Value, value any) bool {
	switch v := value.(type) {
	case int64:
		target.SetFloat(float64(v))
	case uint64:
		target.SetFloat(float64(v))
	case float64:
		target.SetFloat(v)
	default:
		return false
	}
	return true
}

func setUint(target reflect.Value, value any) bool {
	switch v := value.(type) {
	case int64:
		target.SetUint(uint64(v))
		return v >= 0
	case uint64:
		target.SetUint(v)
	default:
		return false
	}
	return true
}

func setInt(target reflect.Value, value any) bool {
	switch v := value.(type) {
	case int64:
		target.SetInt(v)
	case uint64:
		target.SetInt(int64(v))
		return int64(v) >= 0
	default:
		return false
	}
	return true
}

// unknown reports a key below the path parent that is not one of names.
func (b *binder) unknown(e entry, parent string, names []string) {
	f := Fault{Key: join(parent, e.key), Line: e.line, Message: "unknown key", Remedy: "known here: " + strings.Join(names, ", ")}
	if near, ok := nearest(e.key, names); ok {
		f.Remedy, f.meant = "did you mean "+near+"?", join(parent, near)
	}
	b.faults.List = append(b.faults.List, f)
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// defaultOf returns the default of key, if it has one. A key that has an effect only
// together with other keys counts as if it had that effect.
func defaultOf(key string) (any, bool) {
	v := reflect.ValueOf(exemplar())
	for part := range strings.SplitSeq(key, ".") {
		v = reflect.Indirect(v)
		if v.Kind() != reflect.Struct {
			return nil, false
		}
		found := reflect.Value{}
		for i := range v.NumField() {
			if jsonName(v.Type().Field(i)) == part {
				found = v.Field(i)
			}
		}
		if !found.IsValid() {
			return nil, false
		}
		v = found
	}
	v = reflect.Indirect(v)
	if !v.IsValid() || v.IsZero() || v.Kind() == reflect.Slice {
		return nil, false
	}
	return v.Interface(), true
}

// exemplar returns a spec with all defaults at once. Fields without a default are empty.
func exemplar() Spec {
	s := complete()
	s.Agent.Command, s.Agent.Sandbox, s.Tasks, s.Grader.Type = nil, "", Tasks{}, ""
	s.Optimizer = completeOptimizer()
	s.Optimizer.GEPA.Merge = false
	s.Training.Curriculum.Type = "" // the type of a curriculum has no default
	plain := Spec{}.WithDefaults()
	s.Credit.Assignment = plain.Credit.Assignment
	s.Loss.Aggregation, s.Loss.Length, s.Loss.Correction = plain.Loss.Aggregation, 0, plain.Loss.Correction
	s.Credit.Lambda = Credit{Tokens: credit.GAE}.withDefaults().Lambda
	return s
}

// complete returns a spec in which every key with a default has an effect.
func complete() Spec {
	return Spec{
		Model:    Model{LoRA: &LoRA{}, WarmStart: &WarmStart{}},
		Agent:    Agent{Command: []string{"-"}, Sandbox: SandboxProcess},
		Prompts:  &Prompts{},
		Tasks:    Tasks{Gate: "-", Test: "-"},
		Grader:   Grader{Type: GraderCommand, Minimum: new(float64)},
		Credit:   Credit{Assignment: credit.GiGPO, Overlong: &Overlong{}, KLInReward: &KL{}, Judge: &Judge{}},
		Loss:     Loss{Aggregation: credit.Constant, Correction: credit.MIS, KL: &KL{}, Preference: &LossPreference{}},
		Training: Training{Curriculum: &Curriculum{Type: CurriculumBand, Start: 0.2}},
		Critic:   &Critic{}, Evaluation: Evaluation{Success: new(float64)}, Budget: &Budget{},
	}.WithDefaults()
}

// completeOptimizer returns an optimizer in which every key with a default has an effect. A
// spec has either that or a training.
func completeOptimizer() *PromptOptimizer {
	return (&PromptOptimizer{GEPA: &GEPA{Merge: true}, APO: &APO{}}).withDefaults()
}

// node is a value of a spec file with the line where it begins, whether the file
// is JSON or YAML.
type node struct {
	line int
	// value is nil, bool, string, int64, uint64, float64, outOfRange, []node or []entry.
	value any
}

// entry is a key of a mapping. Keys of one mapping differ.
type entry struct {
	key   string
	line  int
	value node
}

// kind returns what kind of value n is, in the words of messages to users.
func (n node) kind() string {
	switch n.value.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case string:
		return "text"
	case int64, uint64, float64, outOfRange:
		return "a number"
	case []node:
		return "a list"
	default:
		return "a mapping"
	}
}

// syntaxFault returns the fault of a file that can't be read at all.
func syntaxFault(line int, message string) *Faults {
	return &Faults{List: []Fault{{Line: line, Message: message}}}
}

// twice returns the fault of a key that occurs a second time in its mapping.
func twice(again, first entry) *Faults {
	return syntaxFault(again.line, fmt.Sprintf("key %q is given twice, first in line %d", again.key, first.line))
}

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
		if _, _, own := policyPath(key); ok && own && values[key] == 0 {
			f.add(key, "give another number", "0 is not possible: the policy would have the value of the run")
			continue
		}
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
		"evaluation.every":                 wholeNumber(&s.Evaluation.Every),
	}
	maps.Copy(keys, s.Scheduling.settable())
	if s.Budget != nil {
		b := *s.Budget // the caller's numbers do not change
		s.Budget = &b
		keys[KeyBudgetTokens], keys[KeyBudgetCalls], keys[KeyBudgetHours] = wholeNumber(&b.Tokens), wholeNumber(&b.Calls), number(&b.Hours)
	}
	s.Policies = maps.Clone(s.Policies)
	for _, name := range sortedKeys(s.Policies) {
		p := s.Policies[name]
		o, c := *cmp.Or(p.Optimizer, &Optimizer{}), *cmp.Or(p.Critic, &Critic{}) // the caller's numbers do not change
		if p.Optimizer != nil {
			p.Optimizer = &o
		}
		if p.Critic != nil {
			p.Critic = &c
		}
		s.Policies[name] = p
		for _, own := range []struct {
			key   string
			field *float64
		}{
			{"optimizer.learning_rate", &o.LearningRate}, {"optimizer.weight_decay", &o.WeightDecay}, {"optimizer.clip_norm", &o.ClipNorm},
			{"critic.learning_rate", &c.LearningRate}, {"critic.clip", &c.Clip},
		} {
			if *own.field != 0 { // without it, that of the run counts
				keys["policies."+name+"."+own.key] = number(own.field)
			}
		}
	}
	if s.Loss.KL != nil {
		keys["loss.kl.weight"] = number(&s.Loss.KL.Weight)
	}
	if s.Loss.Preference != nil {
		keys["loss.preference.beta"] = number(&s.Loss.Preference.Beta)
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

// wholeNumber returns a field for whole numbers as a settable one. Validate refuses -1, which
// stands here for a number that is not whole.
func wholeNumber(field *int) settable {
	return settable{func() float64 { return float64(*field) }, func(v float64) {
		*field = int(v)
		if v != float64(*field) {
			*field = -1
		}
	}}
}

// outOfRange is a number, as the file writes it, that no field can hold.
type outOfRange string

// number returns a decimal number as the first of int64, uint64 and float64 that can hold
// it. How a number is written does not matter: 1e3 and 1000.0 are 1000, so that a key for
// whole numbers takes them too. A number whose float64 would be infinite, or zero where the
// number is not, is outOfRange.
func number(text string) any {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f == 0 && strings.ContainsAny(mantissa(text), "123456789") {
		return outOfRange(text)
	}
	if f == 0 {
		return int64(0)
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<64 {
		return f
	}
	// A float64 has 53 bits, so the digits themselves are read. There are few, because of
	// the bound above.
	exact, ok := new(big.Rat).SetString(strings.TrimPrefix(text, "+"))
	if !ok || !exact.IsInt() {
		return f
	}
	switch whole := exact.Num(); {
	case whole.IsInt64():
		return whole.Int64()
	case whole.IsUint64():
		return whole.Uint64()
	}
	return f
}

// mantissa returns the digits of a number without its power of ten.
func mantissa(text string) string {
	digits, _, _ := strings.Cut(strings.ToLower(text), "e")
	return digits
}
