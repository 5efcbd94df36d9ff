package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/prompts"
)

// maxPolicies bounds the policies of a spec.
const maxPolicies = 16

// policyName matches the names of policies.
var policyName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// reservedPolicies are the names that mean something else where a policy is named.
var reservedPolicies = map[string]string{
	"main":    "main is all policies of a run together",
	"critic":  "critic is the model that estimates returns",
	"prompts": "prompts are the texts that replace parts of requests",
}

// Policy is one of several models that a run trains. What it leaves out is as the run's own
// keys say.
type Policy struct {
	// Match lists the requests that the policy answers: those that agree with one of its
	// elements. Absent means all requests that no other policy answers. Only one policy may
	// leave it out.
	Match []PolicyMatch `json:"match,omitempty"`
	// Frozen keeps the policy as it begins. It samples, and its calls are not trained.
	Frozen bool `json:"frozen,omitempty"`
	// LoRA replaces model.lora.
	LoRA *LoRA `json:"lora,omitempty"`
	// WarmStart replaces model.warm_start.
	WarmStart *WarmStart `json:"warm_start,omitempty"`
	// Optimizer has the keys of training.optimizer that differ from it.
	Optimizer *Optimizer `json:"optimizer,omitempty"`
	// Credit has the keys of credit that differ from it. Not judge and train_agents.
	Credit *Credit `json:"credit,omitempty"`
	// Critic has the keys of critic that differ from it. Only if the credit of the policy
	// needs a critic.
	Critic *Critic `json:"critic,omitempty"`
	// Loss has the keys of loss that differ from it.
	Loss *Loss `json:"loss,omitempty"`
}

// PolicyMatch finds requests. All of its keys have to agree. Give at least one.
type PolicyMatch struct {
	// Agent is the agent's name in the base URL of the request. Absent means any.
	Agent string `json:"agent,omitempty"`
	// Model is the model that the request asks for. Absent means any.
	Model string `json:"model,omitempty"`
	// Role is the kind of message that has the text: "system", "developer" (the same) or
	// "user". Absent means "system". Only with exact or prefix.
	Role string `json:"role,omitempty"`
	// Position is the number of that message in the request, from 0. Absent means any. Only
	// with exact or prefix.
	Position *int `json:"position,omitempty"`
	// Exact is the complete text of a message as the agent sends it. Give exact or prefix or
	// neither.
	Exact string `json:"exact,omitempty"`
	// Prefix is the beginning of the text of a message as the agent sends it.
	Prefix string `json:"prefix,omitempty"`
}

// PolicyNames returns the names of the policies of the run, sorted. It is nil if the spec
// names none: the run then trains one policy, "main".
func (s Spec) PolicyNames() []string { return sortedKeys(s.Policies) }

// TrainedPolicies returns the names of those policies that are not frozen, sorted.
func (s Spec) TrainedPolicies() []string {
	return slices.DeleteFunc(s.PolicyNames(), func(name string) bool { return s.Policies[name].Frozen })
}

// FirstTask returns the ordinal of the first task of an evaluation of a policy's version on a
// split of that many tasks. Policies that are promoted alone are evaluated under the same
// step, so each has ordinals of its own; all other evaluations begin with 0.
func (s Spec) FirstTask(policy string, tasks int) int {
	if !s.Promotion.Alone {
		return 0
	}
	return max(0, slices.Index(s.TrainedPolicies(), policy)) * tasks
}

// FirstBaselineTask returns the same for the evaluation of what was promoted before, with which
// the version of a policy is compared, if no other evaluation was of these versions.
func (s Spec) FirstBaselineTask(policy string, tasks int) int {
	return s.FirstTask(policy, tasks) + len(s.TrainedPolicies())*tasks
}

// PolicyOfTask returns the policy to whose evaluation an ordinal of a task belongs, on a split of
// that many tasks, and whether that is the one by FirstBaselineTask. ok is false if the ordinal
// belongs to no evaluation of one of several policies.
func (s Spec) PolicyOfTask(task, tasks int) (policy string, baseline, ok bool) {
	names := s.TrainedPolicies()
	if !s.Promotion.Alone || task < 0 || tasks < 1 || task/tasks >= 2*len(names) {
		return "", false, false
	}
	block := task / tasks
	return names[block%len(names)], block >= len(names), true
}

