package spec_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/spec"
)

func valid() spec.Spec {
	return spec.Spec{
		Agent:    spec.Agent{Func: "calculator"},
		Tasks:    spec.Tasks{Train: "arithmetic:train", Gate: "arithmetic:gate", Test: "arithmetic:test"},
		Grader:   spec.Grader{Type: "exact"},
		Training: spec.Training{Steps: 40},
	}
}

func TestARunThatOnlyEvaluatesNeedsItsSplitAlone(t *testing.T) {
	t.Parallel()
	only := func(change func(*spec.Spec)) error {
		s := spec.Spec{
			Agent: spec.Agent{Func: "calculator"}, Tasks: spec.Tasks{Gate: "arithmetic:gate"}, Grader: spec.Grader{Type: "exact"},
			Evaluation: spec.Evaluation{Only: "gate", Samples: 4},
		}
		change(&s)
		return s.Validate()
	}
	require.NoError(t, only(func(*spec.Spec) {}))
	require.NoError(t, only(func(s *spec.Spec) { s.Model.Version = "demo@12" }))
	refused := map[string]string{}
	for want, change := range map[string]func(*spec.Spec){
		"tasks.test: missing":                      func(s *spec.Spec) { s.Evaluation.Only = "test" },
		`evaluation.only: unknown name "tets"`:     func(s *spec.Spec) { s.Evaluation.Only = "tets" },
		"training.steps: unused key":               func(s *spec.Spec) { s.Training.Steps = 1 },
		"training.epochs: unused key":              func(s *spec.Spec) { s.Training.Epochs = 1 },
		"evaluation.every: unused key":             func(s *spec.Spec) { s.Evaluation.Every = 1 },
		"promotion.margin: promotion has no split": func(s *spec.Spec) { s.Promotion.Margin = 1 },
		"critic: unused key":                       func(s *spec.Spec) { s.Critic = &spec.Critic{} },
		`model.version: "demo"`:                    func(s *spec.Spec) { s.Model.Version = "demo" },
		"model.base: unused key":                   func(s *spec.Spec) { s.Model.Version, s.Model.Base = "demo@1", "/m" },
		"evaluation.success: NaN is not possible":  func(s *spec.Spec) { nan := math.NaN(); s.Evaluation.Success = &nan },
		"sampling.server": func(s *spec.Spec) {
			s.Model = spec.Model{Version: "demo@1", Codec: "messages"}
			s.Sampling.Server = &spec.Server{Type: "openai", URLs: []string{"http://a"}, Model: "m"}
		},
	} {
		require.ErrorContains(t, only(change), want)
		refused[want] = only(change).Error()
	}
	golden.Table(t, "refused_evaluations", refused)
}

