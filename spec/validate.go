package spec

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Names that decide which other keys have an effect.
const (
	EngineNative     = "native"
	EngineTorch      = "torch"
	BaseTiny         = "tiny"
	CodecCompact     = "compact"
	CodecTemplate    = "template"
	CodecMessages    = "messages"
	ServerVLLM       = "vllm"
	ServerSGLang     = "sglang"
	ServerOpenAI     = "openai"
	VersionsAdapters = "adapters"
	VersionsReload   = "reload"
	VersionsNone     = "none"
	GraderExact      = "exact"
	GraderNumeric    = "numeric"
	GraderContains   = "contains"
	GraderQA         = "qa"
	GraderSQL        = "sql"
	GraderCommand    = "command"
	GraderTasks      = "tasks"
	GraderHarbor     = "harbor"
	GraderAgent      = "agent"
	ScheduleConstant = "constant"
	ScheduleLinear   = "linear"
	ScheduleCosine   = "cosine"
	MomentsF32       = "f32"
	MomentsInt8      = "int8"
)

// Metrics of the graders "qa" (f1 and exact) and "sql" (spider and bird).
const (
	MetricF1     = "f1"
	MetricExact  = "exact"
	MetricSpider = "spider"
	MetricBIRD   = "bird"
)

// Values of grader.reward.
const (
	RewardReport   = "report"
	RewardLastLine = "last_line"
)

// Values of credit.combine.
const (
	CombineSum      = "sum"
	CombineSeparate = "separate"
)

// Values of credit.truncated.
const (
	TruncatedTrain = "train"
	TruncatedMask  = "mask"
	TruncatedFail  = "fail"
)

// choices returns the allowed values of a key whose value is a name; nil for other keys.
func choices(key string) []string {
	switch key {
	case "model.engine":
		return []string{EngineNative, "gomlx", EngineTorch}
	case "model.codec":
		return []string{CodecCompact, CodecTemplate, CodecMessages}
	case "model.lora.base_precision":
		return []string{"f32", "bf16", "q8_0"}
	case "model.tool_parser":
		return []string{"hermes", "llama3_json", "mistral", "pythonic", "qwen3_xml"}
	case "sampling.engine":
		return []string{EngineNative, EngineTorch}
	case "sampling.history":
		return []string{"append", "template"}
	case "sampling.server.type":
		return []string{ServerVLLM, ServerSGLang, ServerOpenAI}
	case "sampling.server.versions":
		return []string{VersionsAdapters, VersionsReload, VersionsNone}
	case "grader.type":
		return []string{GraderExact, GraderNumeric, GraderContains, GraderQA, GraderSQL, GraderCommand, GraderTasks, GraderHarbor, GraderAgent}
	case KeyRecord:
		return Recordings()
	case "traffic.on_failure":
		return []string{FailUnrecorded, ServeUnrecorded}
	case "traffic.train.objective":
		return []string{ObjectiveReward, ObjectiveSupervised, ObjectivePreference}
	case "agent.sandbox":
		return []string{SandboxProcess, SandboxContainer, SandboxNone}
	case "tasks.harbor.container":
		return []string{"docker", "podman"}
	case "grader.metric":
		return []string{MetricF1, MetricExact, MetricSpider, MetricBIRD}
	case "grader.reward":
		return []string{RewardReport, RewardLastLine}
	case "training.optimizer.schedule":
		return []string{ScheduleConstant, ScheduleLinear, ScheduleCosine}
	case "training.curriculum.type":
		return curricula()
	case "training.optimizer.moments":
		return []string{MomentsF32, MomentsInt8}
	case "optimizer.algorithm":
		return []string{AlgorithmGEPA, AlgorithmAPO}
	case "optimizer.reflector.type":
		return []string{ReflectorOpenAI, ReflectorAnthropic, ReflectorCommand, ReflectorRecorded}
	case "evaluation.only":
		return []string{"train", "gate", "test"}
	case "algorithm":
		return Algorithms()
	case "credit.combine":
		return []string{CombineSum, CombineSeparate}
	case "credit.truncated":
		return []string{TruncatedTrain, TruncatedMask, TruncatedFail}
	case "credit.assignment":
		return names(credit.Assignments()...)
	case "credit.tokens":
		return names(credit.Uniform, credit.GAE)
	case "credit.mean":
		return names(credit.Group, credit.Batch, credit.Running, credit.None)
	case "credit.std":
		return names(credit.Group, credit.Batch, credit.None, credit.ByMean)
	case "credit.whiten":
		return names(credit.None, credit.Batch)
	case "loss.type":
		return names(credit.LossTypes()...)
	case "loss.aggregation":
		return names(credit.TokenMean, credit.SequenceMean, credit.Constant)
	case "loss.preference.reference":
		return []string{ReferenceParent, ReferenceFirst}
	case "loss.kl.estimator":
		return names(credit.KL1, credit.KL2, credit.KL3, credit.Unbiased)
	case "credit.kl_in_reward.estimator":
		return names(credit.KL1, credit.KL2, credit.KL3)
	case "loss.correction":
		return names(credit.Corrections()...)
	}
	return nil
}

