package main

// silentAgents never reach their model.
func silentAgents() []setup {
	return []setup{
		{name: "no-call", agent: `
print(sample % 2)
`, stopped: []string{"no model call was recorded: the agent does not use the base URL that it is given (OPENAI_BASE_URL)"}, train: trainingFails, because: []string{"no model call was recorded"}},
		{name: "dead-before-first-call", agent: `
import no_such_module
`, stopped: []string{"the agent ended before its first model call in all 8 attempts: exit: exit code 1: ModuleNotFoundError: No module named 'no_such_module'"},
			train: trainingFails, because: []string{"No module named 'no_such_module'"}},
		{name: "func-unknown", sections: map[string]string{"agent": "{func: nobody}"}, stopped: []string{"a run would end before its first update: ", "nobody"}, train: trainingFails, because: []string{"nobody"}},
	}
}

// refusedCalls reach the gateway, which refuses all they ask or what matters of it.
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

// failingAgents call their model and fail.
func failingAgents() []setup {
	return []setup{
		{name: "all-crash", agent: `
chat([user(task["input"])])
sys.exit("lost my way")
`, stopped: []string{"the agent failed in all 8 attempts, so that all have agent.failure_reward 0; for example: exit: exit code 1: lost my way"}, train: learnsNothing},
		{name: "all-too-slow", sections: map[string]string{"agent": "{command: [python3, agent.py], limits: {seconds: 3}}"}, agent: `
chat([user(task["input"])])
time.sleep(60)
`, stopped: []string{"in all 8 attempts", "timeout: still running after"}},
		{name: "all-talk-too-much", sections: map[string]string{"agent": "{command: [python3, agent.py], limits: {output_bytes: 1000}}"}, agent: `
chat([user(task["input"])])
print("word " * 1000)
`, stopped: []string{"the agent failed in all 8 attempts", "output_limit: wrote more than 1000 bytes"}},
		{name: "service-refuses", sections: map[string]string{"agent": `{service: {url: "{{broken service}}"}}`}, stopped: []string{"the agent ended before its first model call in all 8 attempts", "no such agent"}},
	}
}
