package agent_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// An agent may be a Go function. A real one asks the model at env.BaseURL.
func ExampleFunc() {
	shout := agent.Func(func(_ context.Context, task agent.Task, env agent.Env) (string, error) {
		return strings.ToUpper(task.Input), env.Reward(1)
	})
	job := agent.Job{
		Address: record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train}, Attempt: 1},
		Task:    agent.Task{ID: "t1", Input: "hello"},
		BaseURL: "http://127.0.0.1:8080/r/demo/train-0/0/0/1/v1",
		Key:     "key-of-the-attempt",
		Limits:  agent.Limits{Time: time.Minute},
	}
	result, err := shout.Launch(context.Background(), job)
	if err != nil {
		panic(err) // a fault of the machinery, never of the agent
	}
	fmt.Println(result.Text, *result.Reward, result.Failed())
	// Output: HELLO 1 false
}

// A mistake of an agent is its own failure, and no error.
func ExampleFunc_failure() {
	careless := agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) {
		return "", fmt.Errorf("no such tool")
	})
	result, err := careless.Launch(context.Background(), agent.Job{})
	fmt.Println(result.Failure, result.Message, err)
	// Output: error no such tool <nil>
}

// An agent may be a program in any language. The worker runs it under
// a supervisor, which is the worker's own program.
func ExampleCommand() {
	program := agent.Command{Args: []string{"sh", "-c", "echo thinking; echo $((6 * 7))"}}
	job := agent.Job{
		Address: record.Address{RolloutID: record.RolloutID{Run: "example", Kind: record.Train}, Attempt: 1},
		Task:    agent.Task{ID: "t1", Input: "6*7"},
		Limits:  agent.Limits{Time: time.Minute, MemoryBytes: 1 << 30},
	}
	result, err := program.Launch(context.Background(), job)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Text) // the last line
	// Output: 42
}

// A worker knows its functions by the name that a spec gives.
func ExampleRegistry() {
	known := agent.Registry{"echo": func(_ context.Context, task agent.Task, _ agent.Env) (string, error) {
		return task.Input, nil
	}}
	echo, err := known.Launcher("echo")
	if err != nil {
		panic(err)
	}
	result, _ := echo.Launch(context.Background(), agent.Job{Task: agent.Task{Input: "hi"}})
	fmt.Println(result.Text)
	_, err = known.Launcher("parrot")
	fmt.Println(err)
	// Output:
	// hi
	// no such agent function: "parrot"; this worker has: echo
}

// Hooks start what an agent needs, and stop it afterwards.
func ExampleAround() {
	inner := agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) { return "done", nil })
	hooked := agent.Around(inner, agent.Hooks{
		Before: func(context.Context, agent.Job) error { fmt.Println("start the browser"); return nil },
		After: func(_ context.Context, _ agent.Job, outcome record.Outcome) error {
			fmt.Println("stop it after:", outcome)
			return nil
		},
	}, "")
	job := agent.Job{Address: record.Address{RolloutID: record.RolloutID{Run: "around", Kind: record.Train}, Attempt: 1}}
	result, err := hooked.Launch(context.Background(), job)
	fmt.Println(result.Text, err)
	// Output:
	// start the browser
	// stop it after: completed
	// done <nil>
}

// The last line of a result may claim a reward.
func ExampleLastReward() {
	reward, _ := agent.LastReward("all tests pass\n{\"reward\": 0.5}", 1, false)
	_, refusal := agent.LastReward(`{"reward": 7}`, 1, false)
	fmt.Println(*reward)
	fmt.Println(refusal)
	// Output:
	// 0.5
	// report reward: 7 is beyond the limit of 1
}
