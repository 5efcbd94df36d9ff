package main

import "slices"

// setups are all of them.
func setups() []setup {
	return slices.Concat(healthy(), refusedByPlan(), refusedModels(), silentAgents(), refusedCalls(), failingAgents(), badRewards(), badCredit(), absentParts())
}

// healthy are setups that learn, or may.
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
		{name: "likely-alone-in-group", args: []string{"--samples", "1"}, printed: []string{"a single sample of each task says nothing about what rewards are compared with"}},
		{name: "healthy-tools", model: withTools, sections: map[string]string{
			"model": "{base: model, codec: template, tool_parser: hermes}", "sampling": "{max_tokens: 8}",
		}, agent: `
chat([user(task["input"])], tools=[tool("look_up")])
print(sample % 2)
`},
		{name: "likely-equal-rewards", agent: `
chat([user(task["input"])])
print(1)
`, printed: []string{"This may stand in the way of learning:", "no group has rewards that differ"}, train: learnsNothing},
		{name: "likely-long-result", sections: map[string]string{"grader": "{type: contains}"}, agent: `
chat([user(task["input"])])
print("the first line\nthe last line")
`, printed: []string{"8 lines of output in 8 attempts are not graded: the result is the last line alone"}},
		{name: "likely-some-fail", agent: `
chat([user(task["input"])])
if sample == 0:
    sys.exit("the reason")
print(sample % 2)
`, printed: []string{"This may stand in the way of learning:", "the agent failed in 2 of 8 attempts, for example: exit: exit code 1: the reason"}},
	}
}

// refusedByPlan are specs of which plan knows that they can't learn.
func refusedByPlan() []setup {
	return []setup{
		{name: "program-missing", sections: map[string]string{"agent": "{command: [no-such-program]}"}, refused: []string{"agent.command: program no-such-program is not in PATH"}},
		{name: "program-not-executable", sections: map[string]string{"agent": "{command: [./agent.py]}"}, refused: []string{"agent.command: program", "permission denied"}},
		{name: "before-missing", sections: map[string]string{"agent": "{command: [python3, agent.py], before: [./prepare.sh]}"}, refused: []string{"agent.before: program", "no such file"}},
		{name: "grader-missing", sections: map[string]string{"grader": "{type: command, command: [./grade.sh]}"}, refused: []string{"grader.command: program", "no such file"}},
		{name: "two-agents", sections: map[string]string{"agent": "{command: [python3, agent.py], func: calculator}"}, refused: []string{"agent: both func and command"}},
		{name: "tasks-empty", files: map[string]string{"tasks.jsonl": "\n"}, refused: []string{"tasks.train: ", "tasks.jsonl"}},
		{name: "tasks-twice", files: map[string]string{"tasks.jsonl": twoTasks + twoTasks}, refused: []string{`tasks.jsonl:3: id "a" stands in line 1 already`}},
		{name: "tasks-without-answers", sections: map[string]string{"grader": "{type: exact}"}, files: map[string]string{"tasks.jsonl": `{"id": "a", "input": "one"}`},
			refused: []string{"tasks.train: task a", "and there is none"}},
		{name: "answers-no-numbers", sections: map[string]string{"grader": "{type: numeric}"}, files: map[string]string{"tasks.jsonl": `{"id": "a", "input": "one", "answer": "one"}`},
			refused: []string{"tasks.train: task a", "needs a number"}},
		{name: "tasks-shared", sections: map[string]string{"tasks": "{train: tasks.jsonl, gate: tasks.jsonl}"}, refused: []string{"tasks.gate: the same tasks as tasks.train"}},
		{name: "group-of-one", sections: map[string]string{"training": "{steps: 1, tasks_per_step: 2, samples_per_task: 1}"}, refused: []string{"training.samples_per_task: a group of 1"}},
		{name: "greedy", sections: map[string]string{"sampling": "{temperature: 0}"}, refused: []string{"sampling.temperature: training at temperature 0"}},
		{name: "agents-no-expression", sections: map[string]string{"credit": "{train_agents: '(write'}"}, refused: []string{"credit.train_agents: "}},
		{name: "judge-nowhere", sections: map[string]string{"credit": "{assignment: judge}"}, refused: []string{"credit.judge.url: missing"}},
		{name: "key-misspelled", sections: map[string]string{"credit": "{train_agent: writer}"}, refused: []string{"credit.train_agent", "did you mean train_agents?"}},
	}
}

// refusedModels are specs whose model plan refuses.
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
			refused: []string{"sampling.server.type: a server of type openai says no token ids"}},
	}
}
