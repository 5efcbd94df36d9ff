// Package spec defines the training spec: the file that a user writes to train an agent,
// and the input of TrainingWorkflow. It holds the types, their defaults, validation and
// the published JSON Schema.
//
// The package reads spec files, but starts nothing, and imports no other package of
// Fulgurite except credit and prompts. A spec that passes [Spec.Validate] can still name a task file
// with a bad line, which package tasks reports. Unknown keys are errors. All faults of a
// spec are reported at once, as [Faults], each with the path of its key.
package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
)

// Spec is one training run: the input of TrainingWorkflow, and the content of a spec file.
// WithDefaults fills in its zero fields.
type Spec struct {
	// Name of the run when the command line gives none: 1 to 63 of a-z, 0-9, '.', '_' and
	// '-', with a letter or digit at both ends.
	Name string `json:"name,omitempty"`
	// Seed of everything random in the run: initial weights, order of tasks, sampling. At
	// least 1.
	Seed uint64 `json:"seed,omitempty"`
	// Model says which model is trained, and from which weights it starts.
	Model Model `json:"model,omitzero"`
	// Agent says how to run the agent. Give exactly one of func, command, service and
	// temporal.
	Agent Agent `json:"agent"`
	// Policies are the models that the run trains, by name, if there are several over one
	// base. Absent means that the run trains one, whose name is main.
	Policies map[string]Policy `json:"policies,omitempty"`
	// Prompts are named texts that replace parts of the agent's prompts. Absent means that
	// the model reads what the agent sends.
	Prompts *Prompts `json:"prompts,omitempty"`
	// Optimizer improves the prompts by a search. A spec with it is the input of
	// PromptWorkflow and trains no weights. Absent means that the prompts stay as they are.
	Optimizer *PromptOptimizer `json:"optimizer,omitempty"`
	// Phases improves prompts and weights in turn: each phase is a run of its own, and
	// starts from what was promoted before. A spec with phases is the input of
	// PhasesWorkflow. Absent means one run.
	Phases []Phase `json:"phases,omitempty"`
	// Budget is what the run may use before it ends with what it has promoted. Absent means
	// that nothing but the number of steps, or the budget of a search, ends it.
	Budget *Budget `json:"budget,omitempty"`
	// Scheduling is the run's share of queues that it has in common with other runs. Absent
	// means an equal share.
	Scheduling Scheduling `json:"scheduling,omitzero"`
	// Traffic says what is recorded of the conversations that the run's versions have in use,
	// and what is learned from them. Absent means that nothing is.
	Traffic *Traffic `json:"traffic,omitempty"`
	// Tasks says where the tasks of the splits train, gate, test and validation are read
	// from.
	Tasks Tasks `json:"tasks"`
	// Grader turns what an agent returned into a reward.
	Grader Grader `json:"grader"`
	// Sampling holds the settings of every call of a rollout that is trained or gated,
	// whatever the agent asks for.
	Sampling Sampling `json:"sampling,omitzero"`
	// Training says how many steps the run makes, and how a step updates the model.
	Training Training `json:"training,omitzero"`
	// Algorithm is the name of a preset, such as "grpo". It sets the parts of credit, loss
	// and critic that the spec leaves out.
	Algorithm string `json:"algorithm,omitempty"`
	// Credit says how rewards become advantages.
	Credit Credit `json:"credit,omitzero"`
	// Loss is the policy loss.
	Loss Loss `json:"loss,omitzero"`
	// Critic is a second model that estimates returns. Only with credit.assignment
	// "turn_gae" or credit.tokens "gae"; absent means one with all defaults.
	Critic *Critic `json:"critic,omitempty"`
	// Evaluation says when versions are evaluated, and with how many attempts.
	Evaluation Evaluation `json:"evaluation,omitzero"`
	// Promotion is the rule by which a version becomes the promoted one.
	Promotion Promotion `json:"promotion,omitzero"`
	// Replay says what may differ between the requests of two attempts that make the same
	// call.
	Replay Replay `json:"replay,omitzero"`
}