// Validate reports, as *Faults, everything that is wrong with s by itself: names that
// don't exist, impossible numbers, and keys that contradict each other or have no effect.
// It treats absent keys as having their defaults. It reads no file and no clock and always
// gives the same answer, so a workflow can call it.
func (s Spec) Validate() error {
	f := &Faults{}
	s.WithDefaults().check(f)
	return f.err()
}

// check reports the faults of s, whose defaults must be filled in.
func (s Spec) check(f *Faults) {
	if len(s.Phases) > 0 {
		s.checkPhases(f)
		return
	}
	s.checkName(f)
	s.checkAlgorithm(f)
	f.number("seed", float64(s.Seed), bounds.Between(1, math.Inf(1)))
	s.Model.check(f)
	if s.Model.LoRA != nil {
		s.Model.LoRA.check(f, s)
	}
	s.Agent.check(f)
	s.Prompts.check(f)
	s.checkOptimizer(f)
	s.Tasks.check(f, s.Grader, s.Evaluation.Only != "" || s.FromTraffic(), s.TrainSources())
	s.Tasks.checkHarbor(f, s.Grader, s.Agent)
	s.Grader.check(f)
	s.checkSampling(f)
	s.Training.check(f, s.untrained())
	s.checkCurriculum(f)
	s.checkMoments(f)
	s.Credit.check(f, s.Training)
	s.checkMean(f)
	s.checkDynamicSampling(f)
	s.checkLoss(f)
	s.checkCritic(f)
	s.checkEvaluation(f)
	s.checkOnly(f)
	s.checkBudget(f)
	s.Scheduling.check(f)
	s.checkTraffic(f)
	s.checkPromotion(f)
	s.Replay.check(f)
	s.checkPolicies(f)
}

// maxNameBytes is the longest name of a run.
const maxNameBytes = 63

const nameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789"

func (s Spec) checkName(f *Faults) {
	if s.Name == "" {
		return
	}
	plain := len(s.Name) <= maxNameBytes && strings.Trim(s.Name, nameCharacters+"._-") == "" &&
		strings.Trim(s.Name[:1]+s.Name[len(s.Name)-1:], nameCharacters) == ""
	if !plain {
		f.add("name", "use 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends", "%q can't be the name of a run", s.Name)
	}
}

// variableName matches the names of variables in templates and environments.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*$`)

