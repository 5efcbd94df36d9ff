package main

// badRewards are setups without usable rewards.
func badRewards() []setup {
	silent := `
chat([user(task["input"])])
print("done")
`
	return []setup{
		{name: "reward-missing", agent: silent, stopped: []string{"the agent failed in all 8 attempts", "no_reward: the agent reported no reward"}},
		{name: "reward-beyond-limit", sections: map[string]string{"grader": "{type: agent, limit: 10}"}, agent: `
chat([user(task["input"])])
print(100 * (sample + 1))
`, stopped: []string{"the agent failed in all 8 attempts", "bad_reward: "}},
		{name: "reward-of-no-name", sections: map[string]string{"credit": "{rewards: {final: 1, style: 0.5}}"},
			stopped: []string{"the credit of these attempts can't be assigned", "style"}, train: trainingFails, because: []string{"style"}},
		{name: "grader-beyond-limit", agent: silent, sections: map[string]string{"grader": "{type: command, command: [./grade.sh], limit: 10}"},
			files: map[string]string{"grade.sh": "#!/bin/sh\necho 100\n"}, stopped: []string{"no task can be trained on, for example: grader of attempt", "returned 100, beyond grader.limit 10"}},
		{name: "grader-crashes", agent: silent, sections: map[string]string{"grader": "{type: command, command: [./grade.sh]}", "training": oneTask},
			files: map[string]string{"grade.sh": "#!/bin/sh\necho out of order >&2\nexit 3\n"}, stopped: []string{"no task can be trained on, for example: ", "out of order"}},
		{name: "grader-talks-nonsense", agent: silent, sections: map[string]string{"grader": "{type: command, command: [./grade.sh]}", "training": oneTask},
			files: map[string]string{"grade.sh": "#!/bin/sh\necho quite good\n"}, stopped: []string{"no task can be trained on, for example: ", "quite good"}},
	}
}

// oneTask is enough where each takes its time.
const oneTask = "{steps: 1, tasks_per_step: 1, samples_per_task: 2}"

// badCredit are setups whose rewards reach no token.
func badCredit() []setup {
	return []setup{
		{name: "agents-unmatched", sections: map[string]string{"credit": "{train_agents: writer}"},
			stopped: []string{"the credit of these attempts can't be assigned", `credit.train_agents "writer" matches none of agent-`}, train: trainingFails, because: []string{`credit.train_agents "writer" matches none of`}},
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
`, stopped: []string{`credit.train_agents "writer-0" matches calls of one attempt in each group alone`}, train: learnsNothing},
		{name: "all-forced", agent: `
only = {"type": "json_schema", "json_schema": {"name": "only", "strict": True, "schema": {"const": 7}}}
chat([user(task["input"])], response_format=only)
print(sample % 2)
`, stopped: []string{"no token of the 8 calls would be trained, and a run would end in its first step: no token of it had an alternative"}},
	}
}

// absentParts are setups of which something is not there, so that they try it again
// and again.
func absentParts() []setup {
	return []setup{
		{name: "service-unreachable", sections: map[string]string{"agent": `{service: {url: "{{unreachable}}"}}`, "training": oneTask}, args: []string{"--tasks", "1"},
			stopped: []string{"a run would try this for ever: RunAgent was tried 5 times without success", "connection refused"}},
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
			stopped: []string{"a run would try this for ever: no model call was answered for 30s", "look at the servers of sampling.server"}},
		{name: "before-fails", sections: map[string]string{"agent": "{command: [python3, agent.py], before: [./prepare.sh]}", "training": oneTask}, args: []string{"--tasks", "1"},
			files: map[string]string{"prepare.sh": "#!/bin/sh\necho no room >&2\nexit 1\n"}, stopped: []string{"no task can be trained on, for example: ", "no room"}},
	}
}