// Model says which model is trained, and from which weights it starts.
type Model struct {
	// Engine is what trains: "native" computes on the CPU, "gomlx" through GoMLX, "torch"
	// with PyTorch on a GPU or a CPU.
	Engine string `json:"engine,omitempty"`
	// Base is the model that training starts from: "tiny" (the built-in architecture with
	// random weights), or the path of a directory with config.json and model.safetensors.
	Base string `json:"base,omitempty"`
	// Context is the largest number of tokens of prompt and reply together, at least 8.
	// Only with model.base "tiny": other bases have their own.
	Context int `json:"context,omitempty"`
	// Codec says how dialogs become tokens. "compact" is the codec of the built-in model,
	// one token for each byte. "template" uses the tokenizer and the chat template of the
	// base model. "messages" is only for sampling.server.type "openai", where it is the
	// default.
	Codec string `json:"codec,omitempty"`
	// ToolParser is the format in which tool calls are read from replies: "hermes",
	// "llama3_json", "mistral", "pythonic" or "qwen3_xml". Absent means the format of the
	// chat template. Only with model.codec "template".
	ToolParser string `json:"tool_parser,omitempty"`
	// Template is the path of a file with a chat template that replaces the one of the
	// base model. Only with model.codec "template".
	Template string `json:"template,omitempty"`
	// TemplateVariables are further variables of the chat template, by name, such as
	// enable_thinking. Only with model.codec "template".
	TemplateVariables map[string]any `json:"template_variables,omitempty"`
	// LoRA trains a low-rank adapter over the frozen base instead of the complete model. A
	// version is then the adapter alone. Absent means that the complete model is trained.
	LoRA *LoRA `json:"lora,omitempty"`
	// WarmStart trains the model on demonstrations before anything else. Absent means no
	// warm start.
	WarmStart *WarmStart `json:"warm_start,omitempty"`
	// Version is a version of another run in the same store, written RUN@NUMBER, or
	// RUN:POLICY@NUMBER for one of several policies. It replaces all other keys of model
	// except engine. Version 0 of the run has the same weights, and training begins with
	// fresh moments.
	Version string `json:"version,omitempty"`
}

// WarmStart is supervised training on demonstrations by cross-entropy.
type WarmStart struct {
	// Demonstrations is the path of a JSONL file of dialogs, or "arithmetic" for the
	// built-in demonstrations of a calculator.
	Demonstrations string `json:"demonstrations"`
	// Updates is the number of optimizer updates of the warm start.
	Updates int `json:"updates"`
	// Batch is the number of dialogs in one update.
	Batch int `json:"batch,omitempty"`
	// LearningRate is the peak of the learning rate. It rises linearly over the first 20
	// updates, then decays by a cosine to a twentieth of the peak.
	LearningRate float64 `json:"learning_rate,omitempty"`
}

// Tasks holds the source of each split. A source is the path of a JSONL file; "<data
// set>:<path>" for a file in the layout of spider, gsm8k, musique, hotpotqa or
// 2wikimultihopqa; "command:<split>"; "harbor:<directory>"; or "arithmetic:<split>" or
// "arithmetic:<split>:<count>" for problems of the built-in generator, whose splits are
// train, gate and test. A file with such a name is written "./arithmetic".
type Tasks struct {
	// Train is the source of the tasks that the run learns from: the path of a JSONL file,
	// "<data set>:<path>", "command:<split>", "harbor:<directory>", or "arithmetic:train"
	// for generated problems. The data sets are spider, gsm8k, musique, hotpotqa and
	// 2wikimultihopqa.
	Train string `json:"train,omitempty"`
	// Gate is the source of the tasks on which versions are compared for promotion,
	// written like tasks.train. Absent means that nothing is evaluated during training,
	// and that version 0 stays the promoted one.
	Gate string `json:"gate,omitempty"`
	// Test is the source of the tasks whose results are only reported: before training,
	// and once at the end. It is written like tasks.train.
	Test string `json:"test,omitempty"`
	// Validation is the source of the tasks on which an optimizer measures candidates. It is
	// written like tasks.train, is required with optimizer, and has a meaning only with it.
	Validation string `json:"validation,omitempty"`
	// Command is a program and its arguments. It lists the tasks of sources
	// "command:<split>", and it grades with grader.type "tasks".
	Command []string `json:"command,omitempty"`
	// Directory is the working directory of tasks.command. Absent means the directory of
	// the spec file.
	Directory string `json:"directory,omitempty"`
	// Harbor says how tasks of sources "harbor:<directory>" are attempted.
	Harbor *Harbored `json:"harbor,omitempty"`
}