func TestImpossibleSpecsAreRefusedByKey(t *testing.T) {
	t.Parallel()
	require.NoError(t, valid().Validate())
	float := func(v float64) *float64 { return &v }
	refused := map[string]string{}
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"bad name":             {func(s *spec.Spec) { s.Name = "A run" }, "name: "},
		"name with dash last":  {func(s *spec.Spec) { s.Name = "run-" }, "name: "},
		"unknown engine":       {func(s *spec.Spec) { s.Model.Engine = "cuda" }, "model.engine: "},
		"near engine":          {func(s *spec.Spec) { s.Model.Engine = "nativ" }, "did you mean native?"},
		"unknown codec":        {func(s *spec.Spec) { s.Model.Codec = "chatml" }, "model.codec: "},
		"template of tiny":     {func(s *spec.Spec) { s.Model.Codec = "template" }, "model.codec: "},
		"parser of compact":    {func(s *spec.Spec) { s.Model.ToolParser = "hermes" }, "model.tool_parser: "},
		"variables of compact": {func(s *spec.Spec) { s.Model.TemplateVariables = map[string]any{"enable_thinking": false} }, "model.template_variables: "},
		"variables of dialogs": {func(s *spec.Spec) {
			s.Model.Codec, s.Model.Base, s.Model.Context = "template", "/m", 0
			s.Model.TemplateVariables = map[string]any{"enable_thinking": false, "messages": 1}
		}, "model.template_variables.messages: "},
		"stop tokens of compact": {func(s *spec.Spec) { s.Sampling.StopTokens = []string{"</s>", "</s>"} }, "sampling.stop_tokens: "},
		"template of compact":    {func(s *spec.Spec) { s.Model.Template = "/t.jinja" }, "model.template: unused key"},
		"no context":             {func(s *spec.Spec) { s.Model.Context = 1 }, "model.context: "},
		"context of a base":      {func(s *spec.Spec) { s.Model.Base, s.Model.Context = "/m", 64 }, "model.context: unused key"},
		"adapter of gomlx":       {func(s *spec.Spec) { s.Model.Engine, s.Model.LoRA = "gomlx", &spec.LoRA{} }, "model.lora: "},
		"8 bits of native":       {func(s *spec.Spec) { s.Training.Optimizer.Moments = "int8" }, "training.optimizer.moments: "},
		"bits of moments":        {func(s *spec.Spec) { s.Training.Optimizer.Moments = "int4" }, "training.optimizer.moments: "},
		"adapter of no rank":     {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{Rank: -1} }, "model.lora.rank: "},
		"adapter of alpha":       {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{Alpha: -1} }, "model.lora.alpha: "},
		"adapter of the head":    {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{Targets: []string{"lm_head"}} }, "model.lora.targets: "},
		"precision of a base":    {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{BasePrecision: "q4_0"} }, "model.lora.base_precision: "},
		"token twice":            {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{TrainableTokens: []string{"5", "5"}} }, "model.lora.trainable_tokens[1]: "},
		"text of compact":        {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{TrainableTokens: []string{"<tool_call>"}} }, "model.lora.trainable_tokens[0]: "},
		"auto of compact":        {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{TrainableTokens: []string{"auto"}} }, "model.lora.trainable_tokens[0]: "},
		"auto and a token": {func(s *spec.Spec) {
			s.Model.Base, s.Model.Codec, s.Model.LoRA = "base", "template", &spec.LoRA{TrainableTokens: []string{"</s>", "auto"}}
		}, "model.lora.trainable_tokens[1]: "},
		"no token": {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{TrainableTokens: []string{""}} }, "model.lora.trainable_tokens[0]: "},
		"too many tokens": {func(s *spec.Spec) {
			s.Model.LoRA = &spec.LoRA{}
			for i := range 1025 {
				s.Model.LoRA.TrainableTokens = append(s.Model.LoRA.TrainableTokens, strconv.Itoa(i))
			}
		}, "model.lora.trainable_tokens: "},
		"tokens at vllm": {func(s *spec.Spec) {
			s.Model.LoRA = &spec.LoRA{TrainableTokens: []string{"5"}}
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://localhost:8000"}, Model: "m", Directory: "d"}
		}, "model.lora.trainable_tokens: "},
		"layer twice": {func(s *spec.Spec) { s.Model.LoRA = &spec.LoRA{Targets: []string{"q_proj", "q_proj"}} }, "model.lora.targets: "},
		"adapter of a server": {func(s *spec.Spec) {
			s.Model.LoRA = &spec.LoRA{}
			s.Sampling.Server = &spec.Server{Type: "sglang", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
		}, "model.lora: "},
		"adapter of a rank that vllm lacks": {func(s *spec.Spec) {
			s.Model.LoRA = &spec.LoRA{Rank: 600}
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
		}, "model.lora.rank: "},
		"tolerance of nothing": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "sglang", URLs: []string{"http://a"}, Model: "m", Directory: "/d", Tolerance: 1}
		}, "sampling.server.tolerance: "},
		"mismatch without training": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m", Versions: "none", Mismatch: 1}
		}, "sampling.server.mismatch: "},
		"service and func": {func(s *spec.Spec) { s.Agent.Service = &spec.Service{URL: "http://a"} }, "agent: "},
		"service nowhere":  {func(s *spec.Spec) { s.Agent = spec.Agent{Service: &spec.Service{URL: "a:b"}} }, "agent.service.url: "},
		"bad header": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a", Headers: map[string]string{"A:": "b"}}}
		}, "agent.service.headers.A:: no header"},
		"password in a service's address": {func(s *spec.Spec) { s.Agent = spec.Agent{Service: &spec.Service{URL: "http://ada:hush@a/run"}} },
			"agent.service.url: "},
		"password in a service's bad address": {func(s *spec.Spec) { s.Agent = spec.Agent{Service: &spec.Service{URL: "http//ada:hush@a/run"}} },
			"agent.service.url: "},
		"password in a tool server's address": {func(s *spec.Spec) { s.Agent.ToolServers = []string{"http://ada:hush@a/"} }, "agent.tool_servers[0]: "},
		"header of the worker": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a/", Headers: map[string]string{"content-length": "3"}}}
		}, "agent.service.headers.content-length: the worker sets this header itself"},
		"header twice": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a/", Headers: map[string]string{"X-Team": "a"}, SecretHeaders: map[string]string{"x-team": "TEAM"}}}
		}, "agent.service.secret_headers.x-team: agent.service.headers.X-Team is the same header"},
		"secret header without a variable": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a/", SecretHeaders: map[string]string{"Authorization": "Bearer hush"}}}
		}, "agent.service.secret_headers.Authorization: no environment variable"},
		"secret header with a sign": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a/", SecretHeaders: map[string]string{"Authorization": "$TOKEN"}}}
		}, "agent.service.secret_headers.Authorization: no environment variable"},
		"fragment of an address": {func(s *spec.Spec) { s.Agent.ToolServers = []string{"http://a/#b"} }, "agent.tool_servers[0]: "},
		"port of an address":     {func(s *spec.Spec) { s.Agent.ToolServers = []string{"http://a:99999/"} }, "agent.tool_servers[0]: "},
		"sandbox of a service": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a"}, Sandbox: "process"}
		}, "agent.sandbox: "},
		"sandbox of a function": {func(s *spec.Spec) { s.Agent = spec.Agent{Func: "f", Sandbox: "process"} }, "agent.sandbox: "},
		"sandbox of a workflow": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: "w", Queue: "q"}, Sandbox: "process"}
		}, "agent.sandbox: "},
		"unknown sandbox":            {func(s *spec.Spec) { s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "jail"} }, "agent.sandbox: "},
		"container without an image": {func(s *spec.Spec) { s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "container"} }, "agent.image: "},
		"an option as an image": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "container", Image: "--privileged"}
		}, "agent.image: "},
		"image of no container": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", Image: "a"}
		}, "agent.image: "},
		"image of a function": {func(s *spec.Spec) { s.Agent = spec.Agent{Func: "f", Image: "a"} }, "agent.image: "},
		"ID of no image": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "container", Image: "a", ImageID: "latest"}
		}, "agent.image_id: "},
		"cleaning after a container": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "container", Image: "a", After: []string{"clear"}}
		}, "agent.after: "},
		"address that a container can't reach": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "container", Image: "a", Network: []string{"127.0.0.1:1", "192.0.2.1:1"}}
		}, "agent.network[1]: "},
		"server that a container can't reach": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "container", Image: "a", ToolServers: []string{"http://192.0.2.1/"}}
		}, "agent.tool_servers[0]: "},
		"cleaning after a sandbox": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", After: []string{"clear"}}
		}, "agent.after: "},
		"network of no sandbox": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "none", Network: []string{"a:1"}}
		}, "agent.network: "},
		"writable path of no sandbox": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "none", Writable: []string{"a"}}
		}, "agent.writable: "},
		"limit of no sandbox": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "none", Limits: spec.AgentLimits{CPUSeconds: 1}}
		}, "agent.limits.cpu_seconds: "},
		"network with agent.after": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, After: []string{"clear"}, Network: []string{"a:1"}}
		}, "agent.network: "},
		"network of a function":    {func(s *spec.Spec) { s.Agent = spec.Agent{Func: "f", Network: []string{"a:1"}} }, "agent.network: "},
		"no sandbox of a function": {func(s *spec.Spec) { s.Agent = spec.Agent{Func: "f", Sandbox: "none"} }, "agent.sandbox: "},
		"reason of a sandbox": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", SandboxReason: "why"}
		}, "agent.sandbox_reason: "},
		"reason of several lines": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "none", SandboxReason: "a\nb"}
		}, "agent.sandbox_reason: "},
		"network without a port, undecided": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Network: []string{"api.example"}}
		}, "agent.network[0]: "},
		"negative processes, undecided": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Limits: spec.AgentLimits{Processes: -1}}
		}, "agent.limits.processes: "},
		"network without a port": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", Network: []string{"a:1", "api.example"}}
		}, "agent.network[1]: "},
		"network of an IPv6 address": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", Network: []string{"[2001:db8::1]:443"}}
		}, "agent.network[0]: "},
		"network twice": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", Network: []string{"a:1", "a:1"}}
		}, "agent.network[1]: "},
		"everything writable": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", Writable: []string{"//"}}
		}, "agent.writable[0]: "},
		"negative processes": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Sandbox: "process", Limits: spec.AgentLimits{Processes: -1}}
		}, "agent.limits.processes: "},
		"tool server twice":     {func(s *spec.Spec) { s.Agent.ToolServers = []string{"http://a/", "http://a/"} }, "agent.tool_servers[1]: "},
		"function with a space": {func(s *spec.Spec) { s.Agent.Func = "calculator " }, "agent.func: "},
		"workflow with a space": {func(s *spec.Spec) { s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: " a", Queue: "b"}} },
			"agent.temporal.workflow: "},
		"server with a version": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a/v1"}, Model: "m", Directory: "/d"}
		}, "sampling.server.urls[0]: "},
		"server with a query": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a?key=b"}, Model: "m", Directory: "/d"}
		}, "sampling.server.urls[0]: "},
		"model with a space": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m ", Directory: "/d"}
		}, "sampling.server.model: "},
		"key for a variable": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m", Directory: "/d", Key: "sk-hush"}
		}, "sampling.server.key: "},
		"key of a judge": {func(s *spec.Spec) {
			s.Credit.Assignment, s.Credit.Judge = "judge", &spec.Judge{URL: "http://a/v1", Model: "m", Key: "$KEY"}
		}, "credit.judge.key: "},
		"reward without a name": {func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"": 1} }, "credit.rewards: "},
		"reward with a space":   {func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"style ": 1} }, "credit.rewards: "},
		"queue with a space":    {func(s *spec.Spec) { s.Agent.Queue = " mine" }, "agent.queue: "},
		"queue of several":      {func(s *spec.Spec) { s.Agent.Queue = "a,b" }, "agent.queue: a comma"},
		"queue of the trainers": {func(s *spec.Spec) { s.Agent.Queue = "train-gpu" }, "agent.queue: "},
		"temporal on our queue": {func(s *spec.Spec) { s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: "a", Queue: "training"}} },
			"agent.temporal.queue: "},
		"temporal on the agents' queue": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: "a", Queue: "rollout-cpu"}}
		},
			"agent.temporal.queue: "},
		"temporal and a queue": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Queue: "mine", Temporal: &spec.Temporal{Workflow: "a", Queue: "q"}}
		},
			"agent.queue: "},
		"temporal without type": {func(s *spec.Spec) { s.Agent = spec.Agent{Temporal: &spec.Temporal{Queue: "q"}} }, "agent.temporal: "},
		"temporal with both": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: "a", Activity: "b", Queue: "q"}}
		}, "agent.temporal: both"},
		"temporal without queue": {func(s *spec.Spec) { s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: "a"}} }, "agent.temporal.queue: missing"},
		"tasks of no program":    {func(s *spec.Spec) { s.Tasks.Train = "command:train" }, "tasks.command: "},
		"grades of no program":   {func(s *spec.Spec) { s.Grader.Type = "tasks" }, "tasks.command: "},
		"program without use":    {func(s *spec.Spec) { s.Tasks.Command = []string{"p"} }, "tasks.command: "},
		"directory of nothing":   {func(s *spec.Spec) { s.Tasks.Directory = "/d" }, "tasks.directory: unused key"},
		"nameless split":         {func(s *spec.Spec) { s.Tasks = spec.Tasks{Command: []string{"p"}, Train: "command:"} }, "tasks.train: "},
		"the same split twice": {func(s *spec.Spec) {
			s.Tasks = spec.Tasks{Command: []string{"p"}, Train: "command:a", Gate: "command:a"}
		}, "tasks.gate: "},
		"no tool server":          {func(s *spec.Spec) { s.Agent.ToolServers = []string{"http://a/healthz", "b"} }, "agent.tool_servers[1]: "},
		"empty hook":              {func(s *spec.Spec) { s.Agent.Before = []string{""} }, "agent.before[0]: empty"},
		"unknown sampling engine": {func(s *spec.Spec) { s.Sampling.Engine = "gomlx" }, "sampling.engine: unknown name"},
		"sampling engine beside a server": {func(s *spec.Spec) {
			s.Sampling.Engine = "torch"
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
		}, "sampling.engine: "},
		"unknown history": {func(s *spec.Spec) { s.Sampling.History = "all" }, "sampling.history: unknown name"},
		"server nowhere":  {func(s *spec.Spec) { s.Sampling.Server = &spec.Server{Type: "vllm", Model: "m", Versions: "none"} }, "sampling.server.urls: missing"},
		"server without model": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Versions: "none"}
		}, "sampling.server.model: missing"},
		"hotter than a server takes": {func(s *spec.Spec) {
			s.Sampling.Temperature = float(2.5)
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
		}, "sampling.temperature: "},
		"unknown server": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "tgi", URLs: []string{"http://a"}, Model: "m", Versions: "none"}
		}, "sampling.server.type: "},
		"one version and a lag": {func(s *spec.Spec) {
			s.Training.Lag = 1
			s.Sampling.Server = &spec.Server{Type: "sglang", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
		}, "training.lag: "},
		"adapters nowhere": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m"}
		}, "sampling.server.directory: missing"},
		"warm without source": {func(s *spec.Spec) { s.Model.WarmStart = &spec.WarmStart{Updates: 1} }, "model.warm_start.demonstrations: "},
		"warm with a split": {func(s *spec.Spec) {
			s.Model.WarmStart = &spec.WarmStart{Demonstrations: "arithmetic:train", Updates: 1}
		}, "model.warm_start.demonstrations: "},
		"warm without updates":  {func(s *spec.Spec) { s.Model.WarmStart = &spec.WarmStart{Demonstrations: "arithmetic"} }, "model.warm_start.updates: "},
		"no agent":              {func(s *spec.Spec) { s.Agent.Func = "" }, "agent: no agent"},
		"two agents":            {func(s *spec.Spec) { s.Agent.Command = []string{"a"} }, "agent: "},
		"func with directory":   {func(s *spec.Spec) { s.Agent.Directory = "/" }, "agent.directory: unused key"},
		"func with output":      {func(s *spec.Spec) { s.Agent.Limits.OutputBytes = 9 }, "agent.limits.output_bytes: "},
		"func with environment": {func(s *spec.Spec) { s.Agent.Environment = map[string]string{"A": "b"} }, "agent.environment: unused key"},
		"func with a secret":    {func(s *spec.Spec) { s.Agent.SecretEnvironment = map[string]string{"A": "B"} }, "agent.secret_environment: unused key"},
		"secret variable without a variable": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, SecretEnvironment: map[string]string{"KEY": "sk-hush"}}
		}, "agent.secret_environment.KEY: no name of an environment variable"},
		"secret variable with a sign": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, SecretEnvironment: map[string]string{"A=B": "KEY"}}
		}, "agent.secret_environment.A=B: no environment variable"},
		"secret variable of the fleet": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, SecretEnvironment: map[string]string{"KEY": "FULGURITE_FLEET_KEY"}}
		}, "agent.secret_environment.KEY: FULGURITE_FLEET_KEY gives access to the fleet and its store"},
		"secret variable of Temporal": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, SecretEnvironment: map[string]string{"KEY": "TEMPORAL_GRPC_META_AUTHORIZATION"}}
		}, "agent.secret_environment.KEY: TEMPORAL_GRPC_META_AUTHORIZATION gives access to the fleet and its store"},
		"secret header of the fleet": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Service: &spec.Service{URL: "http://a/", SecretHeaders: map[string]string{"Authorization": "FULGURITE_STORE"}}}
		}, "agent.service.secret_headers.Authorization: FULGURITE_STORE gives access to the fleet and its store"},
		"key of a server of the fleet": {func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: spec.ServerOpenAI, URLs: []string{"http://a"}, Model: "m", Key: "PGPASSWORD"}
		}, "sampling.server.key: PGPASSWORD gives access to the fleet and its store"},
		"variable twice": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Environment: map[string]string{"KEY": "c"}, SecretEnvironment: map[string]string{"KEY": "B"}}
		}, "agent.secret_environment.KEY: agent.environment.KEY is the same variable"},
		"empty program": {func(s *spec.Spec) { s.Agent = spec.Agent{Command: []string{""}} }, "agent.command[0]: empty"},
		"bad variable": {func(s *spec.Spec) {
			s.Agent = spec.Agent{Command: []string{"a"}, Environment: map[string]string{"A=B": "c"}}
		}, "agent.environment.A=B: "},
		"failure reward":         {func(s *spec.Spec) { s.Agent.FailureReward = math.Inf(-1) }, "agent.failure_reward: "},
		"negative calls":         {func(s *spec.Spec) { s.Agent.Limits.Calls = -1 }, "agent.limits.calls: "},
		"negative tokens":        {func(s *spec.Spec) { s.Agent.Limits.Tokens = -1 }, "agent.limits.tokens: "},
		"endless":                {func(s *spec.Spec) { s.Agent.Limits.Seconds = math.Inf(1) }, "agent.limits.seconds: "},
		"no tasks":               {func(s *spec.Spec) { s.Tasks.Train = "" }, "tasks.train: missing"},
		"no split":               {func(s *spec.Spec) { s.Tasks.Train = "arithmetic" }, "tasks.train: "},
		"unknown split":          {func(s *spec.Spec) { s.Tasks.Test = "arithmetic:dev" }, "tasks.test: "},
		"zero tasks":             {func(s *spec.Spec) { s.Tasks.Train = "arithmetic:train:0" }, "tasks.train: "},
		"shared split":           {func(s *spec.Spec) { s.Tasks.Test = "arithmetic:gate:7" }, "tasks.test: "},
		"shared file":            {func(s *spec.Spec) { s.Tasks.Train, s.Tasks.Gate = "a.jsonl", "a.jsonl" }, "tasks.gate: "},
		"no grader":              {func(s *spec.Spec) { s.Grader.Type = "" }, "grader.type: missing"},
		"unknown grader":         {func(s *spec.Spec) { s.Grader.Type = "regex" }, "grader.type: unknown name"},
		"tolerance of exact":     {func(s *spec.Spec) { s.Grader.Tolerance = 1 }, "grader.tolerance: unused key"},
		"negative tolerance":     {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "numeric", Tolerance: -1} }, "grader.tolerance: "},
		"command of exact":       {func(s *spec.Spec) { s.Grader.Command = []string{"g"} }, "grader.command: unused key"},
		"seconds of exact":       {func(s *spec.Spec) { s.Grader.Seconds = 1 }, "grader.seconds: unused key"},
		"grader without command": {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "command"} }, "grader.command: missing"},
		"metric of exact":        {func(s *spec.Spec) { s.Grader.Metric = "f1" }, "grader.metric: unused key"},
		"metric of another":      {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "sql", Metric: "f1"} }, "grader.metric: "},
		"metric of another qa":   {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "qa", Metric: "bird"} }, "give f1 or exact"},
		"distinct of bird":       {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "sql", Metric: "bird", KeepDistinct: true} }, "grader.keep_distinct: "},
		"extract of contains":    {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "contains", Extract: "boxed"} }, "grader.extract: unused key"},
		"unknown extract":        {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "numeric", Extract: "first"} }, "grader.extract: "},
		"extract after nothing":  {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "numeric", Extract: "after"} }, "grader.extract: "},
		"extract by no regex":    {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "numeric", Extract: "regex ("} }, "grader.extract: "},
		"last number of exact":   {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "exact", Extract: "last_number"} }, "last_number is only for grader.type \"numeric\""},
		"extract with more":      {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "numeric", Extract: "boxed x"} }, "something follows \"boxed\""},
		"unknown metric":         {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "qa", Metric: "bleu"} }, "grader.metric: unknown name"},
		"distinct of exact":      {func(s *spec.Spec) { s.Grader.KeepDistinct = true }, "grader.keep_distinct: "},
		"negative seconds":       {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "sql", Seconds: -1} }, "grader.seconds: -1"},
		"minimum of qa":          {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "qa", Minimum: float(0)} }, "grader.minimum: unused key"},
		"greedy":                 {func(s *spec.Spec) { s.Sampling.Temperature = float(0) }, "sampling.temperature: "},
		"negative temperature":   {func(s *spec.Spec) { s.Sampling.Temperature = float(-1) }, "sampling.temperature: "},
		"no temperature":         {func(s *spec.Spec) { s.Sampling.Temperature = float(math.NaN()) }, "sampling.temperature: NaN"},
		"negative max tokens":    {func(s *spec.Spec) { s.Sampling.MaxTokens = -1 }, "sampling.max_tokens: "},
		"no steps":               {func(s *spec.Spec) { s.Training.Steps = 0 }, "training.steps: missing"},
		"negative steps":         {func(s *spec.Spec) { s.Training.Steps = -3 }, "training.steps: -3"},
		"steps and epochs":       {func(s *spec.Spec) { s.Training.Epochs = 1 }, "training.epochs: "},
		"group of one":           {func(s *spec.Spec) { s.Training.SamplesPerTask = 1 }, "training.samples_per_task: "},
		"deviation of one":       {func(s *spec.Spec) { s.Training.SamplesPerTask, s.Credit.Mean = 1, "none" }, "credit.std: "},
		"learning rate":          {func(s *spec.Spec) { s.Training.Optimizer.LearningRate = math.NaN() }, "training.optimizer.learning_rate: "},
		"schedule":               {func(s *spec.Spec) { s.Training.Optimizer.Schedule = "step" }, "training.optimizer.schedule: "},
		"constant with an end": {func(s *spec.Spec) {
			s.Training.Optimizer.Schedule, s.Training.Optimizer.FinalFraction = "constant", 0.5
		}, "training.optimizer.final_fraction: "},
		"beta":                      {func(s *spec.Spec) { s.Training.Optimizer.Beta2 = 1 }, "training.optimizer.beta2: "},
		"assignment":                {func(s *spec.Spec) { s.Credit.Assignment = "gae" }, "credit.assignment: "},
		"discount of identical":     {func(s *spec.Spec) { s.Credit.Discount = 0.9 }, "credit.discount: unused key"},
		"discount over 1":           {func(s *spec.Spec) { s.Credit.Assignment, s.Credit.Discount = "discounted", 1.1 }, "credit.discount: 1.1"},
		"leave one out of none":     {func(s *spec.Spec) { s.Credit.Mean, s.Credit.Std, s.Credit.LeaveOneOut = "batch", "batch", true }, "credit.leave_one_out: "},
		"loss":                      {func(s *spec.Spec) { s.Loss.Type = "grpo" }, "loss.type: "},
		"clip":                      {func(s *spec.Spec) { s.Loss.ClipLow = -0.2 }, "loss.clip_low: -0.2"},
		"margin without gate":       {func(s *spec.Spec) { s.Tasks.Gate, s.Promotion.Margin = "", 0.1 }, "promotion.margin: "},
		"every without gate":        {func(s *spec.Spec) { s.Tasks.Gate, s.Evaluation.Every = "", 5 }, "evaluation.every: unused key"},
		"samples without a split":   {func(s *spec.Spec) { s.Tasks.Gate, s.Tasks.Test, s.Evaluation.Samples = "", "", 2 }, "evaluation.samples: unused key"},
		"significance without gate": {func(s *spec.Spec) { s.Tasks.Gate, s.Promotion.Significance = "", 0.1 }, "promotion.significance: "},
		"significance over 1":       {func(s *spec.Spec) { s.Promotion.Significance = 1.5 }, "promotion.significance: 1.5"},
		"hours without approval":    {func(s *spec.Spec) { s.Promotion.ApprovalHours = 2 }, "promotion.approval_hours: "},
		"func with memory":          {func(s *spec.Spec) { s.Agent.Limits.MemoryBytes = 1 << 30 }, "agent.limits.memory_bytes: "},
		"negative idle":             {func(s *spec.Spec) { s.Agent.Limits.IdleSeconds = -1 }, "agent.limits.idle_seconds: -1"},
		"reward limit":              {func(s *spec.Spec) { s.Grader.Limit = -1 }, "grader.limit: -1"},
		"lag":                       {func(s *spec.Spec) { s.Training.Lag = 9 }, "training.lag: "},
		"empty minibatches":         {func(s *spec.Spec) { s.Training.Minibatches = 17 }, "training.minibatches: 17 of 16 groups"},
		"correction":                {func(s *spec.Spec) { s.Loss.Correction = "vtrace" }, "loss.correction: "},
		"cap of none":               {func(s *spec.Spec) { s.Loss.ImportanceCap = 2 }, "loss.importance_cap: "},
		"bad pattern":               {func(s *spec.Spec) { s.Replay.Ignore = []string{"["} }, "replay.ignore[0]: "},
		"pattern of nothing":        {func(s *spec.Spec) { s.Replay.Ignore = []string{"a", "x*"} }, "replay.ignore[1]: "},
		"negative margin":           {func(s *spec.Spec) { s.Promotion.Margin = -0.1 }, "promotion.margin: -0.1"},
	} {
		s := valid()
		c.change(&s)
		require.ErrorContains(t, s.Validate(), c.want, name)
		refused[name] = s.Validate().Error()
		var f *spec.Faults
		require.ErrorAs(t, s.Validate(), &f)
		require.Len(t, f.List, 1, "%s: one fault has one cause: %v", name, f)
		require.Equal(t, s.Validate(), s.WithDefaults().Validate(), "%s: defaults change nothing", name)
	}
	golden.Table(t, "refused", refused)
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Agent.Func, s.Training.Steps, s.Loss.ClipLow, s.Grader.Type = "", -1, 7, "exakt"
	err := s.Validate()
	require.ErrorContains(t, err, "spec: 4 faults\n  agent: ")
	golden.Compare(t, "four_faults", err.Error())
	require.Equal(t, 4, strings.Count(err.Error(), "\n"))
}

