package spec

import (
	"cmp"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Values of optimizer.algorithm.
const (
	AlgorithmGEPA = "gepa"
	AlgorithmAPO  = "apo"
)

// Values of optimizer.reflector.type.
const (
	ReflectorOpenAI    = "openai"
	ReflectorAnthropic = "anthropic"
	ReflectorCommand   = "command"
	ReflectorRecorded  = "recorded"
)

// Defaults of the optimizer. Those of gepa are of the Python package gepa 0.1.4, those of
// apo of Agent Lightning 0.3.
const (
	// Texts of this length seldom occur in a good prompt by chance. Most answers that one
	// could learn by heart, such as queries, names and sentences, are longer; numbers, yes
	// and no are shorter, and a prompt needs them.
	defaultVerbatim         = 12
	defaultReflectorSeconds = 120
	defaultReflectorTokens  = 4096
	defaultShownBytes       = 60000
)

// maxSearchCount bounds the numbers of a search, whose products it computes.
const maxSearchCount = 1 << 20

// PromptOptimizer improves the texts of prompts by a search. A model, the reflector, reads
// what attempts did and writes new texts. The texts that are best on tasks.validation are
// then compared with the first ones on tasks.gate.
type PromptOptimizer struct {
	// Algorithm is the search: "gepa" (reflection on small batches of tasks, and an archive
	// of all candidates that are best at some task) or "apo" (critiques, edits and a beam).
	Algorithm string `json:"algorithm,omitempty"`
	// Budget is what the search may use at most. All three of its keys are required.
	Budget OptimizerBudget `json:"budget"`
	// Reflector is the model that reads what attempts did and writes new texts.
	Reflector Reflector `json:"reflector"`
	// Samples is the number of attempts at each task of a minibatch.
	Samples int `json:"samples,omitempty"`
	// ValidationSamples is the number of attempts at each task of tasks.validation.
	ValidationSamples int `json:"validation_samples,omitempty"`
	// Perfect is the mean reward that can't be improved.
	Perfect *float64 `json:"perfect,omitempty"`
	// Patience is how many proposals (gepa) or rounds (apo) may pass without a better
	// candidate before the search ends. Absent or 0 means that only the budget, and the
	// rounds of apo, end it.
	Patience int `json:"patience,omitempty"`
	// VerbatimAnswer is the least number of characters of a task's answer that a new text
	// may not contain. Shorter answers, such as yes or 42, are parts of many good texts.
	VerbatimAnswer int `json:"verbatim_answer,omitempty"`
	// GEPA holds the settings of algorithm "gepa".
	GEPA *GEPA `json:"gepa,omitempty"`
	// APO holds the settings of algorithm "apo".
	APO *APO `json:"apo,omitempty"`
}

// OptimizerBudget is what a search may use at most, by purpose.
type OptimizerBudget struct {
	// Minibatch is the largest number of rollouts on minibatches of tasks.train.
	Minibatch int `json:"minibatch"`
	// Validation is the largest number of rollouts on tasks.validation.
	Validation int `json:"validation"`
	// Reflections is the largest number of requests to the reflector.
	Reflections int `json:"reflections"`
}

// Reflector is the model that reads what attempts did and writes new texts.
type Reflector struct {
	// Type says what replies: "openai" and "anthropic" are servers with such an API,
	// "command" is a program, and "recorded" is a file of replies.
	Type string `json:"type"`
	// URL is the address of the server's API. Only with types "openai", whose addresses
	// have a /v1, and "anthropic".
	URL string `json:"url,omitempty"`
	// Model is the name of the model at the server. Only with types "openai" and
	// "anthropic".
	Model string `json:"model,omitempty"`
	// Key is the name of the environment variable that holds the API key. The process that
	// asks the reflector reads it. Only with types "openai" and "anthropic".
	Key string `json:"key,omitempty"`
	// Command is the program of type "command" and its arguments.
	Command []string `json:"command,omitempty"`
	// Directory is the working directory of optimizer.reflector.command. Absent means the
	// directory of the spec file.
	Directory string `json:"directory,omitempty"`
	// File is the path of the JSONL file of type "recorded".
	File string `json:"file,omitempty"`
	// Seconds is the longest time, in seconds, that one reply may take. Not with type
	// "recorded".
	Seconds float64 `json:"seconds,omitempty"`
	// MaxTokens is the largest number of tokens of one reply. Not with type "recorded".
	MaxTokens int `json:"max_tokens,omitempty"`
	// ShownBytes is the largest number of bytes of one request to the reflector. Records of
	// attempts that don't fit lose their middle.
	ShownBytes int `json:"shown_bytes,omitempty"`
}

// GEPA holds the settings of GEPA (arXiv 2507.19457).
type GEPA struct {
	// Minibatch is the number of train tasks that a reflection learns from.
	Minibatch int `json:"minibatch,omitempty"`
	// Merge combines candidates of two lineages. Absent or false means that none are.
	Merge bool `json:"merge,omitempty"`
	// Merges is the number of accepted merges after which no further one becomes due. Only
	// with optimizer.gepa.merge.
	Merges int `json:"merges,omitempty"`
	// SkipPerfect proposes nothing from a minibatch on which the parent is perfect.
	SkipPerfect *bool `json:"skip_perfect,omitempty"`
}

// APO holds the settings of APO (ProTeGi, arXiv 2305.03495).
type APO struct {
	// Beam is the number of candidates that a round keeps, and of parents in a round.
	Beam int `json:"beam,omitempty"`
	// Branch is the number of proposals from each parent of a round.
	Branch int `json:"branch,omitempty"`
	// Rounds is the number of rounds.
	Rounds int `json:"rounds,omitempty"`
	// GradientBatch is the number of train tasks that a critique is made from.
	GradientBatch int `json:"gradient_batch,omitempty"`
	// ValidationBatch is the number of validation tasks on which a round compares its
	// candidates.
	ValidationBatch int `json:"validation_batch,omitempty"`
}

func (o *PromptOptimizer) withDefaults() *PromptOptimizer {
	if o == nil {
		return nil
	}
	out := *o // the caller's copy does not change
	out.Algorithm = cmp.Or(out.Algorithm, AlgorithmGEPA)
	out.Samples = cmp.Or(out.Samples, 1)
	out.ValidationSamples = cmp.Or(out.ValidationSamples, 1)
	out.VerbatimAnswer = cmp.Or(out.VerbatimAnswer, defaultVerbatim)
	if out.Perfect == nil {
		one := 1.0
		out.Perfect = &one
	}
	out.Reflector = out.Reflector.withDefaults()
	if out.Algorithm == AlgorithmGEPA || out.GEPA != nil {
		out.GEPA = out.GEPA.withDefaults()
	}
	if out.Algorithm == AlgorithmAPO || out.APO != nil {
		out.APO = out.APO.withDefaults()
	}
	return &out
}

func (r Reflector) withDefaults() Reflector {
	if r.Type != ReflectorRecorded {
		r.Seconds = cmp.Or(r.Seconds, defaultReflectorSeconds)
		r.MaxTokens = cmp.Or(r.MaxTokens, defaultReflectorTokens)
	}
	r.ShownBytes = cmp.Or(r.ShownBytes, defaultShownBytes)
	return r
}

func (g *GEPA) withDefaults() *GEPA {
	out := *cmp.Or(g, &GEPA{})
	out.Minibatch = cmp.Or(out.Minibatch, 3)
	if out.Merge {
		out.Merges = cmp.Or(out.Merges, 5)
	}
	if out.SkipPerfect == nil {
		yes := true
		out.SkipPerfect = &yes
	}
	return &out
}

func (a *APO) withDefaults() *APO {
	out := *cmp.Or(a, &APO{})
	out.Beam = cmp.Or(out.Beam, 4)
	out.Branch = cmp.Or(out.Branch, 4)
	out.Rounds = cmp.Or(out.Rounds, 3)
	out.GradientBatch = cmp.Or(out.GradientBatch, 4)
	out.ValidationBatch = cmp.Or(out.ValidationBatch, 16)
	return &out
}

// unchanged is the reason why keys of training have no effect together with optimizer.
const unchanged = "it has no effect with optimizer, which improves prompts and trains no weights"

// checkOptimizer checks the optimizer, what it needs, and the keys of a run that trains no
// weights.
func (s Spec) checkOptimizer(f *Faults) {
	if s.Optimizer == nil {
		f.unused("tasks.validation", s.Tasks.Validation != "", "only an optimizer measures candidates there, and there is none")
		return
	}
	s.Optimizer.check(f)
	if s.Evaluation.Only != "" {
		f.unused("optimizer", true, "a run with evaluation.only evaluates one version and searches nothing")
		return
	}
	if s.Prompts == nil {
		f.add("prompts.texts", "give the texts to start from", "missing, and optimizer improves them")
	}
	if s.Tasks.Validation == "" {
		f.add("tasks.validation", "give a source of tasks that no other split has", "missing, and optimizer measures candidates there")
	}
	if s.Tasks.Gate == "" {
		f.add("tasks.gate", "give a source of tasks that no other split has",
			"missing, and the winner of the search has to beat the first texts there, by promotion.margin and at promotion.significance")
	}
	f.unused("algorithm", s.Algorithm != "", unchanged+" (the search is optimizer.algorithm)")
	f.unused("model.warm_start", s.Model.WarmStart != nil, unchanged)
	s.Training.checkUnchanged(f)
	if s.Algorithm == "" { // otherwise it set them
		s.Credit.checkUnchanged(f)
		s.Loss.checkUnchanged(f, s.Training.Lag)
	}
}

// Searchable returns *Faults if the spec describes no search for prompts.
func (s Spec) Searchable() error {
	f := &Faults{}
	if s.Optimizer == nil && len(s.Phases) == 0 {
		f.add("optimizer", "give optimizer, or use `fulgurite train SPEC`", "missing, and a run without it searches for no prompts")
	}
	return f.err()
}

func (o *PromptOptimizer) check(f *Faults) {
	f.choice("optimizer.algorithm", o.Algorithm)
	for _, purpose := range []struct {
		key   string
		value int
		unit  string
	}{
		{"minibatch", o.Budget.Minibatch, "rollouts on tasks.train"},
		{"validation", o.Budget.Validation, "rollouts on tasks.validation"},
		{"reflections", o.Budget.Reflections, "requests to the reflector"},
	} {
		key := "optimizer.budget." + purpose.key
		if purpose.value == 0 && f.bounds == nil {
			f.add(key, "give the most "+purpose.unit+" that the search may use", "missing, and a search has no other end that is certain")
			continue
		}
		f.whole(key, purpose.value, 1, 1e9)
	}
	o.Reflector.check(f)
	f.whole("optimizer.samples", o.Samples, 1, maxSamples)
	f.whole("optimizer.validation_samples", o.ValidationSamples, 1, maxSamples)
	f.number("optimizer.perfect", *o.Perfect, bounds.Between(math.Inf(-1), math.Inf(1)))
	f.whole("optimizer.patience", o.Patience, 0, 1e9)
	f.whole("optimizer.verbatim_answer", o.VerbatimAnswer, 1, 1e9)
	if g := o.GEPA; g != nil {
		f.unused("optimizer.gepa", o.Algorithm == AlgorithmAPO, `only optimizer.algorithm "gepa" has these settings`)
		f.whole("optimizer.gepa.minibatch", g.Minibatch, 1, maxSearchCount)
		if g.Merge {
			f.whole("optimizer.gepa.merges", g.Merges, 1, maxSearchCount)
		} else {
			f.unused("optimizer.gepa.merges", g.Merges != 0, "optimizer.gepa.merge is off")
		}
	}
	if a := o.APO; a != nil {
		f.unused("optimizer.apo", o.Algorithm == AlgorithmGEPA, `only optimizer.algorithm "apo" has these settings`)
		f.whole("optimizer.apo.beam", a.Beam, 1, maxSearchCount)
		f.whole("optimizer.apo.branch", a.Branch, 1, maxSearchCount)
		f.whole("optimizer.apo.rounds", a.Rounds, 1, maxSearchCount)
		f.whole("optimizer.apo.gradient_batch", a.GradientBatch, 1, maxSearchCount)
		f.whole("optimizer.apo.validation_batch", a.ValidationBatch, 1, maxSearchCount)
	}
}

func (r Reflector) check(f *Faults) {
	const at = "optimizer.reflector."
	f.whole(at+"shown_bytes", r.ShownBytes, 1000, 16<<20)
	server := r.Type == ReflectorOpenAI || r.Type == ReflectorAnthropic
	if r.Type != ReflectorRecorded {
		f.number(at+"seconds", r.Seconds, bounds.Positive(3600))
		f.whole(at+"max_tokens", r.MaxTokens, 1, 1<<20)
	}
	switch {
	case r.Type == "":
		f.add(at+"type", `give "openai" or "anthropic" for a server, "command" for a program, or "recorded" for a file of replies`, "missing")
		return
	case !server && r.Type != ReflectorCommand && r.Type != ReflectorRecorded:
		f.choice(at+"type", r.Type)
		return
	}
	if server {
		f.baseURL(at+"url", r.URL)
		if r.Model == "" {
			f.add(at+"model", "give the model's name at the server", "missing")
		}
		f.name(at+"model", r.Model)
		f.variable(at+"key", r.Key)
	} else {
		const why = `only optimizer.reflector.type "openai" and "anthropic" ask a server`
		f.unused(at+"url", r.URL != "", why)
		f.unused(at+"model", r.Model != "", why)
		f.unused(at+"key", r.Key != "", why)
	}
	if r.Type == ReflectorCommand {
		if len(r.Command) == 0 {
			f.add(at+"command", "give the program and its arguments", "missing")
		}
		f.program(at+"command", r.Command)
	} else {
		const why = `only optimizer.reflector.type "command" runs one`
		f.unused(at+"command", len(r.Command) > 0, why)
		f.unused(at+"directory", r.Directory != "", why)
	}
	if r.Type == ReflectorRecorded {
		if r.File == "" {
			f.add(at+"file", "give the path of a JSONL file of replies", "missing")
		}
		f.unused(at+"seconds", r.Seconds != 0, "recorded replies take no time")
		f.unused(at+"max_tokens", r.MaxTokens != 0, "recorded replies are as long as they are")
	} else {
		f.unused(at+"file", r.File != "", `only optimizer.reflector.type "recorded" reads one`)
	}
}

// checkUnchanged reports the keys of training that the user gave, apart from those that
// Training.check reports. A key with its default can't be told from one that is absent.
func (t Training) checkUnchanged(f *Faults) {
	standard := Training{}.withDefaults()
	f.unused("training.tasks_per_step", t.TasksPerStep != standard.TasksPerStep, unchanged)
	f.unused("training.samples_per_task", t.SamplesPerTask != standard.SamplesPerTask, unchanged)
	f.unused("training.lag", t.Lag != 0, unchanged)
	f.unused("training.dynamic_sampling", t.DynamicSampling != 0, unchanged)
	f.unused("training.passes", t.Passes != standard.Passes, unchanged)
	f.unused("training.minibatches", t.Minibatches != standard.Minibatches, unchanged)
	schedule := Training{Optimizer: Optimizer{Schedule: t.Optimizer.Schedule}}.withDefaults().Optimizer
	schedule.Schedule = standard.Optimizer.Schedule
	f.unused("training.optimizer", t.Optimizer != schedule, unchanged)
	f.unused("training.keep", t.Keep != nil, unchanged)
}

// checkUnchanged reports the keys of credit that the user gave, without the defaults that
// follow from them.
func (c Credit) checkUnchanged(f *Faults) {
	standard := Credit{}.withDefaults()
	assigned := Credit{Assignment: c.Assignment, Tokens: c.Tokens}.withDefaults()
	compared := Credit{Assignment: c.Assignment, Tokens: c.Tokens, Mean: c.Mean}.withDefaults()
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"rewards", len(c.Rewards) > 0}, {"combine", c.Combine != standard.Combine}, {"signals", len(c.Signals) > 0},
		{"overlong", c.Overlong != nil}, {"format_penalty", c.FormatPenalty != 0}, {"truncated", c.Truncated != standard.Truncated},
		{"kl_in_reward", c.KLInReward != nil}, {"train_agents", c.TrainAgents != ""},
		{"assignment", c.Assignment != standard.Assignment}, {"tokens", c.Tokens != standard.Tokens},
		{"discount", c.Discount != assigned.Discount}, {"lambda", c.Lambda != assigned.Lambda}, {"step_weight", c.StepWeight != assigned.StepWeight},
		{"judge", c.Judge != nil && c.Assignment == credit.Judge}, {"mean", c.Mean != assigned.Mean}, {"std", c.Std != compared.Std},
		{"leave_one_out", c.LeaveOneOut}, {"per_agent", c.PerAgent}, {"whiten", c.Whiten != assigned.Whiten},
	} {
		f.unused("credit."+key.name, key.given, unchanged)
	}
}

// checkUnchanged reports the keys of loss that the user gave, without the defaults that
// follow from them and from the lag.
func (l Loss) checkUnchanged(f *Faults, lag int) {
	standard := Loss{}.withDefaults(lag, 0)
	follows := Loss{Type: l.Type, Correction: l.Correction}.withDefaults(lag, 0)
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"type", l.Type != standard.Type}, {"clip_low", l.ClipLow != follows.ClipLow}, {"clip_high", l.ClipHigh != follows.ClipHigh},
		{"dual_clip", l.DualClip != 0}, {"aggregation", l.Aggregation != standard.Aggregation}, {"kl", l.KL != nil},
		{"entropy", l.Entropy != 0}, {"correction", l.Correction != standard.Correction},
		{"preference", l.Preference != nil},
		{"importance_cap", l.ImportanceCap != follows.ImportanceCap}, {"importance_floor", l.ImportanceFloor != follows.ImportanceFloor},
	} {
		f.unused("loss."+key.name, key.given, unchanged)
	}
}