// Harbored says how tasks in Harbor's format are attempted.
type Harbored struct {
	// Container is the program that runs the containers of the tasks, "docker" or
	// "podman". Absent means that agents and tests are processes of the worker's machine.
	Container string `json:"container,omitempty"`
	// Reward is the name of the reward that counts if tests write a reward.json with
	// several. Absent means "reward".
	Reward string `json:"reward,omitempty"`
}

// SplitNames returns the names of all splits, in the order in which they are read.
func SplitNames() []string { return []string{"train", "gate", "test", "validation"} }

// Split returns the source of the split with the given name: train, gate, test or
// validation. ok is false for any other name.
func (t Tasks) Split(name string) (source string, ok bool) {
	switch name {
	case "train":
		return t.Train, true
	case "gate":
		return t.Gate, true
	case "test":
		return t.Test, true
	case "validation":
		return t.Validation, true
	}
	return "", false
}

// Grader turns what an agent returned into a reward.
type Grader struct {
	// Type says what decides the reward. "exact": the result is the answer. "numeric":
	// both are numbers, within grader.tolerance. "contains": the answer is somewhere in
	// the result. "qa": the result shares words with the answer. "sql": the result is a
	// query that returns what the answer returns. "command": grader.command decides.
	// "tasks": tasks.command decides. "harbor": the task's own tests decide. "agent": the
	// agent reports its own reward.
	Type string `json:"type"`
	// Extract says where the answer is in the result: "last_number", "boxed" (in the last
	// \boxed{…}), "after TEXT" (behind the last TEXT) or "regex PATTERN" (the first group
	// of the last match). Absent means the complete result and, with "numeric", the number
	// after the first "####", else in the last \boxed{…}, else the last number. Only with
	// grader.type "numeric", "exact" and "qa".
	Extract string `json:"extract,omitempty"`
	// Tolerance is the largest absolute difference between result and answer that
	// "numeric" accepts, as a decimal number. Absent means 0. Only with grader.type
	// "numeric".
	Tolerance float64 `json:"tolerance,omitempty"`
	// Command is the program of grader.type "command" and its arguments. It reads {task,
	// result} as JSON on standard input and prints the reward as its last line.
	Command []string `json:"command,omitempty"`
	// Rewards lists the names of the rewards that the grader gives in addition to the final
	// one. Its last line is then {"reward": NUMBER, "rewards": {NAME: NUMBER}} with each of
	// them. Only with grader.type "command".
	Rewards []string `json:"rewards,omitempty"`
	// Calls gives the grader the attempt's model calls, too: agent, policy, request and
	// response of each. Only with grader.type "command".
	Calls bool `json:"calls,omitempty"`
	// Directory is the working directory of grader.command. Absent means the directory of
	// the spec file.
	Directory string `json:"directory,omitempty"`
	// Seconds is the longest time, in seconds, that a run of grader.command, an answer of
	// "tasks" or each query of "sql" may take. Absent means 10, and 60 with "tasks". Only
	// with these three types.
	Seconds float64 `json:"seconds,omitempty"`
	// Metric is what "qa" measures: "f1", the default, is the F1 of the words; "exact" is
	// 1 if all words agree, else 0. With "sql" it says by whose rules results are compared:
	// "spider" or "bird". Absent means the rules of the data set from which a task is, and
	// Spider's for others. Only with grader.type "qa" and "sql".
	Metric string `json:"metric,omitempty"`
	// KeepDistinct makes "sql" compare queries with the word DISTINCT in them. By default
	// it removes the word from both, as the official evaluation of Spider does; BIRD's
	// never removes it. Only with grader.type "sql".
	KeepDistinct bool `json:"keep_distinct,omitempty"`
	// Reward says what may be the reward with grader.type "agent": "report", the default,
	// only what the agent reports as its reward; "last_line" also a bare number in the last
	// line of its result. Only with grader.type "agent".
	Reward string `json:"reward,omitempty"`
	// Limit is the largest magnitude of a reward. A reward beyond it is refused.
	Limit float64 `json:"limit,omitempty"`
	// Minimum is the smallest final reward that a grader of type "command", "tasks",
	// "harbor" or "agent" may give. A smaller reward is refused. Absent means
	// -grader.limit. Only with these four types.
	Minimum *float64 `json:"minimum,omitempty"`
}

