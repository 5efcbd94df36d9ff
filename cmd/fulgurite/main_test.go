package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/examples/calc"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/model"
)

// toolVariable is an environment variable. If it is set, this binary runs as the tool,
// with the variable's lines as arguments.
const toolVariable = "FULGURITE_TEST_TOOL"

// TestMain lets this binary also run as the tool, as the shim of agents, and as agents
// that are separate programs.
func TestMain(m *testing.M) {
	// Stacks that start at once would race for the usual ports.
	for _, name := range []string{"FULGURITE_PORT", "FULGURITE_UI_PORT", "FULGURITE_GATEWAY_PORT", "FULGURITE_PAGE_PORT", "FULGURITE_METRICS_PORT"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, "0") // the name is valid, so there is no error
		}
	}
	if arguments := os.Getenv(toolVariable); arguments != "" {
		os.Args = append(os.Args[:1], strings.Split(arguments, "\n")...)
		main()
		return
	}
	testscript.Main(m, map[string]func(){"fulgurite": main, "calc-agent": calcAgent, "dated-agent": datedAgent, "greedy-agent": greedyAgent, "scripted-agent": scriptedAgent, "sorter-agent": sorterAgent, "hinting-reflector": hintingReflector})
}

// calcAgent is the calculator agent as a program.
func calcAgent() {
	var task agent.Task
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		client := calculator.Connect(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"))
		var answer string
		if answer, err = (calculator.Agent{Client: client, Model: os.Getenv("OPENAI_MODEL_NAME")}).Solve(context.Background(), task.Input); err == nil {
			fmt.Println(answer)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// datedAgent is an agent that tells the policy the time.
func datedAgent() {
	var task agent.Task
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		client := calculator.Connect(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"))
		_, err = client.CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
			Model: os.Getenv("OPENAI_MODEL_NAME"),
			Messages: []openai.ChatCompletionMessage{
				{Role: openai.ChatMessageRoleSystem, Content: fmt.Sprintf("Asked at %d.", time.Now().UnixNano())},
				{Role: openai.ChatMessageRoleUser, Content: task.Input},
			},
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// greedyAgent is an agent that makes calls until one is refused, and exits without saying
// why.
func greedyAgent() {
	client := calculator.Connect(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"))
	for {
		_, err := client.CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
			Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "1+1"}},
		})
		if err != nil {
			os.Exit(9)
		}
	}
}

// scripts returns the scripts in testdata/script. Short tests only look for races, so
// they run the scripts in which processes are killed or lose their connection.
func scripts(t *testing.T) []string {
	t.Helper()
	dir := filepath.Join("testdata", "script")
	if testing.Short() {
		var files []string
		for _, name := range []string{"away", "chat", "killed"} {
			files = append(files, filepath.Join(dir, name+".txtar"))
		}
		return files
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Files:              scripts(t),
		RequireUniqueNames: true,
		UpdateScripts:      golden.Updating(),
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("LANG", "C.UTF-8")
			e.Setenv("FULGURITE_PORT", "0")
			e.Setenv("FULGURITE_UI_PORT", "0")
			e.Setenv("FULGURITE_METRICS_PORT", "0")
			e.Setenv("GORACE", os.Getenv("GORACE")) // where the race detector reports, if there is one
			e.Setenv("FULGURITE_DIR", filepath.Join(e.WorkDir, "state"))
			e.Values[lastCommand{}] = new(string)
			return unpack(filepath.Join(e.WorkDir, "base"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": exitCode, "keep": keep, "json": inJSON, "await": awaitFile, "eventually": eventually, "ask": ask, "untimed": untimed, "temporal": callTemporal, "use": useTemporal, "portsof": portsOf, "paste": paste, "serve": pasteServer, "documented": documented, "users": users,
		},
	})
}

// unpack writes the demo's warm-started checkpoint, so that a script need not
// make one.
func unpack(dir string) error {
	return errors.Join(
		state.ReplaceFile(filepath.Join(dir, model.WeightsFile), calc.Weights),
		state.ReplaceFile(filepath.Join(dir, model.ConfigFile), calc.Config),
	)
}

// exitCode implements "code N PROGRAM ARGUMENTS...": it runs the program and checks that
// its exit code is N.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGUMENTS...")
	}
	*ts.Value(lastCommand{}).(*string) = strings.Join(args[1:], " ")
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
	checkShape(ts, args[1:])
}

