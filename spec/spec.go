package spec

// Spec is one training run: the input of TrainingWorkflow, and the content of a
// spec file. Its zero fields are filled in by WithDefaults.
type Spec struct {
	// Name of the run when the command line gives none.
	Name string `json:"name,omitempty"`
	// Seed of everything random in the run.
	Seed uint64 `json:"seed,omitempty"`
	// Model says what is trained, and from where it starts.
	Model Model `json:"model,omitzero"`
	// Agent says how to run the agent. Exactly one of func, command, service and
	// temporal is given.
	Agent Agent `json:"agent"`
	// Tasks are the splits.
	Tasks Tasks `json:"tasks"`
	// Grader turns what an agent returned into a reward.
	Grader Grader `json:"grader"`
	// Sampling is forced on the calls of rollouts that are trained or gated.
	Sampling Sampling `json:"sampling,omitzero"`
	// Training says how much, and how an update is made.
	Training Training `json:"training,omitzero"`
	// Algorithm is a preset, such as "grpo": it sets the parts of credit, loss and
	// critic that are not given.
	Algorithm string `json:"algorithm,omitempty"`
	// Credit says how rewards become advantages.
	Credit Credit `json:"credit,omitzero"`
	// Loss is the policy loss.
	Loss Loss `json:"loss,omitzero"`
	// Critic is a model that estimates returns, for credit that needs one.
	Critic *Critic `json:"critic,omitempty"`
	// Evaluation says when and how much.
	Evaluation Evaluation `json:"evaluation,omitzero"`
	// Promotion is the rule by which a version becomes the promoted one.
	Promotion Promotion `json:"promotion,omitzero"`
	// Replay says what may differ between two attempts that make the same call.
	Replay Replay `json:"replay,omitzero"`
}

// Model says what is trained, and from where it starts.
type Model struct {
	// Engine is "native", "gomlx" or "torch".
	Engine string `json:"engine,omitempty"`
	// Base is the start: "tiny" (the built-in architecture, random weights) or a
	// directory with config.json and model.safetensors.
	Base string `json:"base,omitempty"`
	// Context is the most tokens of prompt and reply together; only "tiny" takes it,
	// other bases have their own.
	Context int `json:"context,omitempty"`
	// Codec turns dialogs into tokens: "compact", or "template" for the tokenizer and
	// the chat template of the base model; "messages" for servers of type "openai".
	Codec string `json:"codec,omitempty"`
	// ToolParser reads tool calls where Codec is "template"; the template's own
	// by default.
	ToolParser string `json:"tool_parser,omitempty"`
	// Template is a file with a chat template that takes the place of the base model's,
	// where Codec is "template".
	Template string `json:"template,omitempty"`
	// LoRA trains a low-rank adapter over the frozen base instead of the whole model:
	// a version is then the adapter alone.
	LoRA *LoRA `json:"lora,omitempty"`
	// WarmStart trains on demonstrations before anything else.
	WarmStart *WarmStart `json:"warm_start,omitempty"`
	// Version is a version of another run, RUN@NUMBER, which takes the place of everything
	// else here. Only with evaluation.only: nothing is trained from it.
	Version string `json:"version,omitempty"`
}

// LoRA is a low-rank adapter: a linear layer W computes Wx + alpha/rank · B(Ax), and
// A and B alone are trained (Hu et al., 2021).
type LoRA struct {
	// Rank is the number of rows of A.
	Rank int `json:"rank,omitempty"`
	// Alpha, divided by Rank, is what the adapter's product is multiplied by.
	Alpha float64 `json:"alpha,omitempty"`
	// Targets are the linear layers that are adapted: q_proj, k_proj, v_proj, o_proj,
	// gate_proj, up_proj and down_proj. All of them by default. With engine "torch" a model of
	// another type has its own names; by default all its linear layers are adapted.
	Targets []string `json:"targets,omitempty"`
	// BasePrecision is how the base's matrices are rounded, once, and held in memory:
	// f32 (the default, nothing is rounded), bf16 or q8_0.
	BasePrecision string `json:"base_precision,omitempty"`
	// Adapter is a directory with adapter_config.json and adapter_model.safetensors, as PEFT
	// writes them, that version 0 starts from. Rank, Alpha and Targets are then the adapter's,
	// and have to agree with it where they are given.
	Adapter string `json:"adapter,omitempty"`
	// AdapterDigest is that of Adapter's adapter_model.safetensors, "sha256:" and 64 hex digits.
	// A run puts it on record; one that is given has to be the file's.
	AdapterDigest string `json:"adapter_digest,omitempty"`
}