// Sampling holds the settings of every call of a rollout that is trained or gated.
type Sampling struct {
	// Temperature is the temperature of sampling, more than 0. Absent means 1. Training at
	// 0 would be greedy, so 0 is refused.
	Temperature *float64 `json:"temperature,omitempty"`
	// MaxTokens is the largest number of tokens of one reply. A request of the agent can
	// only lower it.
	MaxTokens int `json:"max_tokens,omitempty"`
	// StopTokens are tokens that end a reply, in addition to those that the model's files
	// name. Each is the text of a token, or its id written as text. Only with model.codec
	// "template".
	StopTokens []string `json:"stop_tokens,omitempty"`
	// History says how a dialog is continued: "append" keeps the tokens of earlier calls,
	// "template" renders the complete dialog again, as a plain server would.
	History string `json:"history,omitempty"`
	// Engine is the built-in sampler: "native", on the CPU, or "torch", in the program
	// that trains with model.engine "torch". Absent means "torch" with model.engine
	// "torch", else "native". Only without sampling.server. In recorded runs, empty means
	// "native".
	Engine string `json:"engine,omitempty"`
	// Server samples instead of the built-in sampler. Absent means the built-in sampler.
	Server *Server `json:"server,omitempty"`
}

// Training says how many steps the run makes, and how a step updates the model.
type Training struct {
	// Steps is the number of steps of the run; each makes one version. Give either steps
	// or epochs.
	Steps int `json:"steps,omitempty"`
	// Epochs is the number of passes over the training tasks. Give either epochs or steps.
	Epochs int `json:"epochs,omitempty"`
	// TasksPerStep is the number of tasks that one step attempts. Each gives one group.
	TasksPerStep int `json:"tasks_per_step,omitempty"`
	// SamplesPerTask is the size of a group: how often each task is attempted.
	SamplesPerTask int `json:"samples_per_task,omitempty"`
	// Lag is how many steps the version that samples may be behind the version that is
	// trained, at most 8. With a lag, rollouts of that many steps go on while a version is
	// updated. 0, the default, means that the newest version samples.
	Lag int `json:"lag,omitempty"`
	// DynamicSampling is how many groups a step may replace because they would get no
	// advantage, so that they would teach nothing (DAPO). Absent or 0 means none.
	DynamicSampling int `json:"dynamic_sampling,omitempty"`
	// Curriculum says which tasks a step attempts. Absent means that each task is
	// attempted once an epoch.
	Curriculum *Curriculum `json:"curriculum,omitempty"`
	// Passes is the number of passes over a step's batch.
	Passes int `json:"passes,omitempty"`
	// Minibatches is the number of minibatches that a pass is split into. Each is one
	// optimizer update.
	Minibatches int `json:"minibatches,omitempty"`
	// Optimizer holds the settings of AdamW and the schedule of its learning rate.
	Optimizer Optimizer `json:"optimizer,omitzero"`
	// Keep says which versions keep their files. Absent means that all versions do.
	Keep *Keep `json:"keep,omitempty"`
}