func TestKeysWithoutEffectHaveNoDefault(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Tasks.Gate, s.Tasks.Test = "", ""
	s.Training.Optimizer.Schedule = "constant"
	d := s.WithDefaults()
	require.NoError(t, d.Validate())
	require.Zero(t, d.Agent.Limits.OutputBytes)
	require.Zero(t, d.Grader.Seconds)
	require.Zero(t, d.Credit.Discount)
	require.Zero(t, d.Training.Optimizer.FinalFraction)
	require.Zero(t, d.Evaluation)
}

func TestDefaultsAreThoseOfTheDemo(t *testing.T) {
	t.Parallel()
	d := valid().WithDefaults()
	require.Equal(t, uint64(1), d.Seed)
	require.Equal(t, spec.Model{Engine: "native", Base: "tiny", Context: 64, Codec: "compact"}, d.Model)
	require.Equal(t, "append", d.Sampling.History)
	require.Equal(t, spec.Agent{Func: "calculator", Queue: "rollout-cpu", Limits: spec.AgentLimits{Calls: 8, Seconds: 60}}, d.Agent)
	require.InDelta(t, 1, *d.Sampling.Temperature, 0)
	require.Equal(t, 24, d.Sampling.MaxTokens)
	require.Equal(t, spec.Training{Steps: 40, TasksPerStep: 16, SamplesPerTask: 8, Passes: 1, Minibatches: 1, Optimizer: spec.Optimizer{
		LearningRate: 5e-4, Schedule: "cosine", FinalFraction: 0.1, ClipNorm: 1, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8,
	}}, d.Training)
	require.Equal(t, spec.Credit{Combine: "sum", Truncated: "train", Assignment: "identical", Tokens: "uniform", Mean: "group", Std: "group", Whiten: "none"}, d.Credit)
	require.Equal(t, spec.Loss{Type: "ppo_clip", ClipLow: 0.2, ClipHigh: 0.28, Aggregation: "token_mean", Correction: "none"}, d.Loss)
	require.Equal(t, spec.Evaluation{Every: 5, Samples: 1}, d.Evaluation)
	require.Equal(t, spec.Promotion{Significance: 0.1}, d.Promotion)
}