func (m Model) check(f *Faults) {
	f.choice("model.engine", m.Engine)
	if !strings.HasPrefix(m.Codec, CodecTemplate+":") { // otherwise it is a codec that this run stored
		f.choice("model.codec", m.Codec)
	}
	if m.Base == BaseTiny {
		f.whole("model.context", m.Context, 8, 1<<17)
		if m.Codec == CodecTemplate && m.Version == "" {
			f.add("model.codec", `give compact, or the directory of a model as model.base`, "the built-in model has no chat template")
		}
	} else {
		f.unused("model.context", m.Context != 0, "a base model has its own")
	}
	if m.ToolParser != "" {
		f.choice("model.tool_parser", m.ToolParser)
		f.unused("model.tool_parser", !strings.HasPrefix(m.Codec, CodecTemplate), `only model.codec "template" has one`)
	}
	f.unused("model.template", m.Template != "" && !strings.HasPrefix(m.Codec, CodecTemplate), `only model.codec "template" has one`)
	f.unused("model.template_variables", len(m.TemplateVariables) > 0 && !strings.HasPrefix(m.Codec, CodecTemplate), `only model.codec "template" has a template`)
	for _, name := range sortedKeys(m.TemplateVariables) {
		if !variableName.MatchString(name) || slices.Contains([]string{"messages", "tools", "documents", "add_generation_prompt"}, name) {
			f.add("model.template_variables."+name, "give a name that the template reads and that no dialog sets", "no name of a variable")
		}
	}
	w := m.WarmStart
	if w == nil {
		return
	}
	if w.Demonstrations == "" {
		f.add("model.warm_start.demonstrations", `give "arithmetic" or the path of a JSONL file of dialogs`, "missing")
	} else {
		f.source("model.warm_start.demonstrations", w.Demonstrations, true)
	}
	f.whole("model.warm_start.updates", w.Updates, 1, 1e9)
	f.whole("model.warm_start.batch", w.Batch, 1, 1e6)
	f.number("model.warm_start.learning_rate", w.LearningRate, bounds.LearningRate())
}

func (t Tasks) check(f *Faults, g Grader, trainless bool, train []string) {
	t.checkProgram(f, g, train)
	if t.Train == "" && !trainless {
		f.add("tasks.train", `give the path of a JSONL file, or "arithmetic:train"`, "missing")
	}
	for i, name := range SplitNames() {
		key := "tasks." + name
		source, _ := t.Split(name)
		f.source(key, source, false)
		for _, earlier := range SplitNames()[:i] {
			if other, _ := t.Split(earlier); source != "" && sameTasks(source, other) {
				f.add(key, "splits must share no task", "the same tasks as tasks.%s", earlier)
				break
			}
		}
	}
}

func (g Grader) check(f *Faults) {
	if g.Type == "" {
		f.add("grader.type", "give one of "+strings.Join(choices("grader.type"), ", "), "missing")
		return
	}
	f.choice("grader.type", g.Type)
	f.unused("grader.tolerance", g.Tolerance != 0 && g.Type != GraderNumeric, `only grader.type "numeric" has a tolerance`)
	f.number("grader.tolerance", g.Tolerance, bounds.Between(0, math.Inf(1)))
	f.number("grader.limit", g.Limit, bounds.Positive(math.Inf(1)))
	if g.Minimum != nil {
		f.number("grader.minimum", *g.Minimum, bounds.Between(math.Inf(-1), math.Inf(1)))
		f.unused("grader.minimum", !g.mayBeNegative(), "grader.type "+g.Type+" gives nothing below 0")
	}
	g.checkMetric(f)
	g.checkExtract(f)
	if g.Reward != "" {
		f.choice("grader.reward", g.Reward)
	}
	f.unused("grader.reward", g.Reward != "" && g.Type != GraderAgent, `only grader.type "agent" has one`)
	if g.Type == GraderSQL || g.Type == GraderTasks {
		f.number("grader.seconds", g.Seconds, bounds.Positive(24*3600))
	}
	if g.Type != GraderCommand {
		const why = `only grader.type "command" runs one`
		f.unused("grader.command", len(g.Command) > 0, why)
		f.unused("grader.rewards", len(g.Rewards) > 0, why)
		f.unused("grader.calls", g.Calls, why)
		f.unused("grader.directory", g.Directory != "", why)
		f.unused("grader.seconds", g.Seconds != 0 && g.Type != GraderSQL && g.Type != GraderTasks, `only grader.type "command", "tasks" and "sql" have a limit`)
		return
	}
	if len(g.Command) == 0 {
		f.add("grader.command", "give the program and its arguments", "missing")
	}
	f.program("grader.command", g.Command)
	for i, name := range g.Rewards {
		switch key := fmt.Sprintf("grader.rewards[%d]", i); {
		case name == "":
			f.add(key, "give a name, or remove it", "empty")
		case name == credit.Final:
			f.add(key, "remove it", "%q is the reward that every grader gives", name)
		case slices.Contains(g.Rewards[:i], name):
			f.add(key, "name each reward once", "%q is given twice", name)
		}
	}
	f.number("grader.seconds", g.Seconds, bounds.Positive(24*3600))
}