// WarmStart is supervised training on demonstrations by cross-entropy.
type WarmStart struct {
	// Demonstrations is a JSONL file of dialogs, or "arithmetic" for the
	// built-in calculator demonstrations.
	Demonstrations string `json:"demonstrations"`
	// Updates is how many optimizer updates the warm start makes.
	Updates int `json:"updates"`
	// Batch is the number of dialogs of an update.
	Batch int `json:"batch,omitempty"`
	// LearningRate at the peak: linear warm-up over the first 20 updates, then
	// cosine decay to a twentieth.
	LearningRate float64 `json:"learning_rate,omitempty"`
}

// Agent says how to run the agent. Exactly one of Func, Command, Service and
// Temporal is given.
type Agent struct {
	// Func is the name of a Go function registered in the worker.
	Func string `json:"func,omitempty"`
	// Command is run once per rollout: program and arguments.
	Command []string `json:"command,omitempty"`
	// Service is an HTTP service that runs all the time.
	Service *Service `json:"service,omitempty"`
	// Temporal is a workflow or an activity of the user's own.
	Temporal *Temporal `json:"temporal,omitempty"`
	// Before is a command that runs before each attempt: program and arguments.
	Before []string `json:"before,omitempty"`
	// After is a command that runs after each attempt, however it ended.
	After []string `json:"after,omitempty"`
	// ToolServers are addresses that answer GET with a status of success while the
	// servers of the agent's tools are up. An attempt during which one was away does
	// not count.
	ToolServers []string `json:"tool_servers,omitempty"`
	// Directory is the command's working directory; the spec file's by default.
	Directory string `json:"directory,omitempty"`
	// Environment is added to the agent's otherwise scrubbed environment.
	Environment map[string]string `json:"environment,omitempty"`
	// Queue is the task queue of the workers that run the agent.
	Queue string `json:"queue,omitempty"`
	// FailureReward is what an attempt gets whose agent failed by itself.
	FailureReward float64 `json:"failure_reward,omitempty"`
	// Limits end an attempt that goes beyond them.
	Limits AgentLimits `json:"limits,omitzero"`
}

// Service is an agent behind HTTP.
type Service struct {
	// URL takes a task by POST and answers with the result.
	URL string `json:"url"`
	// Headers are added to the request.
	Headers map[string]string `json:"headers,omitempty"`
}

// Temporal is an agent that is a workflow or an activity, in any language. Exactly
// one of Workflow and Activity is given.
type Temporal struct {
	// Workflow is the type of a workflow, started as a child.
	Workflow string `json:"workflow,omitempty"`
	// Activity is the type of an activity.
	Activity string `json:"activity,omitempty"`
	// Queue is the task queue of its workers.
	Queue string `json:"queue"`
}

// AgentLimits end an attempt that goes beyond them.
type AgentLimits struct {
	// Calls is the most model calls of an attempt.
	Calls int `json:"calls,omitempty"`
	// Tokens is the most sampled tokens of an attempt; 0 is no limit.
	Tokens int `json:"tokens,omitempty"`
	// Seconds is the most wall-clock time of an attempt.
	Seconds float64 `json:"seconds,omitempty"`
	// OutputBytes is the most that a command may write to standard output and
	// standard error together.
	OutputBytes int `json:"output_bytes,omitempty"`
	// MemoryBytes is the most resident memory of a command and all that it
	// starts.
	MemoryBytes int `json:"memory_bytes,omitempty"`
	// IdleSeconds is the most time without a model call or output; 0 is no limit.
	// A first such hang is tried again, the same one a second time is the agent's
	// failure.
	IdleSeconds float64 `json:"idle_seconds,omitempty"`
}

// Tasks are the splits. Each is a JSONL file, "<data set>:<path>" for a file in the
// layout of spider, gsm8k, musique, hotpotqa or 2wikimultihopqa, "arithmetic:<split>" or
// "arithmetic:<split>:<count>" for problems of the built-in generator, whose
// splits are train, gate and test. A file of such a name is "./arithmetic".
type Tasks struct {
	// Train is the split that is learned from.
	Train string `json:"train,omitempty"`
	// Gate is the split that promotion looks at.
	Gate string `json:"gate,omitempty"`
	// Test is only reported: before, and once at the end.
	Test string `json:"test,omitempty"`
	// Command is a program that lists the tasks of sources "command:<split>", and that
	// grades with grader.type "tasks": program and arguments.
	Command []string `json:"command,omitempty"`
	// Directory is that command's working directory; the spec file's by default.
	Directory string `json:"directory,omitempty"`
	// Harbor says how tasks of sources "harbor:<directory>" are attempted.
	Harbor *Harbored `json:"harbor,omitempty"`
}

