package harbor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
)

// The labels of containers that this package starts.
const (
	labelHome  = "fulgurite.home"  // the home; its lock file is held while the container is needed
	labelTasks = "fulgurite.tasks" // marks containers that this package started
	labelHost  = "fulgurite.host"  // the machine that has the home: several may use one daemon
)

const (
	// commandTime is the time limit of a short docker command.
	commandTime = 2 * time.Minute
	// spareTime is how much longer a container lives than the limits of agent and tests.
	// It then ends by itself, if no worker of this machine returns to remove it.
	spareTime = time.Hour
	// longestLife is the lifetime of a container whose agent has no limit.
	longestLife = 24 * time.Hour
)

// container is a workspace in a container.
type container struct {
	program   string // docker or podman
	name      string
	directory string
	variables map[string]string // environment variables of docker itself
}

// startContainer builds the task's image, if this machine doesn't have it, and starts a
// container from it. First it removes the containers of workers that were killed.
func startContainer(ctx context.Context, t Task, p Place) (*container, error) {
	c := &container{program: p.Container}
	if err := c.sweep(ctx, p.Home); err != nil {
		return nil, err
	}
	image, err := c.image(ctx, t)
	if err != nil {
		return nil, err
	}
	variables, err := resolve("environment.env", t.Config.Environment.Variables)
	if err != nil {
		return nil, err
	}
	limit, life := p.Limit, longestLife
	if limit == 0 {
		limit = seconds(t.Config.Agent.Seconds)
	}
	if limit > 0 {
		life = limit + t.Longest() + spareTime
	}
	args := []string{"run", "--detach", "--rm", "--label", labelTasks + "=harbor", "--label", labelHost + "=" + host(), "--label", labelHome + "=" + p.Home}
	e := t.Config.Environment
	if e.Processors > 0 {
		args = append(args, "--cpus", strconv.FormatFloat(e.Processors, 'g', -1, 64))
	}
	if e.MemoryMB > 0 {
		args = append(args, "--memory", strconv.Itoa(e.MemoryMB)+"m")
	}
	if e.offline() {
		args = append(args, "--network", "none")
	}
	c.variables = variables
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		args = append(args, "--env", name) // the value is in docker's environment, where lists of processes don't show it
	}
	args = append(args, "--entrypoint", "sleep", image, strconv.Itoa(int(life.Seconds())))
	id, err := c.output(ctx, commandTime, args...)
	if err != nil {
		return nil, fmt.Errorf("%w: start a container of %s: %w", ErrMachine, t.Name, err)
	}
	c.name = strings.TrimSpace(id[strings.LastIndexByte(strings.TrimSpace(id), '\n')+1:])
	if c.directory, err = c.workingDirectory(ctx, t); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

// workingDirectory returns the working directory of task.toml or, if it has none, the
// image's. It also makes that directory and Harbor's directories for logs.
func (c *container) workingDirectory(ctx context.Context, t Task) (string, error) {
	directory, err := c.output(ctx, commandTime, "inspect", "--format", "{{.Config.WorkingDir}}", c.name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMachine, err)
	}
	directory = strings.TrimSpace(directory)
	if t.Config.Environment.Directory != "" {
		directory = t.Config.Environment.Directory
	}
	if directory == "" {
		directory = "/"
	}
	if _, err := c.output(ctx, commandTime, "exec", "--user", "0", c.name, "mkdir", "-p", directory, "/logs/agent", "/logs/verifier"); err != nil {
		return "", fmt.Errorf("make the directories of %s in its container: %w", t.Name, err)
	}
	return directory, nil
}

// image returns the image of a task's environment. An image from a Dockerfile is named
// for its content, so that it is built once.
func (c *container) image(ctx context.Context, t Task) (string, error) {
	if _, err := os.Stat(t.part(environmentName, dockerfileName)); err != nil {
		return t.Config.Environment.Image, nil // run fetches it
	}
	digest, err := t.EnvironmentDigest()
	if err != nil {
		return "", err
	}
	image := "fulgurite-harbor:" + digest[:24]
	if _, err := c.output(ctx, commandTime, "image", "inspect", image); err == nil {
		return image, nil
	}
	if _, err := c.output(ctx, commandTime, "ps"); err != nil {
		return "", fmt.Errorf("%w: %w", ErrMachine, err)
	}
	if _, err := c.output(ctx, seconds(t.Config.Environment.BuildSeconds), "build", "--tag", image, t.part(environmentName)); err != nil {
		return "", fmt.Errorf("build the image of task %s: %w", t.Name, err)
	}
	return image, nil
}