// TrainedSpecs returns the spec of each policy that is trained, by ForPolicy, in the order of
// their names. It returns s itself if it names no policies.
func (s Spec) TrainedSpecs() []Spec {
	if len(s.Policies) == 0 {
		return []Spec{s}
	}
	var out []Spec
	for _, name := range s.TrainedPolicies() {
		out = append(out, s.ForPolicy(name))
	}
	return out
}

// CriticPolicies returns the names of those policies that are trained with a critic, sorted.
// only is the name of the policy of a run that trains one.
func (s Spec) CriticPolicies(only string) []string {
	names := s.TrainedPolicies()
	if len(s.Policies) == 0 {
		names = []string{only}
	}
	return slices.DeleteFunc(names, func(name string) bool { return s.ForPolicy(name).Critic == nil })
}

// HasCritic reports whether some policy is trained with a critic. s must have its defaults.
func (s Spec) HasCritic() bool {
	if len(s.Policies) == 0 {
		return s.Critic != nil
	}
	return s.anyCredit(Credit.UsesCritic)
}

// HasKLInReward reports whether the rewards of some policy contain its divergence from its
// version 0. s must have its defaults.
func (s Spec) HasKLInReward() bool {
	return s.anyCredit(func(c Credit) bool { return c.KLInReward != nil })
}

// anyCredit reports whether the credit of a policy that is trained has something. It does not
// put the specs of the policies together, which takes milliseconds, if neither the run's
// credit nor what the policies change has it.
func (s Spec) anyCredit(has func(Credit) bool) bool {
	some := has(s.Credit)
	for _, name := range s.PolicyNames() {
		some = some || s.Policies[name].Credit != nil && has(*s.Policies[name].Credit)
	}
	return some && slices.ContainsFunc(s.TrainedSpecs(), func(one Spec) bool { return has(one.Credit) })
}