// Harbored is how tasks in Harbor's format are attempted.
type Harbored struct {
	// Container is the program that runs their containers, "docker" or "podman". Without one
	// agents and tests are processes of the worker's machine.
	Container string `json:"container,omitempty"`
}

// Named is the source of a split by its name: train, gate or test.
func (t Tasks) Named(split string) (source string, ok bool) {
	switch split {
	case "train":
		return t.Train, true
	case "gate":
		return t.Gate, true
	case "test":
		return t.Test, true
	}
	return "", false
}

// Grader turns what an agent returned into a reward.
type Grader struct {
	// Type is "exact", "numeric", "contains", "qa", "sql", "command", "tasks" when
	// tasks.command grades, "harbor" when the task's own tests do, or "agent" when the agent
	// itself reports its reward.
	Type string `json:"type"`
	// Tolerance of "numeric", absolute.
	Tolerance float64 `json:"tolerance,omitempty"`
	// Command of "command": reads {task, result} as JSON, prints the reward last.
	Command []string `json:"command,omitempty"`
	// Directory is the command's working directory; the spec file's by default.
	Directory string `json:"directory,omitempty"`
	// Seconds that a command, an answer of "tasks" or each query of "sql" may take.
	Seconds float64 `json:"seconds,omitempty"`
	// Metric of "qa" is "f1", which is the default, or "exact".
	Metric string `json:"metric,omitempty"`
	// KeepDistinct has "sql" compare queries with the word DISTINCT in them, which the
	// official evaluation of Spider removes.
	KeepDistinct bool `json:"keep_distinct,omitempty"`
	// Limit is the largest magnitude of a reward; what is beyond it is refused.
	Limit float64 `json:"limit,omitempty"`
	// Minimum is the smallest reward that a "command", "tasks" or an "agent" may give; what is
	// below it is refused. Without one it is -Limit.
	Minimum *float64 `json:"minimum,omitempty"`
}

// Sampling is forced on the calls of rollouts that are trained or gated.
type Sampling struct {
	// Temperature is 1 when absent; training at 0 would be greedy and is refused.
	Temperature *float64 `json:"temperature,omitempty"`
	// MaxTokens is the most tokens of one reply.
	MaxTokens int `json:"max_tokens,omitempty"`
	// History says how a dialog is continued: "append" keeps the tokens of earlier
	// calls, "template" renders it anew as a plain server would.
	History string `json:"history,omitempty"`
	// Engine of the built-in sampler: "native", on the CPU, or "torch", in the same program
	// that trains with model.engine "torch". It follows model.engine where it is empty and no
	// Server samples; in runs on record, empty is "native".
	Engine string `json:"engine,omitempty"`
	// Server samples instead of the built-in sampler.
	Server *Server `json:"server,omitempty"`
}

// Server is a sampler of others.
type Server struct {
	// Type is "vllm" or "sglang", which take and give token ids, or "openai" for others
	// that take messages: with those nothing can be trained.
	Type string `json:"type"`
	// URLs of replicas that serve the same model, without /v1.
	URLs []string `json:"urls"`
	// Model is its name there.
	Model string `json:"model"`
	// Versions says how a version is loaded: "adapters" keeps several as LoRA
	// adapters, "reload" has the server load one at a time, "none" serves the base
	// model alone.
	Versions string `json:"versions,omitempty"`
	// Key names the environment variable, of the process that samples, that holds
	// the API key.
	Key string `json:"key,omitempty"`
	// ShareGPU says that the servers, of type vllm with --enable-sleep-mode, run on the GPU
	// that trains: they sleep during updates, and calls wait for them.
	ShareGPU bool `json:"share_gpu,omitempty"`
	// Directory is where versions are written for the server to read.
	Directory string `json:"directory,omitempty"`
	// Tolerance is how far, in nats, a server's log-probabilities of a version's canary
	// may be from the trainer's, as the root of the mean square over its tokens; 0 is 0.3.
	Tolerance float64 `json:"tolerance,omitempty"`
	// Mismatch is the largest train/mismatch, in nats, that a step is trained with. 0 is
	// 0.2 without a lag, and no limit with one.
	Mismatch float64 `json:"mismatch,omitempty"`
	// WorstMismatch is the largest train/mismatch_max, that of a single token, in nats; 0
	// is no limit.
	WorstMismatch float64 `json:"worst_mismatch,omitempty"`
}