// Keep says which versions keep their weights and the optimizer's moments while a run goes
// on. Whatever it says, these versions keep them: version 0, the newest one, the promoted
// one, the one promoted before it, and all versions that rollouts, evaluations or a
// pending decision of a user need.
type Keep struct {
	// Last is how many of the newest versions keep their files. Absent means 2.
	Last int `json:"last,omitempty"`
	// Every keeps the files of each version whose number it divides. 0, the default, keeps
	// no version for its number.
	Every int `json:"every,omitempty"`
	// Promoted keeps the files of every version that was ever promoted. The promoted
	// version and the one before it keep them in any case.
	Promoted bool `json:"promoted,omitempty"`
}

// Optimizer holds the settings of AdamW and the schedule of its learning rate.
type Optimizer struct {
	// LearningRate is the learning rate at the first step.
	LearningRate float64 `json:"learning_rate,omitempty"`
	// Schedule says how the learning rate changes: "constant" keeps it; "linear" and
	// "cosine" lower it from learning_rate at the first step to final_fraction of it at
	// the last.
	Schedule string `json:"schedule,omitempty"`
	// FinalFraction is the part of learning_rate that "linear" and "cosine" end with. Not
	// with schedule "constant".
	FinalFraction float64 `json:"final_fraction,omitempty"`
	// WeightDecay is decoupled from the gradient and scaled by the learning rate. Absent
	// or 0 means none.
	WeightDecay float64 `json:"weight_decay,omitempty"`
	// ClipNorm is the largest norm of a gradient. A gradient with a larger norm is scaled
	// down to it.
	ClipNorm float64 `json:"clip_norm,omitempty"`
	// Beta1 is the decay of the running mean of gradients.
	Beta1 float64 `json:"beta1,omitempty"`
	// Beta2 is the decay of the running mean of squared gradients.
	Beta2 float64 `json:"beta2,omitempty"`
	// Epsilon is added to the root of the mean of squared gradients.
	Epsilon float64 `json:"epsilon,omitempty"`
	// Moments is the type of the optimizer's two means: "f32", the default, or "int8",
	// which takes a quarter of the memory and works only with model.engine "torch".
	Moments string `json:"moments,omitempty"`
}

// Evaluation says when versions are evaluated, and with how many attempts.
type Evaluation struct {
	// Every is the number of steps between evaluations on tasks.gate. The last step always
	// has one. Only with tasks.gate.
	Every int `json:"every,omitempty"`
	// Samples is the number of attempts at each task of the split that is evaluated.
	Samples int `json:"samples,omitempty"`
	// Success is the smallest reward that counts as a success in pass@k and pass^k, and as
	// a pass for a curriculum. Absent means 1.
	Success *float64 `json:"success,omitempty"`
	// Only is the split, "train", "gate" or "test", of a run that trains nothing: it
	// evaluates version 0 on that split and ends. Absent means that the run trains.
	Only string `json:"only,omitempty"`
}

// Reaches reports whether a reward, or a mean of rewards, is at least a threshold, apart
// from the rounding of sums: weights of a rubric that sum to 0.9999999999999999 reach 1.
func Reaches(reward, threshold float64) bool { return reward >= LeastReaching(threshold) }

// LeastReaching returns the smallest reward that reaches a threshold.
func LeastReaching(threshold float64) float64 { return threshold - 1e-9*max(1, math.Abs(threshold)) }

// SuccessThreshold returns the smallest reward that counts as a success.
func (e Evaluation) SuccessThreshold() float64 {
	if e.Success == nil {
		return 1
	}
	return *e.Success
}