func TestALagIsCorrectedUnlessTheSpecSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Training.Lag = 1
	d := s.WithDefaults()
	require.NoError(t, d.Validate())
	require.Equal(t, credit.Decoupled, d.Loss.Correction)
	require.InDelta(t, 2, d.Loss.ImportanceCap, 0)
	s.Loss.Correction = "none"
	require.Zero(t, s.WithDefaults().Loss.ImportanceCap)
}

func TestDefaultsTwiceChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		once := s.WithDefaults()
		require.Equal(t, once, once.WithDefaults())
	})
}

func TestDefaultsLeaveTheOriginalAlone(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Model.WarmStart = &spec.WarmStart{Demonstrations: "arithmetic", Updates: 1}
	require.Equal(t, 64, s.WithDefaults().Model.WarmStart.Batch)
	require.Zero(t, s.Model.WarmStart.Batch)
}

func TestEpochsBecomeSteps(t *testing.T) {
	t.Parallel()
	require.Equal(t, 7, spec.Training{Steps: 7, TasksPerStep: 3}.Total(100))
	require.Equal(t, 7, spec.Training{Epochs: 2, TasksPerStep: 3}.Total(10), "20 tasks by 3, rounded up")
	require.Equal(t, 2, spec.Training{Epochs: 1, TasksPerStep: 5}.Total(10))
}