// Training says how much, and how an update is made.
type Training struct {
	// Steps is the number of updates. Give it or Epochs.
	Steps int `json:"steps,omitempty"`
	// Epochs is the number of passes over the training tasks. Give it or Steps.
	Epochs int `json:"epochs,omitempty"`
	// TasksPerStep is the number of groups that an update is made from.
	TasksPerStep int `json:"tasks_per_step,omitempty"`
	// SamplesPerTask is the size of a group: how often each task is attempted.
	SamplesPerTask int `json:"samples_per_task,omitempty"`
	// Lag is how many steps the version that samples may be behind the one that is
	// trained: rollouts of that many steps go on while a version is updated.
	Lag int `json:"lag,omitempty"`
	// DynamicSampling is how many groups a step may replace because they would get no
	// advantage, which teaches nothing (DAPO).
	DynamicSampling int `json:"dynamic_sampling,omitempty"`
	// Curriculum says which tasks a step attempts; without one each is attempted once an
	// epoch.
	Curriculum *Curriculum `json:"curriculum,omitempty"`
	// Passes over a step's batch.
	Passes int `json:"passes,omitempty"`
	// Minibatches that a pass is split into; each is one optimizer update.
	Minibatches int `json:"minibatches,omitempty"`
	// Optimizer is AdamW with a schedule.
	Optimizer Optimizer `json:"optimizer,omitzero"`
	// Keep says which versions keep their files; without it all do.
	Keep *Keep `json:"keep,omitempty"`
}

// Keep says of which versions the weights and the optimizer's moments are kept while a
// run goes on. Beside those, version 0, the newest, the promoted one, the one promoted
// before it, and all that rollouts, evaluations or a person's decision are about keep
// them in any case.
type Keep struct {
	// Last is how many of the newest versions.
	Last int `json:"last,omitempty"`
	// Every keeps each version whose number it divides; 0 keeps none for its number.
	Every int `json:"every,omitempty"`
	// Promoted keeps every version that was ever promoted.
	Promoted bool `json:"promoted,omitempty"`
}

// Optimizer is AdamW with a schedule.
type Optimizer struct {
	// LearningRate at the first step.
	LearningRate float64 `json:"learning_rate,omitempty"`
	// Schedule is "constant", "linear" or "cosine": from LearningRate at the
	// first step down to FinalFraction of it at the last.
	Schedule string `json:"schedule,omitempty"`
	// FinalFraction of LearningRate is what "linear" and "cosine" end with.
	FinalFraction float64 `json:"final_fraction,omitempty"`
	// WeightDecay is decoupled from the gradient and scaled by the learning rate.
	WeightDecay float64 `json:"weight_decay,omitempty"`
	// ClipNorm is the norm that a longer gradient is scaled down to.
	ClipNorm float64 `json:"clip_norm,omitempty"`
	// Beta1 is the decay of the mean of gradients.
	Beta1 float64 `json:"beta1,omitempty"`
	// Beta2 is the decay of the mean of squared gradients.
	Beta2 float64 `json:"beta2,omitempty"`
	// Epsilon is added to the root of that mean.
	Epsilon float64 `json:"epsilon,omitempty"`
	// Moments is the type of the two means: "f32", or "int8", which takes a quarter of the
	// memory and is of engine "torch" alone. Empty is "f32".
	Moments string `json:"moments,omitempty"`
}

// Evaluation says when and how much.
type Evaluation struct {
	// Every so many steps the gate split is evaluated.
	Every int `json:"every,omitempty"`
	// Samples per task of the split.
	Samples int `json:"samples,omitempty"`
	// Success is the least reward that counts as a success, where pass@k is shown; 1
	// without it.
	Success *float64 `json:"success,omitempty"`
	// Only is the split, train, gate or test, of a run that trains nothing: it evaluates
	// version 0 on that split and ends.
	Only string `json:"only,omitempty"`
}

// SuccessThreshold is the least reward that counts as a success.
func (e Evaluation) SuccessThreshold() float64 {
	if e.Success == nil {
		return 1
	}
	return *e.Success
}

// Promotion is the rule by which a version becomes the promoted one.
type Promotion struct {
	// Margin by which the mean reward on the gate split must exceed that of the
	// promoted version.
	Margin float64 `json:"margin,omitempty"`
	// Significance is the largest p-value, one-sided, of a paired test over the
	// tasks of the gate split at which a better mean counts; 1 switches it off.
	Significance float64 `json:"significance,omitempty"`
	// Approval makes a person decide, by the Update "approve" or "reject".
	Approval bool `json:"approval,omitempty"`
	// ApprovalHours until a candidate that nobody decided on is refused.
	ApprovalHours float64 `json:"approval_hours,omitempty"`
}

// Replay says what may differ between two attempts that make the same call.
type Replay struct {
	// Ignore lists regular expressions (RE2). What they match in a message does
	// not tell two requests apart: a date, a directory, a session id.
	Ignore []string `json:"ignore,omitempty"`
}