// checkMetric checks what "qa" measures, and by whose rules "sql" compares.
func (g Grader) checkMetric(f *Faults) {
	known := map[string][]string{GraderQA: {MetricF1, MetricExact}, GraderSQL: {MetricSpider, MetricBIRD}}[g.Type]
	switch {
	case g.Metric == "":
	case known == nil:
		f.unused("grader.metric", true, `only grader.type "qa" and "sql" have one`)
	case slices.Contains(choices("grader.metric"), g.Metric) && !slices.Contains(known, g.Metric):
		f.add("grader.metric", "give "+strings.Join(known, " or "), "%q is no metric of grader.type %q", g.Metric, g.Type)
	default:
		f.choice("grader.metric", g.Metric)
	}
	f.unused("grader.keep_distinct", g.KeepDistinct && g.Type != GraderSQL, `only grader.type "sql" compares queries`)
	f.unused("grader.keep_distinct", g.KeepDistinct && g.Metric == MetricBIRD, "BIRD's metric always keeps it")
}

func (s Spec) checkSampling(f *Faults) {
	temperature := *s.Sampling.Temperature
	switch {
	case temperature == 0 && s.untrained() != "":
		const alike = "at temperature 0 all samples of a task are alike"
		if s.Evaluation.Samples > 1 {
			f.add("evaluation.samples", "give 1", alike)
		}
		if o := s.Optimizer; o != nil && o.Samples > 1 {
			f.add("optimizer.samples", "give 1", alike)
		}
		if o := s.Optimizer; o != nil && o.ValidationSamples > 1 {
			f.add("optimizer.validation_samples", "give 1", alike)
		}
	case temperature == 0:
		f.add("sampling.temperature", "leave it out for 1", "training at temperature 0 has one sample per task and learns nothing")
	default:
		f.number("sampling.temperature", temperature, bounds.Temperature())
	}
	f.number("sampling.max_tokens", float64(s.Sampling.MaxTokens), bounds.MaxTokens())
	f.unused("sampling.stop_tokens", len(s.Sampling.StopTokens) > 0 && !strings.HasPrefix(s.Model.Codec, CodecTemplate), `only model.codec "template" has tokens with such texts`)
	for i, token := range s.Sampling.StopTokens {
		if key := fmt.Sprintf("sampling.stop_tokens[%d]", i); !strings.HasPrefix(s.Model.Codec, CodecTemplate) {
			break // the fault above is enough
		} else if token == "" {
			f.add(key, "give the text of a token, or its id as text", "empty")
		} else if slices.Contains(s.Sampling.StopTokens[:i], token) {
			f.add(key, "name each token once", "%q is given twice", token)
		}
	}
	f.choice("sampling.history", s.Sampling.History)
	if s.Sampling.Engine != "" {
		f.choice("sampling.engine", s.Sampling.Engine)
		f.unused("sampling.engine", s.Sampling.Server != nil, "sampling.server samples in place of the built-in sampler")
	}
	if s.Sampling.Server != nil {
		s.Sampling.Server.check(f, s)
	} else if s.Model.Codec == CodecMessages {
		f.add("model.codec", "leave it out", `only sampling.server.type "openai" takes messages`)
	}
}