// Promotion is the rule by which a version becomes the promoted one.
type Promotion struct {
	// Margin is by how much the mean reward of a version on the gate split must exceed the
	// mean reward of the promoted version.
	Margin float64 `json:"margin,omitempty"`
	// Significance is the largest p-value at which a better mean counts. The p-value is
	// one-sided, of a paired test over the tasks of the gate split. 1 switches the test
	// off.
	Significance float64 `json:"significance,omitempty"`
	// Approval makes a person decide on a better version, by the Update "approve" or
	// "reject". Absent or false means that nobody is asked.
	Approval bool `json:"approval,omitempty"`
	// ApprovalHours is the time, in hours, after which a version that nobody decided on is
	// refused. Only with promotion.approval.
	ApprovalHours float64 `json:"approval_hours,omitempty"`
	// Alone promotes each of several policies by itself: its version is evaluated together with
	// the promoted versions of the others. Absent or false means that all policies are
	// promoted together. Only with policies.
	Alone bool `json:"alone,omitempty"`
}

// Replay says what may differ between two attempts that make the same call.
type Replay struct {
	// Ignore lists regular expressions (RE2). Text that they match in a message does not
	// make two requests different: a date, a directory, a session id.
	Ignore []string `json:"ignore,omitempty"`
}

// Defaults of absent keys; docs/spec.md lists all of them.
const (
	defaultQueue       = "rollout-cpu"
	defaultOutputBytes = 1 << 20
	defaultMemoryBytes = 2 << 30
	defaultProcesses   = 512
	defaultFileBytes   = 1 << 30
)

// WithDefaults fills in every field that is zero and has a default. It leaves a field
// empty if the field has no effect together with the others, so that Validate can tell
// whether the user wrote it. Calling it again on the result changes nothing.
func (s Spec) WithDefaults() Spec {
	s = s.expanded()
	s.Seed = cmp.Or(s.Seed, 1)
	if s.Sampling.Server != nil && s.Sampling.Server.Type == ServerOpenAI {
		s.Model.Codec = cmp.Or(s.Model.Codec, CodecMessages)
	}
	s.Model = s.Model.withDefaults()
	s.Policies = withPolicyDefaults(s.Policies)
	s.Agent = s.Agent.withDefaults()
	s.Prompts = s.Prompts.withDefaults()
	s.Optimizer = s.Optimizer.withDefaults()
	if s.Grader.Type == GraderCommand || s.Grader.Type == GraderSQL {
		s.Grader.Seconds = cmp.Or(s.Grader.Seconds, 10)
	}
	if s.Grader.Type == GraderTasks {
		s.Grader.Seconds = cmp.Or(s.Grader.Seconds, 60)
	}
	s.Grader.Limit = cmp.Or(s.Grader.Limit, 1e6)
	if s.Sampling.Temperature == nil {
		one := 1.0
		s.Sampling.Temperature = &one
	}
	s.Sampling.MaxTokens = cmp.Or(s.Sampling.MaxTokens, 24)
	s.Sampling.History = cmp.Or(s.Sampling.History, "append")
	if s.Sampling.Server == nil && s.Model.Engine == EngineTorch {
		s.Sampling.Engine = cmp.Or(s.Sampling.Engine, EngineTorch)
	}
	if s.Sampling.Server != nil {
		server := *s.Sampling.Server // the caller's copy does not change
		server.Versions = cmp.Or(server.Versions, server.defaultVersions())
		s.Sampling.Server = &server
	}
	if s.FromTraffic() && s.Evaluation.Only == "" {
		s.Training.Steps = cmp.Or(s.Training.Steps, defaultSegments)
		s.Training.Optimizer.Schedule = cmp.Or(s.Training.Optimizer.Schedule, ScheduleConstant)
		if s.Tasks.Gate != "" {
			s.Evaluation.Every = cmp.Or(s.Evaluation.Every, 1)
		}
	}
	s.Training = s.Training.withDefaults()
	s.Credit = s.Credit.withDefaults()
	s.Loss = s.Loss.withDefaults(s.Training.Lag, cmp.Or(s.Agent.Limits.Tokens, s.Agent.Limits.Calls*s.Sampling.MaxTokens))
	if s.Critic != nil || s.Credit.UsesCritic() {
		critic := *cmp.Or(s.Critic, &Critic{}) // the caller's copy does not change
		critic = critic.withDefaults()
		s.Critic = &critic
	}
	if s.Tasks.Gate != "" && s.Evaluation.Only == "" {
		if s.Optimizer == nil {
			s.Evaluation.Every = cmp.Or(s.Evaluation.Every, 5)
		}
		s.Promotion.Significance = cmp.Or(s.Promotion.Significance, 0.1)
		if s.Promotion.Approval {
			s.Promotion.ApprovalHours = cmp.Or(s.Promotion.ApprovalHours, 24)
		}
	}
	if s.Tasks.Gate != "" || s.Tasks.Test != "" || s.Evaluation.Only != "" {
		s.Evaluation.Samples = cmp.Or(s.Evaluation.Samples, 1)
	}
	s.Traffic = s.Traffic.withDefaults()
	return s
}

