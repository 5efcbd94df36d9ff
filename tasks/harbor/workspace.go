package harbor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrMachine is wrapped when this machine lacks something that a workspace needs. It says
// nothing about the task.
var ErrMachine = errors.New("this machine can't make workspaces")

// ErrReward is wrapped when the tests left no usable reward.
var ErrReward = errors.New("the tests left no usable reward")

// Place describes where a workspace is made, and for which attempt.
type Place struct {
	// Home is a directory that belongs to the attempt, and whose lock file, Home with
	// ".lock", is held for as long as the attempt lasts.
	Home string
	Options
	// Limit is how long the agent may take. 0 means no limit.
	Limit time.Duration
}

// Workspace is a copy of a task's environment for one attempt.
type Workspace struct {
	task      Task
	place     Place
	layout    layout
	unshare   string     // its path
	container *container // nil without a container
}

// The parts of a workspace in the home.
const (
	rootName = "harbor/root" // the workspace's files, by their paths in it
	logsName = "harbor/logs"
	viewName = "harbor/view" // where the namespace is set up
	execName = "harbor/exec"
	// testsPlace is where the tests are copied to.
	testsPlace = "harbor/" + testsName
)

// pathVariable is the environment variable with the directories of programs.
const pathVariable = "PATH"

// Open makes a workspace. Errors that wrap ErrMachine are about this machine, others
// about the task. Open first removes what an earlier workspace of the same place left
// behind.
func Open(ctx context.Context, t Task, p Place) (*Workspace, error) {
	if err := t.Check(p.Options); err != nil {
		return nil, err
	}
	w := &Workspace{task: t, place: p}
	for _, name := range []string{rootName, logsName + "/verifier", logsName + "/agent", viewName} {
		if err := os.MkdirAll(filepath.Join(p.Home, name), 0o755); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMachine, err)
		}
	}
	var err error
	if p.Container != "" {
		w.container, err = startContainer(ctx, t, p)
	} else {
		err = w.copyFiles(ctx)
	}
	if err == nil {
		err = w.writeExec()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// copyFiles makes the files with which the agent begins.
func (w *Workspace) copyFiles(ctx context.Context) error {
	var err error
	if w.unshare, err = findUnshare(ctx); err != nil {
		return err
	}
	if w.layout, err = w.task.layout(); err != nil {
		return err
	}
	for _, folder := range append(w.layout.folders, w.layout.directory) {
		if err := os.MkdirAll(w.inside(folder), 0o755); err != nil {
			return fmt.Errorf("%w: %w", ErrMachine, err)
		}
	}
	for _, c := range w.layout.copies {
		if err := copyFiles(c.files, w.inside(c.to)); err != nil {
			return fmt.Errorf("copy to %s: %w", c.to, err)
		}
	}
	return nil
}

// inside returns the path on this machine of a path in the workspace.
func (w *Workspace) inside(name string) string {
	return filepath.Join(w.place.Home, rootName, filepath.FromSlash(name))
}

// Directory returns the path of the agent's working directory in the workspace.
func (w *Workspace) Directory() string {
	if w.container != nil {
		return w.container.directory
	}
	return w.layout.directory
}

// Limit returns how long the task lets an agent work. 0 means no limit.
func (w *Workspace) Limit() time.Duration { return seconds(w.task.Config.Agent.Seconds) }

// Wrap returns the words to put before a command so that it runs in the workspace. With a
// container there are none: agents reach it with the program of FULGURITE_EXEC.
func (w *Workspace) Wrap() []string {
	if w.container != nil {
		return nil
	}
	return w.view(false)
}

// Environment returns the environment variables that an agent gets. FULGURITE_WORKDIR is
// its working directory. FULGURITE_EXEC is a program that runs its arguments as a command
// there. With a container, FULGURITE_CONTAINER is the container's name.
func (w *Workspace) Environment() (map[string]string, error) {
	vars, err := resolve("environment.env", w.task.Config.Environment.Variables)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(w.layout.variables)
	if out == nil {
		out = map[string]string{}
	}
	if w.container == nil {
		maps.Copy(out, vars)
		withMachinePath(out)
	} else {
		out["FULGURITE_CONTAINER"] = w.container.name
	}
	out["FULGURITE_WORKDIR"] = w.Directory()
	out["FULGURITE_EXEC"] = filepath.Join(w.place.Home, execName)
	return out, nil
}

// writeExec writes the program of FULGURITE_EXEC.
func (w *Workspace) writeExec() error {
	command := `"$@"`
	if w.container != nil {
		words := w.container.exec(user(w.task.Config.Agent.User), nil)
		for i, word := range words {
			words[i] = quote(word)
		}
		command = strings.Join(words, " ") + ` "$@"`
	}
	err := os.WriteFile(filepath.Join(w.place.Home, execName), []byte("#!/bin/sh\nexec "+command+"\n"), 0o755)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMachine, err)
	}
	return nil
}