func (t Training) check(f *Faults, untrained string) {
	switch {
	case untrained != "":
		f.unused("training.steps", t.Steps != 0, untrained)
		f.unused("training.epochs", t.Epochs != 0, untrained)
	case t.Steps == 0 && t.Epochs == 0:
		f.add("training.steps", "give training.steps or training.epochs", "missing")
	case t.Steps != 0 && t.Epochs != 0:
		f.add("training.epochs", "keep one of training.steps and training.epochs", "both steps and epochs")
	}
	f.whole("training.steps", t.Steps, 0, 1e9)
	f.whole("training.epochs", t.Epochs, 0, 1e6)
	f.whole("training.tasks_per_step", t.TasksPerStep, 1, maxGroups)
	f.whole("training.samples_per_task", t.SamplesPerTask, 1, maxSamples)
	f.whole("training.lag", t.Lag, 0, 8)
	f.whole("training.dynamic_sampling", t.DynamicSampling, 0, maxGroups)
	t.checkStep(f)
	f.unused("training.dynamic_sampling", t.DynamicSampling > 0 && t.SamplesPerTask == 1, "a group of 1 has nothing to be equal to")
	f.whole("training.passes", t.Passes, 1, 100)
	f.whole("training.minibatches", t.Minibatches, 1, 1000)
	if t.Minibatches > t.TasksPerStep {
		f.add("training.minibatches", "give at most training.tasks_per_step", "%d of %d groups: some would be empty", t.Minibatches, t.TasksPerStep)
	}
	if t.Keep != nil {
		f.whole("training.keep.last", t.Keep.Last, 1, 1e9)
		f.whole("training.keep.every", t.Keep.Every, 0, 1e9)
	}
	o := t.Optimizer
	f.choice("training.optimizer.schedule", o.Schedule)
	f.number("training.optimizer.learning_rate", o.LearningRate, bounds.LearningRate())
	f.unused("training.optimizer.final_fraction", o.FinalFraction != 0 && o.Schedule == ScheduleConstant, `schedule "constant" does not decay`)
	f.number("training.optimizer.final_fraction", o.FinalFraction, bounds.Between(0, 1))
	f.number("training.optimizer.weight_decay", o.WeightDecay, bounds.WeightDecay())
	f.number("training.optimizer.clip_norm", o.ClipNorm, bounds.ClipNorm())
	f.number("training.optimizer.beta1", o.Beta1, bounds.Beta())
	f.number("training.optimizer.beta2", o.Beta2, bounds.Beta())
	f.number("training.optimizer.epsilon", o.Epsilon, bounds.Epsilon())
	if o.Moments != "" {
		f.choice("training.optimizer.moments", o.Moments)
	}
}

func (s Spec) checkEvaluation(f *Faults) {
	only := s.Evaluation.Only != ""
	gate, test := s.Tasks.Gate != "" && !only, s.Tasks.Test != ""
	if s.Optimizer != nil && !only {
		f.unused("evaluation.every", s.Evaluation.Every != 0, unchanged)
	} else if gate {
		f.whole("evaluation.every", s.Evaluation.Every, 1, 1e9)
	} else {
		f.unused("evaluation.every", s.Evaluation.Every != 0, "there is no tasks.gate to evaluate")
	}
	if s.Evaluation.Success != nil {
		f.number("evaluation.success", *s.Evaluation.Success, bounds.Between(math.Inf(-1), math.Inf(1)))
	}
	if gate || test || only {
		f.whole("evaluation.samples", s.Evaluation.Samples, 1, 1e4)
	} else {
		f.unused("evaluation.samples", s.Evaluation.Samples != 0, "there is neither tasks.gate nor tasks.test")
	}
}