// NamedRewards returns the names of the rewards that count in training, sorted: those in
// credit.rewards or, with policies, in the credit of those that are trained.
func (s Spec) NamedRewards() []string {
	var names []string
	for _, one := range s.TrainedSpecs() {
		names = append(names, sortedKeys(one.Credit.Rewards)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FailsTruncated reports whether an attempt can fail because a reply was cut off.
func (s Spec) FailsTruncated() bool {
	return slices.ContainsFunc(s.TrainedSpecs(), func(one Spec) bool { return one.Credit.Truncated == TruncatedFail })
}

// WeighsFinal reports whether the final reward counts in training.
func (s Spec) WeighsFinal() bool {
	return slices.ContainsFunc(s.TrainedSpecs(), func(one Spec) bool {
		_, ok := one.Credit.Rewards[credit.Final]
		return ok || len(one.Credit.Rewards) == 0
	})
}

// PoliciesUntrained returns the policies without the keys that only training reads.
func (s Spec) PoliciesUntrained() map[string]Policy {
	return changed(s.Policies, func(p *Policy) { p.Frozen, p.Optimizer, p.Credit, p.Critic, p.Loss = false, nil, nil, nil, nil })
}

// PoliciesOfVersion returns the policies without the keys that describe a model, for a spec
// that begins with another version.
func (s Spec) PoliciesOfVersion() map[string]Policy {
	return changed(s.Policies, func(p *Policy) { p.LoRA, p.WarmStart = nil, nil })
}

// changed returns a changed copy of policies.
func changed(policies map[string]Policy, change func(*Policy)) map[string]Policy {
	out := maps.Clone(policies)
	for _, name := range sortedKeys(policies) {
		p := policies[name]
		change(&p)
		out[name] = p
	}
	return out
}

// FlatByCredit reports whether the credit of a group has to be computed to find out whether
// the group teaches nothing, as Credit.FlatByCredit does for one policy. A group of several
// policies teaches nothing if it teaches none of them.
func (s Spec) FlatByCredit() bool {
	if len(s.Policies) == 0 {
		return s.Credit.FlatByCredit()
	}
	return !slices.ContainsFunc(s.TrainedSpecs(), func(one Spec) bool { return one.Credit.teachesFlat() != "" })
}

// ForPolicy returns the spec of one of the policies, with its defaults: it names that policy
// alone, and its keys have the values of that policy. A key of the run that has no effect with
// those of the policy is left out. A name that the spec does not have, such as that of the only
// policy, returns the spec unchanged.
func (s Spec) ForPolicy(name string) Spec {
	p, ok := s.Policies[name]
	if !ok {
		return s
	}
	s.Policies = map[string]Policy{name: p}
	s = s.WithDefaults()
	if p.LoRA != nil {
		l := *p.LoRA // the caller's copy does not change
		s.Model.LoRA = &l
	}
	if p.WarmStart != nil {
		w := *p.WarmStart
		s.Model.WarmStart = &w
	}
	overlay(&s, "training.optimizer", func(s *Spec) *Optimizer { return &s.Training.Optimizer }, p.Optimizer)
	overlay(&s, "credit", func(s *Spec) *Credit { return &s.Credit }, p.Credit)
	overlay(&s, "loss", func(s *Spec) *Loss { return &s.Loss }, p.Loss)
	overlay(&s, "critic", ownCritic, p.Critic)
	if s = s.WithDefaults(); p.Critic == nil && !s.Credit.UsesCritic() {
		s.Critic = nil // that of the run has no effect
	}
	return s
}

// ownCritic returns the critic of s, which it replaces by a copy: a spec shares it with its
// copies.
func ownCritic(s *Spec) *Critic {
	c := *cmp.Or(s.Critic, &Critic{})
	s.Critic = &c
	return s.Critic
}

// policyPath returns the part of a policy that a key of the spec is in, such as "optimizer",
// and the key without the policy, if it is one of a policy. The name of a policy may hold any
// character until it is checked, dots too.
func policyPath(key string) (part, rest string, ok bool) {
	after, ok := strings.CutPrefix(key, "policies.")
	if !ok {
		return "", "", false
	}
	for at := range after {
		if after[at] != '.' {
			continue
		}
		rest = after[at+1:]
		part, _, _ = strings.Cut(rest, ".")
		part, _, _ = strings.Cut(part, "[")
		if slices.Contains([]string{"match", "frozen", "lora", "warm_start", "optimizer", "credit", "critic", "loss"}, part) {
			return part, rest, true
		}
	}
	return "", "", false
}

// keys are those of a part of a spec, with their values in JSON.
type keys map[string]json.RawMessage

// overlay gives a part of s, which has its defaults, the keys that over has. A default of s
// is not kept, because it may be another one with these keys. So is a key of s that has no
// effect with them: a policy could not unset it. The caller's maps and pointers stay as they
// are. section is the path of the part, and part returns it.
func overlay[T any](s *Spec, section string, part func(*Spec) *T, over *T) {
	if over == nil {
		return
	}
	below, ok := keysOf(*part(s))
	above, finite := keysOf(*over)
	if !ok || !finite {
		return // NaN and infinities, which Validate refuses
	}
	with := func(k keys) Spec {
		out := *s
		*part(&out) = partOf[T](k)
		out.Policies = nil
		return out.WithDefaults()
	}
	for _, key := range sortedKeys(below) {
		less := maps.Clone(below)
		delete(less, key)
		if without := with(less); equalParts(part(&without), part(s)) {
			below = less
		}
	}
	maps.Copy(below, above)
	for _, key := range with(below).unusedKeys(section) {
		if _, own := above[key]; !own {
			delete(below, key)
		}
	}
	*part(s) = partOf[T](below)
}

func keysOf(part any) (keys, bool) {
	text, err := json.Marshal(part)
	if err != nil {
		return nil, false
	}
	var out keys
	return out, json.Unmarshal(text, &out) == nil
}

// equalParts reports whether two parts are the same in JSON.
func equalParts(a, b any) bool {
	one, err := json.Marshal(a)
	other, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(one, other)
}

func partOf[T any](k keys) (part T) {
	text, err := json.Marshal(k)
	if err == nil {
		err = json.Unmarshal(text, &part)
	}
	if err != nil {
		panic(err) // keysOf made them of such a part
	}
	return part
}

// unusedKeys returns the keys of a section that have no effect.
func (s Spec) unusedKeys(section string) []string {
	f := &Faults{}
	s.check(f)
	var out []string
	for _, fault := range f.List {
		if key, ok := strings.CutPrefix(fault.Key, section+"."); ok && fault.Message == unusedKey {
			key, _, _ = strings.Cut(key, ".")
			out = append(out, key)
		}
	}
	return out
}

// withPolicyDefaults returns the policies with their defaults. The caller's copy does not
// change.
func withPolicyDefaults(policies map[string]Policy) map[string]Policy {
	if policies == nil {
		return nil
	}
	out := map[string]Policy{}
	for _, name := range sortedKeys(policies) {
		p := policies[name]
		p.Match = slices.Clone(p.Match)
		for i := range p.Match {
			if m := &p.Match[i]; m.Role == "" && (m.Exact != "" || m.Prefix != "") {
				m.Role = string(prompts.System)
			}
		}
		if p.LoRA != nil {
			l := p.LoRA.withDefaults()
			p.LoRA = &l
		}
		if p.WarmStart != nil {
			p.WarmStart = Model{WarmStart: p.WarmStart}.withDefaults().WarmStart
		}
		out[name] = p
	}
	return out
}

// checkPolicies reports the faults of the policies, whose defaults must be filled in.
func (s Spec) checkPolicies(f *Faults) {
	if s.Policies == nil {
		return
	}
	names := s.PolicyNames()
	switch n := len(names); {
	case n < 2:
		f.add("policies", "give at least two, or leave policies out and the run trains one", "%d given", n)
	case n > maxPolicies:
		f.add("policies", fmt.Sprintf("give at most %d", maxPolicies), "%d policies", n)
		return
	}
	s.checkWithPolicies(f)
	rest, frozen := "", 0
	for _, name := range names {
		p, key := s.Policies[name], "policies."+name
		if why, reserved := reservedPolicies[name]; reserved {
			f.add(key, "give another name", "%s", why)
		} else if !policyName.MatchString(name) {
			f.add(key, "use 1 to 63 of a-z, 0-9, '_' and '-', with a letter first", "%q can't be the name of a policy", name)
		}
		switch {
		case len(p.Match) > 0:
		case rest == "":
			rest = name
		default:
			f.add(key+".match", "say which requests it answers", "missing, and policies.%s has none either: only one policy can answer all other requests", rest)
		}
		for i, m := range p.Match {
			m.check(f, fmt.Sprintf("%s.match[%d]", key, i))
			if other := s.sameMatch(names, name, i); other != "" {
				f.add(fmt.Sprintf("%s.match[%d]", key, i), "remove one, or let them differ", "it is a match of %s, and a request has one policy", other)
			}
		}
		if p.Frozen {
			frozen++
			const why = "a frozen policy is not trained"
			f.unused(key+".optimizer", p.Optimizer != nil, why)
			f.unused(key+".credit", p.Credit != nil, why)
			f.unused(key+".critic", p.Critic != nil, why)
			f.unused(key+".loss", p.Loss != nil, why)
		}
		s.checkPolicy(f, name)
	}
	if frozen == len(names) && len(names) > 0 {
		f.add("policies", "let one be trained, or leave policies out", "all of them are frozen")
	}
}

// sameMatch returns the key of the match that is the same as match i of a policy and comes
// before it, "" if there is none.
func (s Spec) sameMatch(names []string, policy string, i int) string {
	for _, other := range names {
		for k, m := range s.Policies[other].Match {
			if other == policy && k >= i {
				return ""
			}
			if m.equal(s.Policies[policy].Match[i]) {
				return fmt.Sprintf("policies.%s.match[%d]", other, k)
			}
		}
		if other == policy {
			return ""
		}
	}
	return ""
}

// equal reports whether two matches find the same requests.
func (m PolicyMatch) equal(o PolicyMatch) bool {
	for _, r := range []*string{&m.Role, &o.Role} {
		if *r == string(prompts.Developer) {
			*r = string(prompts.System)
		}
	}
	if m.Position != nil && o.Position != nil && *m.Position == *o.Position {
		o.Position = m.Position
	}
	return m == o
}

func (m PolicyMatch) check(f *Faults, key string) {
	text := m.Exact != "" || m.Prefix != ""
	if m.Agent == "" && m.Model == "" && !text {
		f.add(key, "give agent, model, exact or prefix", "it matches every request")
	}
	if m.Exact != "" && m.Prefix != "" {
		f.add(key+".prefix", "keep one of exact and prefix", "both exact and prefix")
	}
	roles := []string{string(prompts.System), string(prompts.Developer), string(prompts.User)}
	if m.Role != "" && !slices.Contains(roles, m.Role) {
		f.add(key+".role", "give "+strings.Join(roles, ", "), "unknown name %q", m.Role)
	}
	f.unused(key+".role", m.Role != "" && !text, "it is that of the text in exact or prefix")
	f.unused(key+".position", m.Position != nil && !text, "it is that of the text in exact or prefix")
	if m.Position != nil {
		f.whole(key+".position", *m.Position, 0, 1e6)
	}
}

// checkWithPolicies reports keys of the run that don't work with several policies.
func (s Spec) checkWithPolicies(f *Faults) {
	const remedy = "leave it out, or leave policies out"
	for _, key := range []struct {
		name string
		used bool
		why  string
	}{
		{"credit.train_agents", s.Credit.TrainAgents != "", "policies.NAME.match and policies.NAME.frozen say which calls are trained"},
		{"optimizer", s.Optimizer != nil, "a search trains no policy"},
		{"sampling.server.versions", s.Sampling.Server != nil && s.Sampling.Server.Versions == VersionsReload, "the server has one version at a time, and a step samples from one of each policy"},
		{"sampling.server.type", s.Sampling.Server != nil && s.Sampling.Server.Type == ServerOpenAI, "such a server has one model, which is not trained"},
	} {
		if key.used {
			f.add(key.name, remedy, "not with policies: %s", key.why)
		}
	}
}

// policyKeys are the keys of a policy by those of the run that they replace.
var policyKeys = [][2]string{{"model.lora", "lora"}, {"model.warm_start", "warm_start"}, {"training.optimizer", "optimizer"}, {"credit", "credit"}, {"critic", "critic"}, {"loss", "loss"}}

// checkPolicy reports what is wrong with the spec of a policy and not with that of the run.
func (s Spec) checkPolicy(f *Faults, name string) {
	key, p := "policies."+name, s.Policies[name]
	if p.Frozen { // checkPolicies reports them
		p.Optimizer, p.Credit, p.Critic, p.Loss = nil, nil, nil, nil
	}
	if !p.finite(f, key) {
		return
	}
	if p.Credit != nil {
		c := *p.Credit // the caller's copy does not change
		const why = "not of a single policy"
		f.unused(key+".credit.judge", c.Judge != nil, why)
		f.unused(key+".credit.train_agents", c.TrainAgents != "", why)
		if c.Assignment == credit.Judge && s.Credit.Judge == nil {
			f.add(key+".credit.assignment", `give credit.assignment "judge" and credit.judge, or another one here`, "the judge is that of the run, which has none")
			return
		}
		c.Judge, c.TrainAgents = nil, ""
		p.Credit = &c
	}
	s.Policies = map[string]Policy{name: p}
	run, one := s, s.ForPolicy(name)
	run.Policies, one.Policies = nil, nil
	var own *Faults
	if faults, ok := newer(run.Validate(), one.Validate()).(*Faults); ok { //nolint:errorlint // Validate wraps nothing
		own = faults
	}
	if own == nil {
		return
	}
	for _, fault := range own.List {
		f.List = append(f.List, ofPolicy(fault, key))
	}
}

// finite reports numbers that are not finite, by their section, and whether there are none.
func (p Policy) finite(f *Faults, key string) bool {
	all := true
	for _, section := range []struct {
		name string
		of   any
	}{{"lora", p.LoRA}, {"warm_start", p.WarmStart}, {"optimizer", p.Optimizer}, {"credit", p.Credit}, {"critic", p.Critic}, {"loss", p.Loss}} {
		if _, err := json.Marshal(section.of); err != nil {
			f.add(key+"."+section.name, "give finite numbers", "a number that is not finite")
			all = false
		}
	}
	return all
}

// ofPolicy returns a fault of the spec of a policy, whose key is given, as one of the spec of
// the run.
func ofPolicy(fault Fault, key string) Fault {
	for _, names := range policyKeys {
		if rest, ok := strings.CutPrefix(fault.Key, names[0]); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			fault.Key = key + "." + names[1] + rest
			return fault
		}
	}
	fault.Message += ", with " + key
	return fault
}
