package main

import (
	_ "embed"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// setup is a spec with all files that it needs, and with claims about its outcome.
type setup struct {
	name string
	// sections are the parts of the spec that differ from those of base; an empty one
	// is left out.
	sections map[string]string
	// agent is the code of agent.py after prelude.py. Empty means an agent that asks the
	// model once.
	agent string
	// files are further files by name. Those ending in ".sh" are executable.
	files map[string]string
	// model is the chat template of a model in the directory "model". Empty means that
	// there is no such model.
	model string
	// refused are texts that plan must print when it exits with 2. Without any, it must
	// exit with 0.
	refused []string
	// args are further arguments of try.
	args []string
	// stopped are texts of the problems that try must find when it exits with 1. Without
	// any, it must exit with 0.
	stopped []string
	// printed are further texts that try must print.
	printed []string
	// train is the outcome that training must have. Empty means that the setup is not
	// trained.
	train outcome
	// because are words of the error with which training ends.
	because []string
}

// outcome is the outcome of training.
type outcome string

// The outcomes.
const (
	trainingFails outcome = "fails"
	learnsNothing outcome = "learns nothing"
	learns        outcome = "learns"
)

// finder returns the command that must find the problem.
func (s setup) finder() string {
	switch {
	case len(s.refused) > 0:
		return "plan"
	case len(s.stopped) > 0:
		return "try"
	}
	return "-"
}

// base returns the sections of a spec that learns: a program asks the model once, and
// every second sample gets a reward.
func base() map[string]string {
	return map[string]string{
		"model":    "{context: 128}",
		"agent":    "{command: [python3, agent.py]}",
		"sampling": "{max_tokens: 4}",
		"tasks":    "{train: tasks.jsonl}",
		"grader":   "{type: agent, reward: last_line}",
		"training": "{steps: 1, tasks_per_step: 2, samples_per_task: 4}",
	}
}

// prelude begins every agent.
//
//go:embed prelude.py
var prelude string

const (
	asksOnce = `
chat([user(task["input"])])
print(sample % 2)
`
	twoTasks = `{"id": "a", "input": "one", "answer": "1"}
{"id": "b", "input": "two", "answer": "2"}
`
)

// write makes the directory of a setup. In all texts, "{{name}}" is replaced by an
// address.
func (s setup) write(dir string, addresses *strings.Replacer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sections := base()
	maps.Copy(sections, s.sections)
	var spec strings.Builder
	for _, key := range slices.Sorted(maps.Keys(sections)) {
		if sections[key] != "" {
			spec.WriteString(key + ": " + sections[key] + "\n")
		}
	}
	agent := s.agent
	if agent == "" {
		agent = asksOnce
	}
	files := map[string]string{"spec.yaml": spec.String(), "agent.py": prelude + agent, "tasks.jsonl": twoTasks}
	maps.Copy(files, s.files)
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(addresses.Replace(text)), mode); err != nil {
			return err
		}
	}
	if s.model == "" {
		return nil
	}
	return writeModel(filepath.Join(dir, "model"), s.model)
}

// Chat templates of models.
const (
	// withTools writes tools and shows how to call them.
	withTools = `{%- if tools -%}<|im_start|>system
Functions:{%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
Call one with <tool_call>{"name": its name, "arguments": an object}</tool_call>.<|im_end|>
{% endif -%}` + withCalls
	// withCalls writes messages and the calls in them.
	withCalls = `{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}{%- for call in message.tool_calls -%}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' -}}
{%- endfor -%}<|im_end|>
{% endfor -%}` + beginsReply
	// withoutTools writes messages alone.
	withoutTools = `{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}` + beginsReply
	beginsReply = `{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}`
	// promisesTools shows how tools are called and never writes them.
	promisesTools = `{#- A call is <tool_call>{"name": ..., "arguments": ...}</tool_call>. -#}
` + withCalls
	// small is no template: it asks for a model with few tokens.
	small = "small"
)