// Tests returns the command that runs the task's tests in the workspace, its environment
// variables, and its time limit. Call it when the agent has ended: it removes files of
// the agent where the tests and their reward belong.
func (w *Workspace) Tests(ctx context.Context) (command []string, environment map[string]string, limit time.Duration, err error) {
	environment, err = resolve("verifier.env", w.task.Config.Verifier.Environment)
	if err != nil {
		return nil, nil, 0, err
	}
	limit = seconds(w.task.Config.Verifier.Seconds)
	if w.container != nil {
		run, err := w.copyTests()
		if err != nil {
			return nil, nil, 0, err
		}
		command, err = w.container.tests(ctx, w.task, filepath.Join(w.place.Home, testsPlace), environment)
		return append(command, run...), environment, limit, err
	}
	verifier := filepath.Join(w.place.Home, logsName, "verifier")
	err = errors.Join(os.RemoveAll(verifier), os.MkdirAll(verifier, 0o755))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrMachine, err)
	}
	run, err := w.copyTests()
	if err != nil {
		return nil, nil, 0, err
	}
	variables := maps.Clone(w.layout.variables)
	vars, err := resolve("environment.env", w.task.Config.Environment.Variables)
	if err != nil {
		return nil, nil, 0, err
	}
	maps.Copy(variables, vars)
	maps.Copy(variables, environment)
	withMachinePath(variables)
	return append(w.view(true), run...), variables, limit, nil
}

// copyTests copies the tests into the home, and returns the command that runs them where
// they are at /tests.
func (w *Workspace) copyTests() ([]string, error) {
	to := filepath.Join(w.place.Home, testsPlace)
	if err := os.RemoveAll(to); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMachine, err)
	}
	files, err := w.task.files(testsName)
	if err != nil {
		return nil, err
	}
	if err := copyFiles(files, to); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMachine, err)
	}
	interpreter, err := w.task.interpreter()
	return append(interpreter, "/tests/"+testFile), err
}

// withMachinePath adds this machine's search path to one of a Dockerfile or a task.toml,
// because the programs are this machine's.
func withMachinePath(variables map[string]string) {
	own, given := os.Getenv(pathVariable), variables[pathVariable]
	if given != "" && own != "" && !strings.Contains(":"+given+":", ":"+own+":") {
		variables[pathVariable] = strings.TrimSuffix(given, ":") + ":" + own
	}
}

// Reward returns the reward that the tests wrote to /logs/verifier/reward.json or, if
// that does not exist, to reward.txt.
func (w *Workspace) Reward(ctx context.Context) (float64, error) {
	directory := filepath.Join(w.place.Home, logsName, "verifier")
	if w.container != nil {
		if err := w.container.fetchRewards(ctx, directory); err != nil {
			return 0, err
		}
	}
	return readReward(directory, w.place.Options.Reward)
}

// Close removes the workspace's container. The workspace's files are removed together
// with the home.
func (w *Workspace) Close() error {
	if w.container == nil {
		return nil
	}
	return w.container.remove()
}

var template = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?\}$`)

// resolve replaces values such as ${NAME} and ${NAME:-default} by environment variables
// of this process.
func resolve(key string, vars map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		value := vars[name]
		if m := template.FindStringSubmatch(value); m != nil {
			found, ok := os.LookupEnv(m[1])
			switch {
			case ok:
				value = found
			case m[2] != "":
				value = m[3]
			default:
				return nil, fmt.Errorf("%w: %s.%s needs the variable %s in the worker's environment", ErrMachine, key, name, m[1])
			}
		}
		out[name] = value
	}
	return out, nil
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
