package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// exampleFile is the name of the file, in the folder of each example, that says what the
// example is checked for.
const exampleFile = "example.yaml"

// example is a folder with programs of one framework.
type example struct {
	Name   string `yaml:"-"` // name of the folder
	Folder string `yaml:"-"`
	// Spec is the spec of a training run, if there is one.
	Spec string `yaml:"spec"`
	// Needs is a command that succeeds if the spec can be trained. If it fails, only the
	// walks run, and a remark says so.
	Needs []string `yaml:"needs"`
	// Server is up while the programs run, if they need one.
	Server *toolServer `yaml:"server"`
	// Worker is a worker of Temporal's whose workflows are the agents of the training run,
	// run in the example's folder. It is shut down once while an agent runs, and started
	// again.
	Worker []string `yaml:"worker"`
	// Walks run a program against replies that are written down.
	Walks []walk `yaml:"walks"`
}

// walk is one run of a program, with the results that are required of it.
type walk struct {
	// Command is run as agent.command of a spec is, in the example's folder.
	Command []string `yaml:"command"`
	// Input is the input of the task.
	Input string `yaml:"input"`
	// Metadata is the metadata of the task.
	Metadata map[string]any `yaml:"metadata"`
	// Environment is added to the environment of each agent.
	Environment map[string]string `yaml:"environment"`
	// API is the API that all calls must use.
	API string `yaml:"api"`
	// Stream says whether the calls are answered with event streams.
	Stream bool `yaml:"stream"`
	// Replies are the possible replies of the sampler.
	Replies []reply `yaml:"replies"`
	// Result is the required result of the agent, and Calls the number of calls that it
	// must make.
	Result string `yaml:"result"`
	Calls  int    `yaml:"calls"`
	// Exact says that each request which contains a reply of the model has to continue that
	// reply's own tokens.
	Exact bool `yaml:"exact"`
	// Agents are the agents that made the calls, in order, according to the program's own
	// spans. Tools are the tools that ran, in order. " joined" follows a tool if it is
	// known which tool call asked for it, and " failed" follows a tool that failed. If
	// both lists are empty, spans are not checked.
	Agents []string `yaml:"agents"`
	Tools  []string `yaml:"tools"`
	// GRPC has the exporter send its spans by gRPC.
	GRPC bool `yaml:"grpc"`
	// KillServerAt is the number of a call. In a further attempt, the example's server is
	// killed before the reply to that call. The attempt must then end with a fault and
	// without a result.
	KillServerAt int `yaml:"kill_server_at"`
	// Fresh says, with the reason, that a second attempt does not repeat the
	// requests of the first.
	Fresh string `yaml:"fresh"`
}

// reply is the reply to a prompt that contains all of the texts in To. The first reply
// that fits is used. In both fields, special tokens are written by name, as in
// "<call>{}".
type reply struct {
	To  []string `yaml:"to"`
	Say string   `yaml:"say"`
}

// readExamples reads those with the given names, or all.
func readExamples(folder string, names []string) ([]example, error) {
	if len(names) == 0 {
		files, err := filepath.Glob(filepath.Join(folder, "*", exampleFile))
		if err != nil {
			return nil, fmt.Errorf("list the examples in %s: %w", folder, err)
		}
		for _, f := range files {
			names = append(names, filepath.Base(filepath.Dir(f)))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no example in %s: run this from the root of the repository, or say --folder", folder)
	}
	var out []example
	for _, name := range names {
		e, err := readExample(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("read example %s: %w", name, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func readExample(folder string) (example, error) {
	text, err := os.ReadFile(filepath.Join(folder, exampleFile))
	if err != nil {
		return example{}, err
	}
	e := example{Name: filepath.Base(folder), Folder: folder}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&e); err != nil {
		return example{}, fmt.Errorf("%s: %w", exampleFile, err)
	}
	if len(e.Walks) == 0 && len(e.Worker) == 0 {
		return example{}, fmt.Errorf("%s: walks is empty: name a program and its replies", exampleFile)
	}
	if s := e.Server; s != nil && (len(s.Command) == 0 || s.Variable == "") {
		return example{}, fmt.Errorf("%s: server needs command and variable", exampleFile)
	}
	for i := range e.Walks {
		if err := e.Walks[i].check(); err != nil {
			return example{}, fmt.Errorf("%s: walks[%d].%w", exampleFile, i, err)
		}
		e.Walks[i].resolve(folder)
	}
	return e, nil
}

func (w walk) check() error {
	switch {
	case len(w.Command) == 0:
		return errors.New("command is missing")
	case len(w.Replies) == 0:
		return errors.New("replies is empty: the sampler has nothing to say")
	case w.Calls < 1:
		return fmt.Errorf("calls is %d: want at least 1", w.Calls)
	case !slices.Contains([]string{"chat", "completions", "responses", "messages"}, w.API):
		return fmt.Errorf("api is %q: want chat, completions, responses or messages", w.API)
	}
	return nil
}

// resolve makes a program with a slash relative to the example, as in a spec.
func (w *walk) resolve(folder string) {
	if program := w.Command[0]; strings.Contains(program, "/") && !filepath.IsAbs(program) {
		w.Command[0] = filepath.Join(folder, program)
	}
}