// writeModel makes the directory of a model with random weights.
func writeModel(dir, template string) error {
	a := model.Architecture{
		VocabSize: 768, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, FeedForward: 32,
		MaxPositions: 512, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKNorm: true,
	}
	if template == small {
		a.VocabSize = 100
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := hf.WriteDirectory(dir, a, a.Init(1)); err != nil || template == small {
		return err
	}
	tokenizer, err := os.ReadFile(filepath.Join("model", "tokenizer", "testdata", "qwen.json"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"tokenizer.json": string(tokenizer), "chat_template.jinja": template,
		"tokenizer_config.json": `{"eos_token": "<|im_end|>", "bos_token": null}`, "generation_config.json": `{"eos_token_id": [702, 700]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// setups returns all setups.
func setups() []setup {
	return slices.Concat(healthy(), refusedByPlan(), refusedModels(), silentAgents(), refusedCalls(), failingAgents(), badRewards(), badCredit(), absentParts(), searches())
}

// healthy returns setups that learn, or may learn.
func healthy() []setup {
	return []setup{
		{name: "healthy", train: learns},
		{name: "healthy-named-agents", sections: map[string]string{"credit": "{per_agent: true}"}, agent: `
chat([system("It is %d." % time.time_ns()), user(task["input"])], agent="writer")
print(sample % 2)
`, printed: []string{"by writer (path), advantage"}},
		{name: "healthy-ignored-time", sections: map[string]string{"credit": "{per_agent: true}", "replay": `{ignore: ['It is \d+']}`}, agent: `
chat([system("It is %d." % time.time_ns()), user(task["input"])])
print(sample % 2)
`, train: learns},
		{name: "healthy-some-agents", sections: map[string]string{"credit": "{train_agents: writer}"}, agent: `
chat([user(task["input"])], agent="planner")
chat([user(task["input"])], agent="writer")
print(sample % 2)
`, printed: []string{`by planner (path), not trained: credit.train_agents "writer" does not match planner`, "by writer (path), advantage"}, train: learns},
		{name: "healthy-service", sections: map[string]string{"agent": `{service: {url: "{{service}}"}}`}},
		{name: "healthy-judge", sections: map[string]string{"credit": `{assignment: judge, judge: {url: "{{judge}}/v1", model: judge}}`}},
		{name: "healthy-critic", sections: map[string]string{"algorithm": "ppo"}, train: learns},
		{name: "healthy-warm-start", sections: map[string]string{"model": "{context: 64, warm_start: {demonstrations: shown.jsonl, updates: 1}}"},
			files: map[string]string{"shown.jsonl": `{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]}`}},
		{name: "likely-alone-in-group", args: []string{"--samples", "1"}, printed: []string{"with one sample of each task there is nothing to compare rewards with"}},
		{name: "healthy-tools", model: withTools, sections: map[string]string{
			"model": "{base: model, codec: template, tool_parser: hermes}", "sampling": "{max_tokens: 8}",
		}, agent: `
chat([user(task["input"])], tools=[tool("look_up")])
print(sample % 2)
`},
		{name: "likely-equal-rewards", agent: `
chat([user(task["input"])])
print(1)
`, printed: []string{"This may slow or stop learning:", "no group has rewards that differ"}, train: learnsNothing},
		{name: "likely-long-result", sections: map[string]string{"grader": "{type: contains}"}, agent: `
chat([user(task["input"])])
print("the first line\nthe last line")
`, printed: []string{"8 lines of output in 8 attempts are not graded: the result is only the last line"}},
		{name: "likely-some-fail", agent: `
chat([user(task["input"])])
if sample == 0:
    sys.exit("the reason")
print(sample % 2)
`, printed: []string{"This may slow or stop learning:", "the agent failed in 2 of 8 attempts, for example: exit: exit code 1: the reason"}},
	}
}

// refusedByPlan returns setups of which plan knows that they can't learn.
func refusedByPlan() []setup {
	return []setup{
		{name: "program-missing", sections: map[string]string{"agent": "{command: [no-such-program]}"}, refused: []string{"agent.command: program no-such-program is not in PATH"}},
		{name: "program-not-executable", sections: map[string]string{"agent": "{command: [./agent.py]}"}, refused: []string{"agent.command: program", "permission denied"}},
		{name: "before-missing", sections: map[string]string{"agent": "{command: [python3, agent.py], before: [./prepare.sh]}"}, refused: []string{"agent.before: program", "no such file"}},
		{name: "grader-missing", sections: map[string]string{"grader": "{type: command, command: [./grade.sh]}"}, refused: []string{"grader.command: program", "no such file"}},
		{name: "two-agents", sections: map[string]string{"agent": "{command: [python3, agent.py], func: calculator}"}, refused: []string{"agent: both func and command"}},
		{name: "tasks-empty", files: map[string]string{"tasks.jsonl": "\n"}, refused: []string{"tasks.train: ", "tasks.jsonl"}},
		{name: "tasks-twice", files: map[string]string{"tasks.jsonl": twoTasks + twoTasks}, refused: []string{`tasks.jsonl:3: id "a" is in line 1 already`}},
		{name: "tasks-without-answers", sections: map[string]string{"grader": "{type: exact}"}, files: map[string]string{"tasks.jsonl": `{"id": "a", "input": "one"}`},
			refused: []string{"tasks.train: ", "tasks.jsonl: task a", "and there is none"}},
		{name: "answers-no-numbers", sections: map[string]string{"grader": "{type: numeric}"}, files: map[string]string{"tasks.jsonl": `{"id": "a", "input": "one", "answer": "one"}`},
			refused: []string{"tasks.train: ", "tasks.jsonl: task a", "needs a number"}},
		{name: "tasks-shared", sections: map[string]string{"tasks": "{train: tasks.jsonl, gate: tasks.jsonl}"}, refused: []string{"tasks.gate: the same tasks as tasks.train"}},
		{name: "group-of-one", sections: map[string]string{"training": "{steps: 1, tasks_per_step: 2, samples_per_task: 1}"}, refused: []string{"training.samples_per_task: a group of 1"}},
		{name: "greedy", sections: map[string]string{"sampling": "{temperature: 0}"}, refused: []string{"sampling.temperature: training at temperature 0"}},
		{name: "agents-no-expression", sections: map[string]string{"credit": "{train_agents: '(write'}"}, refused: []string{"credit.train_agents: "}},
		{name: "judge-nowhere", sections: map[string]string{"credit": "{assignment: judge}"}, refused: []string{"credit.judge.url: missing"}},
		{name: "key-misspelled", sections: map[string]string{"credit": "{train_agent: writer}"}, refused: []string{"credit.train_agent", "did you mean train_agents?"}},
	}
}

// refusedModels returns setups whose model plan refuses.
func refusedModels() []setup {
	return []setup{
		{name: "model-missing", sections: map[string]string{"model": "{base: none, codec: template}"}, refused: []string{"model.base: ", "no such file or directory"}},
		{name: "model-without-tools", model: withoutTools, sections: map[string]string{"model": "{base: model, codec: template, tool_parser: hermes}"},
			refused: []string{"the chat template leaves out the tools that are offered", "model.tool_parser hermes"}},
		{name: "model-of-other-tokens", model: small, sections: map[string]string{"model": "{base: model}"}, refused: []string{"model.base: ", "a vocabulary of 100 tokens, but codec compact has"}},
		{name: "demonstrations-broken", sections: map[string]string{"model": "{warm_start: {demonstrations: shown.jsonl, updates: 1}}"},
			files: map[string]string{"shown.jsonl": `{"prompt": "2+2", "completion": "4"}`}, refused: []string{"model.warm_start.demonstrations: ", "shown.jsonl:1: "}},
		{name: "demonstrations-too-long", sections: map[string]string{"model": "{context: 8, warm_start: {demonstrations: shown.jsonl, updates: 1}}"},
			files:   map[string]string{"shown.jsonl": `{"messages": [{"role": "user", "content": "How are you today?"}, {"role": "assistant", "content": "Well."}]}`},
			refused: []string{"model.warm_start.demonstrations: ", "dialog 1 has", "the model has 8 positions"}},
		{name: "server-without-tokens", sections: map[string]string{"model": "", "sampling": `{server: {type: openai, urls: ["{{unreachable}}"], model: m}}`},
			refused: []string{"sampling.server.type: a server of type openai gives no token ids"}},
	}
}

// silentAgents returns setups whose agents never reach their model.
func silentAgents() []setup {
	return []setup{
		{name: "no-call", agent: `
print(sample % 2)
`, stopped: []string{"no model call was recorded: the agent does not use the base URL that it is given (OPENAI_BASE_URL)"}, train: learnsNothing},
		{name: "dead-before-first-call", agent: `
import no_such_module
`, stopped: []string{"the agent ended before its first model call in all 8 attempts: exit: exit code 1: ModuleNotFoundError: No module named 'no_such_module'"},
			train: trainingFails, because: []string{"No module named 'no_such_module'"}},
		{name: "func-unknown", sections: map[string]string{"agent": "{func: nobody}"}, stopped: []string{"a run would end before its first update: ", "nobody"}, train: trainingFails, because: []string{"nobody"}},
	}
}

// refusedCalls returns setups whose agents reach the gateway, which refuses all calls or
// the important ones.
func refusedCalls() []setup {
	return []setup{
		{name: "context-too-short", sections: map[string]string{"model": "{context: 16}"}, agent: `
chat([system("You help with whatever there is to help with."), user(task["input"])])
print(sample % 2)
`, stopped: []string{"no model call was answered: all 8 were refused", "8 calls were refused: context_length_exceeded", "raise model.context (16)"}},
		{name: "tools-unreadable", model: withoutTools, sections: map[string]string{"model": "{base: model, codec: template}"}, agent: `
chat([user(task["input"])], tools=[tool("look_up")])
print(sample % 2)
`, stopped: []string{"no model call was answered: all 8 were refused", "set model.tool_parser"}},
		{name: "tools-unseen", model: promisesTools, sections: map[string]string{"model": "{base: model, codec: template}"}, agent: `
chat([user(task["input"])], tools=[tool("look_up")])
print(sample % 2)
`, stopped: []string{"8 of 8 calls offer tools that the model never sees", "the chat template leaves them out"}},
		{name: "parameter-refused", agent: `
chat([user(task["input"])], max_tokens=-1)
print(sample % 2)
`, stopped: []string{"no model call was answered: all 8 were refused", "max_tokens"}},
		{name: "calls-used-up", sections: map[string]string{"agent": "{command: [python3, agent.py], limits: {calls: 2}}"}, agent: `
for turn in range(3):
    chat([user("%s %d" % (task["input"], turn))])
print(sample % 2)
`, stopped: []string{"the agent failed in all 8 attempts"}, printed: []string{"8 calls were refused: call_limit", "raise agent.limits.calls (2)"}},
	}
}

// failingAgents returns setups whose agents call their model and fail.
func failingAgents() []setup {
	return []setup{
		{name: "all-crash", agent: `
chat([user(task["input"])])
sys.exit("lost my way")
`, stopped: []string{"the agent failed in all 8 attempts, so all have agent.failure_reward 0; for example: exit: exit code 1: lost my way"}, train: learnsNothing},
		{name: "all-too-slow", sections: map[string]string{"agent": "{command: [python3, agent.py], limits: {seconds: 3}}"}, agent: `
chat([user(task["input"])])
time.sleep(60)
`, stopped: []string{"in all 8 attempts", "timeout: still running after"}},
		{name: "all-talk-too-much", sections: map[string]string{"agent": "{command: [python3, agent.py], limits: {output_bytes: 1000}}"}, agent: `
chat([user(task["input"])])
print("word " * 1000)
`, stopped: []string{"the agent failed in all 8 attempts", "output_limit: wrote more than 1000 bytes"}},
		{name: "service-fails", sections: map[string]string{"agent": `{service: {url: "{{broken service}}"}}`}, stopped: []string{"the agent ended before its first model call in all 8 attempts", "no such agent"}},
	}
}

// badRewards returns setups without usable rewards.
func badRewards() []setup {
	silent := `
chat([user(task["input"])])
print("done")
`
	return []setup{
		{name: "reward-missing", agent: silent, stopped: []string{"the agent failed in all 8 attempts", "no_reward: the agent reported no reward"}},
		{name: "reward-beyond-limit", sections: map[string]string{"grader": "{type: agent, reward: last_line, limit: 10}"}, agent: `
chat([user(task["input"])])
print(100 * (sample + 1))
`, stopped: []string{"the agent failed in all 8 attempts", "bad_reward: "}},
		{name: "reward-of-no-name", sections: map[string]string{"credit": "{rewards: {final: 1, style: 0.5}}"},
			stopped: []string{"the agent failed in all 8 attempts", `no reward "style", which credit.rewards weighs`}, train: learnsNothing},
		{name: "grader-beyond-limit", agent: silent, sections: map[string]string{"grader": "{type: command, command: [./grade.sh], limit: 10}"},
			files: map[string]string{"grade.sh": "#!/bin/sh\necho 100\n"}, stopped: []string{"no task can be trained on, for example: grader of attempt", "returned 100, beyond grader.limit 10"}},
		{name: "grader-crashes", agent: silent, sections: map[string]string{"grader": "{type: command, command: [./grade.sh]}", "training": oneTask},
			files: map[string]string{"grade.sh": "#!/bin/sh\necho out of order >&2\nexit 3\n"}, stopped: []string{"no task can be trained on, for example: ", "out of order"}},
		{name: "grader-talks-nonsense", agent: silent, sections: map[string]string{"grader": "{type: command, command: [./grade.sh]}", "training": oneTask},
			files: map[string]string{"grade.sh": "#!/bin/sh\necho quite good\n"}, stopped: []string{"no task can be trained on, for example: ", "quite good"}},
	}
}

// oneTask limits training to one task, for setups in which each task takes long.
const oneTask = "{steps: 1, tasks_per_step: 1, samples_per_task: 2}"

// badCredit returns setups whose rewards reach no token.
func badCredit() []setup {
	return []setup{
		{name: "agents-unmatched", sections: map[string]string{"credit": "{train_agents: writer}"},
			stopped: []string{"the credit of these attempts can't be assigned", `credit.train_agents "writer" matches none of agent-`}, train: learnsNothing},
		{name: "agents-by-time", sections: map[string]string{"credit": "{per_agent: true}"}, agent: `
chat([system("It is %d." % time.time_ns()), user(task["input"])])
print(sample % 2)
`, stopped: []string{"credit.per_agent compares each agent with itself, and all advantages are 0 whatever the rewards are: 8 of 8 agents", "/n/NAME/v1", "replay.ignore"}, train: learnsNothing},
		{name: "agents-by-number", sections: map[string]string{"credit": "{per_agent: true}"}, agent: `
chat([user(task["input"])], agent="writer-%d" % sample)
print(sample % 2)
`, stopped: []string{"credit.per_agent compares each agent with itself, and all advantages are 0 whatever the rewards are: 8 of 8 agents (writer-0"}, train: learnsNothing},
		{name: "agents-in-one-attempt", sections: map[string]string{"credit": "{train_agents: writer-0}"}, agent: `
chat([user(task["input"])], agent="writer-%d" % sample)
print(sample % 2)
`, stopped: []string{`credit.train_agents "writer-0" matches calls of only one attempt in each group`}, train: learnsNothing},
		{name: "all-forced", agent: `
only = {"type": "json_schema", "json_schema": {"name": "only", "strict": True, "schema": {"const": 7}}}
chat([user(task["input"])], response_format=only)
print(sample % 2)
`, stopped: []string{"no token of the 8 calls would be trained, and a step of a run would learn nothing: no token of it had an alternative"}},
	}
}

// absentParts returns setups in which a part is missing, so that activities are retried
// again and again.
func absentParts() []setup {
	return []setup{
		{name: "service-unreachable", sections: map[string]string{"agent": `{service: {url: "{{unreachable}}"}}`, "training": oneTask}, args: []string{"--tasks", "1"},
			stopped: []string{"a run would retry this forever: RunAgent was tried 5 times without success", "connection refused"}},
		{name: "service-behind-a-proxy", sections: map[string]string{"agent": `{service: {url: "{{proxy}}"}}`, "training": oneTask}, args: []string{"--tasks", "1"},
			stopped: []string{"a run would retry this forever: RunAgent was tried 5 times without success", "service answered 404 Not Found: default backend"}},
		{name: "worker-absent", sections: map[string]string{"agent": "{temporal: {workflow: Mine, queue: mine}}", "training": oneTask}, args: []string{"--tasks", "1"},
			stopped: []string{"BeginAttempt was tried 5 times without success", `no worker polls the task queue "mine" of agent.temporal`}},
		{name: "judge-unreachable", sections: map[string]string{"credit": `{assignment: judge, judge: {url: "{{unreachable}}/v1", model: judge}}`},
			stopped: []string{"JudgeCalls was tried 4 times without success", "connection refused"}},
		{name: "judge-babbles", sections: map[string]string{"credit": `{assignment: judge, judge: {url: "{{nonsense judge}}/v1", model: judge}}`},
			stopped: []string{"the credit of these attempts can't be assigned", "change credit.judge"}},
		{name: "judge-key-unset", sections: map[string]string{"credit": `{assignment: judge, judge: {url: "{{judge}}/v1", model: judge, key: FULGURITE_NO_SUCH_KEY}}`},
			stopped: []string{"JudgeCalls was tried 4 times without success", "FULGURITE_NO_SUCH_KEY is not set"}},
		{name: "server-unreachable", sections: map[string]string{"model": "{base: model, codec: template}",
			"sampling": `{max_tokens: 4, server: {type: vllm, urls: ["{{unreachable}}"], model: m, directory: adapters}}`}, model: withTools,
			stopped: []string{"sampling.server.urls: no server can be reached", "connection refused"}},
		{name: "server-broken", sections: map[string]string{"model": "{base: model, codec: template}", "training": oneTask,
			"sampling": `{max_tokens: 4, server: {type: vllm, urls: ["{{broken}}"], model: m, directory: adapters}}`}, model: withTools, args: []string{"--tasks", "1"},
			stopped: []string{"a run would retry this forever: PublishVersion was tried", "out of order", "look at the servers of sampling.server"}},
		{name: "before-fails", sections: map[string]string{"agent": "{command: [python3, agent.py], before: [./prepare.sh]}", "training": oneTask}, args: []string{"--tasks", "1"},
			files: map[string]string{"prepare.sh": "#!/bin/sh\necho no room >&2\nexit 1\n"}, stopped: []string{"no task can be trained on, for example: ", "no room"}},
	}
}

// searching returns the sections of a spec that searches for better prompts, with changes.
func searching(changes map[string]string) map[string]string {
	sections := map[string]string{
		"training":  "",
		"prompts":   `{texts: [{name: helper, text: You help.}], rules: [{prompt: helper, match: {prefix: You help.}}]}`,
		"tasks":     "{train: tasks.jsonl, validation: validation.jsonl, gate: gate.jsonl}",
		"optimizer": `{budget: {minibatch: 50, validation: 50, reflections: 5}, reflector: {type: command, command: [python3, reflect.py]}}`,
	}
	maps.Copy(sections, changes)
	return sections
}

// asksHelper is an agent whose system message is a prompt of searching.
const asksHelper = `
chat([system("You help."), user(task["input"])])
print(sample % 2)
`

// searchFiles are the files of searching, with changes.
func searchFiles(changes map[string]string) map[string]string {
	files := map[string]string{
		"validation.jsonl": `{"id": "c", "input": "three"}` + "\n" + `{"id": "d", "input": "four"}` + "\n",
		"gate.jsonl":       `{"id": "e", "input": "five"}` + "\n" + `{"id": "f", "input": "six"}` + "\n",
		"reflect.py":       "print('```\\nYou help well.\\n```')\n",
	}
	maps.Copy(files, changes)
	return files
}

// searches returns setups whose specs search for better prompts.
func searches() []setup {
	broken := func(name, section, text string, refused ...string) setup {
		return setup{name: name, agent: asksHelper, sections: searching(map[string]string{section: text}), files: searchFiles(nil), refused: refused}
	}
	const reflector = "reflector: {type: command, command: [python3, reflect.py]}}"
	leaking := broken("search-leaking-splits", "training", "", "tasks.validation")
	leaking.files = searchFiles(map[string]string{"validation.jsonl": twoTasks})
	single := broken("search-one-validation-task", "training", "", "tasks.validation: one task can't tell a better prompt from a lucky one")
	single.files = searchFiles(map[string]string{"validation.jsonl": `{"id": "c", "input": "three"}` + "\n"})
	return []setup{
		{name: "search-reflector-unreachable", agent: asksHelper, files: searchFiles(nil), sections: searching(map[string]string{
			"optimizer": `{budget: {minibatch: 50, validation: 50, reflections: 5}, reflector: {type: openai, url: "{{unreachable}}/v1", model: m, seconds: 5}}`}),
			stopped: []string{"TryReflector was tried 4 times without success", "connection refused"}},
		{name: "search-key-unset", agent: asksHelper, files: searchFiles(nil), sections: searching(map[string]string{
			"optimizer": `{budget: {minibatch: 50, validation: 50, reflections: 5}, reflector: {type: openai, url: "{{judge}}/v1", model: m, key: FULGURITE_NO_SUCH_KEY}}`}),
			stopped: []string{"TryReflector was tried 4 times without success", "FULGURITE_NO_SUCH_KEY is not set"}},
		{name: "likely-reflector-babbles", agent: asksHelper, files: searchFiles(map[string]string{"reflect.py": "print('You help well.')\n"}), sections: searching(nil),
			printed: []string{"This may slow or stop learning:", "the reflector's reply about the prompt helper is of no use (no_fence)"}},
		{name: "healthy-search", agent: asksHelper, sections: searching(nil), files: searchFiles(nil), printed: []string{"says of the prompt helper:", "You help well."}},
		broken("search-without-budget", "optimizer", "{"+reflector, "optimizer.budget"),
		broken("search-budget-too-small", "optimizer", "{budget: {minibatch: 50, validation: 3, reflections: 5}, "+reflector, "too small for a single candidate"),
		broken("search-without-gate", "tasks", "{train: tasks.jsonl, validation: validation.jsonl}", "tasks.gate"),
		leaking,
		single,
		broken("search-rule-of-no-prompt", "prompts", `{texts: [{name: helper, text: You help.}], rules: [{prompt: help, match: {prefix: You help.}}]}`, "prompts.rules[0].prompt"),
		broken("search-placeholder-lost", "prompts", `{texts: [{name: helper, text: You help., placeholders: [topic]}]}`, "prompts.texts[0].text", "topic"),
		broken("search-that-trains", "training", "{steps: 3}", "training.steps"),
		broken("search-prompt-too-long", "prompts", `{max_bytes: 5, texts: [{name: helper, text: You help.}], rules: [{prompt: helper, match: {prefix: You help.}}]}`, "prompts.max_bytes"),
		broken("search-reflector-nowhere", "optimizer", "{budget: {minibatch: 50, validation: 50, reflections: 5}, reflector: {type: openai, model: m}}", "optimizer.reflector.url: "),
		broken("search-reflector-missing", "optimizer", "{budget: {minibatch: 50, validation: 50, reflections: 5}, reflector: {type: command, command: [no-such-program]}}", "optimizer.reflector.command: program no-such-program is not in PATH"),
		{name: "search-rule-never-matches", agent: `
chat([system("You assist."), user(task["input"])])
print(sample % 2)
`, sections: searching(nil), files: searchFiles(nil), stopped: []string{"prompts: ", "never"}},
		{name: "placeholder-without-prompts", agent: `
said = "Say {{prompt:helper}}, or {{prompt:other}}."
chat([{"role": "developer", "content": "{{prompt:helper}}"}, user(said), {"role": "assistant", "content": said}, user(task["input"])])
print(sample % 2)
`, stopped: []string{
			"prompts: the system message messages[0].content has {{prompt:helper}}, and there is no such prompt (8 requests); " +
				"the model reads it as it is; add the prompt to prompts.texts, or remove the placeholder\n",
		}},
	}
}