func (m Model) withDefaults() Model {
	m.Engine = cmp.Or(m.Engine, EngineNative)
	m.Base = cmp.Or(m.Base, BaseTiny)
	if m.Base == BaseTiny {
		m.Context = cmp.Or(m.Context, 64)
	}
	m.Codec = cmp.Or(m.Codec, CodecCompact)
	if m.LoRA != nil {
		l := m.LoRA.withDefaults() // the caller's copy does not change
		m.LoRA = &l
	}
	if m.WarmStart != nil {
		w := *m.WarmStart // the caller's copy does not change
		w.Batch = cmp.Or(w.Batch, 64)
		w.LearningRate = cmp.Or(w.LearningRate, 3e-3)
		m.WarmStart = &w
	}
	return m
}

func (a Agent) withDefaults() Agent {
	a.Queue = cmp.Or(a.Queue, defaultQueue)
	a.Limits.Calls = cmp.Or(a.Limits.Calls, 8)
	a.Limits.Seconds = cmp.Or(a.Limits.Seconds, 60)
	if len(a.Command) > 0 {
		a.Limits.OutputBytes = cmp.Or(a.Limits.OutputBytes, defaultOutputBytes)
		a.Limits.MemoryBytes = cmp.Or(a.Limits.MemoryBytes, defaultMemoryBytes)
	}
	if a.isolated() {
		a.Limits.Processes = cmp.Or(a.Limits.Processes, defaultProcesses)
		a.Limits.FileBytes = cmp.Or(a.Limits.FileBytes, defaultFileBytes)
	}
	return a
}

func (t Training) withDefaults() Training {
	t.TasksPerStep = cmp.Or(t.TasksPerStep, 16)
	t.SamplesPerTask = cmp.Or(t.SamplesPerTask, 8)
	t.Passes = cmp.Or(t.Passes, 1)
	t.Minibatches = cmp.Or(t.Minibatches, 1)
	t.Curriculum = t.Curriculum.withDefaults()
	if t.Keep != nil {
		keep := *t.Keep // the caller's copy does not change
		keep.Last = cmp.Or(keep.Last, 2)
		t.Keep = &keep
	}
	o := &t.Optimizer
	o.LearningRate = cmp.Or(o.LearningRate, 5e-4)
	o.Schedule = cmp.Or(o.Schedule, "cosine")
	if o.Schedule != ScheduleConstant {
		o.FinalFraction = cmp.Or(o.FinalFraction, 0.1)
	}
	o.ClipNorm = cmp.Or(o.ClipNorm, 1)
	o.Beta1 = cmp.Or(o.Beta1, 0.9)
	o.Beta2 = cmp.Or(o.Beta2, 0.98)
	o.Epsilon = cmp.Or(o.Epsilon, 1e-8)
	return t
}

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
	omitDefault(&s, func(s *Spec) *int { return &s.Agent.Limits.Processes })
	omitDefault(&s, func(s *Spec) *int { return &s.Agent.Limits.FileBytes })
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