// host returns the name of this machine. All machines without a name count as one.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// sweep removes the containers of this home, and of those homes on this machine whose
// lock no process holds.
func (c *container) sweep(ctx context.Context, home string) error {
	out, err := c.output(ctx, commandTime, "ps", "--all", "--quiet", "--filter", "label="+labelTasks+"=harbor", "--filter", "label="+labelHost+"="+host())
	if err != nil {
		return fmt.Errorf("%w: list containers: %w", ErrMachine, err)
	}
	for _, id := range strings.Fields(out) {
		of, err := c.output(ctx, commandTime, "inspect", "--format", `{{index .Config.Labels "`+labelHome+`"}}`, id)
		if of = strings.TrimSpace(of); err != nil || of != home && held(of+".lock") {
			continue // the container is already removed, or still needed
		}
		// It doesn't matter if another worker removes the container at the same time.
		if _, err := c.output(ctx, commandTime, "rm", "--force", id); err != nil && of == home {
			return fmt.Errorf("%w: remove container %s: %w", ErrMachine, id, err)
		}
	}
	return nil
}

// held reports whether a process holds the lock file of a home.
func held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// clientVariables returns the variables by which docker and podman find their daemon.
func clientVariables() []string {
	var out []string
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "CONTAINER_HOST", "CONTAINERS_CONF"} {
		if value := os.Getenv(name); value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// exec returns the words that have to precede a command to run it in the container. The
// values of variables are taken from the environment of the command.
func (c *container) exec(user string, variables map[string]string) []string {
	words := append([]string{"env"}, clientVariables()...)
	words = append(words, c.program, "exec", "--interactive", "--workdir", c.directory)
	if user != "" {
		words = append(words, "--user", user)
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		words = append(words, "--env", name)
	}
	return append(words, c.name)
}

// tests ends the processes that the agent left running, copies the tests from a directory
// of this machine into the container, and returns the words before the command that runs
// them.
func (c *container) tests(ctx context.Context, t Task, copied string, variables map[string]string) ([]string, error) {
	for _, args := range [][]string{
		{"exec", "--user", "0", c.name, "sh", "-c", "kill -9 -1; true"}, // kills all processes but itself and the first one
		{"exec", "--user", "0", c.name, "sh", "-c", "rm -rf /tests /logs/verifier && mkdir -p /tests /logs/verifier && chmod 777 /logs/verifier"},
		{"cp", copied + "/.", c.name + ":/tests"},
	} {
		if _, err := c.output(ctx, commandTime, args...); err != nil {
			return nil, fmt.Errorf("%w: put the tests of %s into its container: %w", ErrMachine, t.Name, err)
		}
	}
	return c.exec(user(t.Config.Verifier.User), variables), nil
}

// fetchRewards copies the files of rewards to a directory of this machine.
func (c *container) fetchRewards(ctx context.Context, directory string) error {
	for _, name := range []string{"reward.json", "reward.txt"} {
		from := "/logs/verifier/" + name
		if _, err := c.output(ctx, commandTime, "exec", "--user", "0", c.name, "test", "-e", from); err != nil {
			if _, alive := c.output(ctx, commandTime, "exec", "--user", "0", c.name, "true"); alive != nil {
				return fmt.Errorf("%w: the container is gone: %w", ErrMachine, alive)
			}
			continue
		}
		if _, err := c.output(ctx, commandTime, "cp", c.name+":"+from, filepath.Join(directory, name)); err != nil {
			return fmt.Errorf("%w: read %s: %w", ErrMachine, from, err)
		}
	}
	return nil
}

// remove removes the container, even if the attempt's context has ended.
func (c *container) remove() error {
	if c.name == "" {
		return nil
	}
	if _, err := c.output(context.Background(), commandTime, "rm", "--force", c.name); err != nil {
		return fmt.Errorf("remove container %s: %w", c.name, err)
	}
	return nil
}

// output runs docker or podman and returns its standard output; the error ends with its
// standard error.
func (c *container) output(ctx context.Context, most time.Duration, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	command := exec.CommandContext(limited, c.program, args...)
	command.Env = subprocess.Environment()
	for name, value := range c.variables {
		command.Env = append(command.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	command.WaitDelay = time.Second
	err := command.Run()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case limited.Err() != nil:
		return "", fmt.Errorf("%s %s: not done within %s", c.program, args[0], most)
	case err != nil:
		text := strings.TrimSpace(stderr.String())
		return "", fmt.Errorf("%s %s: %w: %s", c.program, args[0], err, text[max(0, len(text)-2000):])
	}
	return stdout.String(), nil
}

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