// lastCommand is the key of the command that "code" ran last in a script.
type lastCommand struct{}

// keep implements "keep": what the last command of "code" printed is added to the file "shown", as
// far as it is the same in every run. A script ends with "cmp shown screens", which compares all
// that was kept with a file of the script; the flag -update writes that file anew.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: keep")
	}
	home := ts.Getenv("WORK")
	screen := "$ " + *ts.Value(lastCommand{}).(*string) + "\n" + ts.ReadFile("stdout") + ts.ReadFile("stderr")
	f, err := os.OpenFile(filepath.Join(home, "shown"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	ts.Check(err)
	_, err = f.WriteString(golden.Steady(screen, home))
	ts.Check(errors.Join(err, f.Close()))
}

// checkShape compares what a command printed as JSON with the schema of its output.
func checkShape(ts *testscript.TestScript, words []string) {
	command, text := printedAs(shapes(), words), ts.ReadFile("stdout")
	if command == "" || strings.TrimSpace(text) == "" { // nothing is printed with most errors
		return
	}
	if err := conforms(command, text); err != nil {
		ts.Fatalf("%s differs from its schema: %v", strings.Join(words, " "), err)
	}
}

// inJSON implements "json KEY[=VALUE]...": the last standard output must be JSON that has
// each key, and the key's value if one is given. Dots separate the parts of a key.
func inJSON(ts *testscript.TestScript, neg bool, args []string) {
	var document any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &document))
	for _, arg := range args {
		key, want, compared := strings.Cut(arg, "=")
		got, found := lookUp(document, key)
		switch {
		case found == neg:
			ts.Fatalf("%s: found %t", key, found)
		case compared && fmt.Sprint(got) != want:
			ts.Fatalf("%s is %v, want %s", key, got, want)
		}
	}
}

// lookUp returns the value of a key such as "0.tasks.train".
func lookUp(v any, key string) (any, bool) {
	for _, part := range strings.Split(key, ".") {
		found := false
		switch container := v.(type) {
		case map[string]any:
			v, found = container[part]
		case []any:
			i, err := strconv.Atoi(part)
			if found = err == nil && i >= 0 && i < len(container); found {
				v = container[i]
			}
		}
		if !found {
			return nil, false
		}
	}
	return v, true
}

// scriptTimeout is how long a script waits for what another process does.
const scriptTimeout = 2 * time.Minute

// poll asks until the answer is yes.
func poll(ts *testscript.TestScript, what string, done func() bool) {
	deadline := time.NewTimer(scriptTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			ts.Fatalf("%s: not within %s", what, scriptTimeout)
		case <-tick.C:
		}
	}
}

// awaitFile implements "await FILE": it waits until the file exists.
func awaitFile(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	poll(ts, path, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// eventually implements "eventually TEXT PROGRAM ARGUMENTS...": it runs the program again
// and again until it succeeds and prints the text.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, args[0], func() bool {
		if ts.Exec(args[1], args[2:]...) != nil || !strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return false
		}
		checkShape(ts, args[1:])
		return true
	})
}

// ask implements "ask MODEL QUESTION": it asks the gateway of the running stack with an
// OpenAI client. The reply becomes the standard output.
func ask(ts *testscript.TestScript, neg bool, args []string) {
	at, err := (&state.Flags{Dir: ts.Getenv("FULGURITE_DIR")}).Addresses()
	ts.Check(err)
	reply, err := calculator.Connect(at.Gateway, "any").CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
		Model: args[0], Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: args[1]}},
	})
	if neg {
		if err == nil {
			ts.Fatalf("the gateway answered: %v", reply)
		}
		fmt.Fprintln(ts.Stderr(), err)
		return
	}
	ts.Check(err)
	ts.Check(json.NewEncoder(ts.Stdout()).Encode(reply))
}

func TestKeysAreFoundInJSON(t *testing.T) {
	t.Parallel()
	document := map[string]any{"a": []any{map[string]any{"b": 1.0}}}
	got, ok := lookUp(document, "a.0.b")
	require.True(t, ok)
	require.InDelta(t, 1, got, 0)
	for _, key := range []string{"b", "a.1", "a.0.c", "a.x", "a.0.b.c"} {
		_, ok := lookUp(document, key)
		require.False(t, ok, key)
	}
}