// What a fault about a server advises is taken by servers of its type.
func TestARemedyForAServerWorksWithItsType(t *testing.T) {
	t.Parallel()
	for kind, versions := range map[string]string{"vllm": "adapters", "sglang": "reload"} {
		s := valid()
		s.Sampling.Server = &spec.Server{Type: kind, URLs: []string{"http://a"}, Model: "m", Versions: "none"}
		require.ErrorContains(t, s.Trainable(), "; give "+versions)
		s.Sampling.Server.Versions, s.Sampling.Server.Directory = versions, "/d"
		require.NoError(t, s.Validate())
		require.NoError(t, s.Trainable())
	}
	s := valid()
	s.Training.Lag = 1
	s.Sampling.Server = &spec.Server{Type: "sglang", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
	require.ErrorContains(t, s.Validate(), "training.lag: ")
	refused := map[string]string{"lag with one version at a time": s.Validate().Error()}
	s.Sampling.Server = nil
	require.NoError(t, s.Validate())
	s.Model.Version, s.Training, s.Evaluation.Only = "demo@1", spec.Training{}, "gate"
	s.Model.Codec = "messages"
	s.Sampling.Server = &spec.Server{Type: "openai", URLs: []string{"http://a"}, Model: "m"}
	require.ErrorContains(t, s.Validate(), "model.version")
	refused["a version and a server of others"] = s.Validate().Error()
	golden.Table(t, "refused_servers", refused)
}

func TestOnlyServersThatTakeWeightsCanBeTrainedWith(t *testing.T) {
	t.Parallel()
	s := valid()
	require.NoError(t, s.Trainable())
	s.Sampling.Server = &spec.Server{Type: "vllm", URLs: []string{"http://a"}, Model: "m", Directory: "/d"}
	require.NoError(t, s.Trainable())
	s.Sampling.Server.Versions, s.Sampling.Server.Directory = "none", ""
	require.ErrorContains(t, s.Trainable(), "sampling.server.versions: ")
	golden.Table(t, "refused_versions", map[string]string{"no versions": s.Trainable().Error()})
	require.NoError(t, s.Validate(), "it can be tried")
}

// The versions of the fleet's own gateway are a server as any other, and their key is for
// clients. Agents don't get it.
func TestTheServingKeyIsForServersAndNotForAgents(t *testing.T) {
	t.Parallel()
	const servingKey = "FULGURITE_SERVING_KEY"
	s := valid()
	s.Credit.Assignment, s.Credit.Judge = credit.Judge, &spec.Judge{URL: "http://gateway/v1", Model: "demo@promoted", Key: servingKey}
	require.NoError(t, s.WithDefaults().Validate())
	s = valid()
	s.Sampling.Server = &spec.Server{Type: spec.ServerOpenAI, URLs: []string{"http://gateway"}, Model: "demo@promoted", Key: servingKey}
	if err := s.Validate(); err != nil {
		require.NotContains(t, err.Error(), "sampling.server.key")
	}
	s.Sampling.Server.Key = "FULGURITE_METRICS_KEY"
	require.ErrorContains(t, s.Validate(), "sampling.server.key: FULGURITE_METRICS_KEY gives access to the fleet")
	for _, a := range []spec.Agent{
		{Command: []string{"a"}, SecretEnvironment: map[string]string{"KEY": servingKey}},
		{Service: &spec.Service{URL: "http://a/", SecretHeaders: map[string]string{"Authorization": servingKey}}},
	} {
		s := valid()
		s.Agent = a
		require.ErrorContains(t, s.Validate(), servingKey+" gives access to the fleet")
	}
}

func TestServersThatTakeMessagesCanBeTriedAndNotTrained(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Sampling.Server = &spec.Server{Type: "openai", URLs: []string{"http://a"}, Model: "m"}
	require.NoError(t, s.Validate())
	require.Equal(t, "messages", s.WithDefaults().Model.Codec)
	require.Equal(t, "none", s.WithDefaults().Sampling.Server.Versions)
	require.ErrorContains(t, s.Trainable(), "sampling.server.type: ")
	refused := map[string]string{"trained": s.Trainable().Error()}
	s.Sampling.Server.Versions = "reload"
	require.ErrorContains(t, s.Validate(), "sampling.server.versions")
	s.Sampling.Server.Versions, s.Model.Codec = "", "compact"
	require.ErrorContains(t, s.Validate(), "model.codec: sampling.server.type \"openai\"")
	refused["a codec of tokens"] = s.Validate().Error()
	s.Sampling.Server, s.Model.Codec = nil, "messages"
	require.ErrorContains(t, s.Validate(), "model.codec: only sampling.server.type \"openai\"")
	refused["messages without a server"] = s.Validate().Error()
	golden.Table(t, "refused_messages", refused)
}