// untrained returns the reason why keys of training have no effect: the run only evaluates,
// or it improves prompts. It returns "" for a run that trains.
func (s Spec) untrained() string {
	switch {
	case s.Evaluation.Only != "":
		return "with evaluation.only nothing is trained"
	case s.Optimizer != nil:
		return unchanged
	}
	return ""
}

// checkOnly checks the version that a run evaluates, and the keys of a run that trains
// nothing.
func (s Spec) checkOnly(f *Faults) {
	if v := s.Model.Version; v != "" {
		if _, err := ParseVersion(v); err != nil {
			f.add("model.version", "give RUN@NUMBER, such as demo@12, or RUN:POLICY@NUMBER", "%v", err)
		}
		const own = "model.version has its own"
		f.unused("model.base", s.Model.Base != BaseTiny, own)
		f.unused("model.lora", s.Model.LoRA != nil, own)
		f.unused("model.warm_start", s.Model.WarmStart != nil, own)
		f.unused("model.template", s.Model.Template != "", own)
		f.unused("model.template_variables", len(s.Model.TemplateVariables) > 0, own)
		if server := s.Sampling.Server; server != nil && server.Versions == VersionsNone {
			remedy := "leave sampling.server out"
			if server.Type != ServerOpenAI {
				remedy = "give " + server.defaultVersions() + ", or " + remedy
			}
			f.add("sampling.server.versions", remedy, "the server would never sample from model.version")
		}
	}
	only := s.Evaluation.Only
	if only == "" {
		return
	}
	f.choice("evaluation.only", only)
	if source, named := s.Tasks.Split(only); named && source == "" {
		f.add("tasks."+only, "give the split that evaluation.only names", "missing")
	}
	f.unused("critic", s.Critic != nil, s.untrained())
}

func (s Spec) checkPromotion(f *Faults) {
	p := s.Promotion
	if s.Tasks.Gate == "" || s.Evaluation.Only != "" {
		const without = "promotion has no split to compare on"
		for _, key := range []struct {
			name  string
			given bool
		}{
			{"margin", p.Margin != 0}, {"significance", p.Significance != 0},
			{"approval", p.Approval}, {"approval_hours", p.ApprovalHours != 0}, {"alone", p.Alone},
		} {
			if key.given {
				f.add("promotion."+key.name, "give tasks.gate", without)
			}
		}
		return
	}
	s.checkAlone(f)
	f.number("promotion.margin", p.Margin, bounds.Between(0, math.Inf(1)))
	f.number("promotion.significance", p.Significance, bounds.Positive(1))
	if p.Approval {
		f.number("promotion.approval_hours", p.ApprovalHours, bounds.Positive(24*365))
	} else {
		f.unused("promotion.approval_hours", p.ApprovalHours != 0, "promotion.approval is off")
	}
}

// checkAlone reports why policies can't be promoted one by one.
func (s Spec) checkAlone(f *Faults) {
	const key = "promotion.alone"
	switch p := s.Promotion; {
	case !p.Alone:
	case len(s.Policies) == 0:
		f.add(key, "leave it out, or give policies", "the run has one policy")
	case len(s.TrainedPolicies()) == 1:
		f.add(key, "leave it out", "only policies.%s is trained, so it is promoted alone anyway", s.TrainedPolicies()[0])
	case p.Approval:
		f.add(key, "leave promotion.approval or promotion.alone out", "not with promotion.approval: one version at a time waits for approval, and an evaluation may accept one of each policy")
	}
}

func (r Replay) check(f *Faults) {
	for i, pattern := range r.Ignore {
		key := fmt.Sprintf("replay.ignore[%d]", i)
		re, err := regexp.Compile(pattern)
		switch {
		case err != nil:
			f.add(key, "write it in RE2's syntax", "%q is not a regular expression: %v", pattern, err)
		case re.MatchString(""):
			f.add(key, "make it match at least one character", "%q matches everywhere", pattern)
		}
	}
}
