// Package harbor reads tasks in Harbor's format
// (https://www.harborframework.com/docs/tasks) and makes the workspaces in which agents
// attempt them. In this format, a directory with instruction.md, task.toml, environment/
// and tests/ is both a task and its grader.
//
// A workspace is a copy of a task's environment for one attempt, in a mount namespace of
// this machine or in a container. The package prepares the workspace, says how commands
// run in it, and reads the reward that the task's tests write there. It starts neither
// agents nor tests: package agent does, so that they end together with their worker.
//
// Guarantees: if a workspace can't provide something, such as an image's packages without
// a container, the task is refused before anything runs, with the name of the key or
// line. A reward comes from files that the tests wrote after the agent had ended. Nothing
// of a workspace exists longer than until the next workspace on the same machine is
// opened, even if a worker was killed.
package harbor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the script
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

// Task is a directory in Harbor's format.
type Task struct {
	// Name is the task's path below the directory that was listed, with slashes.
	Name        string
	Directory   string // absolute
	Instruction string
	Config      Config
}

// The names of a task's parts.
const (
	configFile      = "task.toml"
	instructionFile = "instruction.md"
	environmentName = "environment"
	testsName       = "tests"
	solutionName    = "solution"
	testFile        = "test.sh"
	dockerfileName  = "Dockerfile"
)

const (
	// deepest is how many levels below a directory List looks for tasks.
	deepest = 6
	// shownFaults is how many faults an error lists.
	shownFaults = 20
)

// List reads the tasks in a directory: the directory itself, or all directories below it
// that have a task.toml, in the order of their paths. Links to directories are followed;
// hidden directories are left out. The error names up to 20 tasks that can't be used, and
// directories in the format of Terminal-Bench 1.
func List(directory string, how Options) ([]Task, error) {
	root, err := filepath.Abs(directory)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	stat, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	if !stat.IsDir() {
		return nil, fmt.Errorf("list tasks: %s is a file: give a directory of tasks in Harbor's format", root)
	}
	l := lister{directory: directory, root: root, how: how}
	if err := l.list(root, ".", nil); err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	if more := len(l.faults) - shownFaults; more > 0 {
		l.faults = append(l.faults[:shownFaults], fmt.Errorf("and %d more", more))
	}
	if err := errors.Join(l.faults...); err != nil {
		return nil, err
	}
	if len(l.tasks) == 0 {
		return nil, fmt.Errorf("%s has no tasks in Harbor's format: no directory in it has a %s", root, configFile)
	}
	return l.tasks, nil
}

// lister looks for tasks.
type lister struct {
	directory string // as it was given
	root      string // absolute
	how       Options
	tasks     []Task
	faults    []error
}

// list adds the tasks at and below a path. name is the path below the directory that is
// listed, and above are the directories that it is in, without links.
func (l *lister) list(at, name string, above []string) error {
	directory, err := filepath.EvalSymlinks(at)
	if err != nil {
		return err
	}
	if slices.Contains(above, directory) {
		l.faults = append(l.faults, fmt.Errorf("%s: %s is a link to a directory that it is in", l.directory, name))
		return nil
	}
	if _, err := os.Stat(filepath.Join(directory, configFile)); err == nil {
		l.add(directory, name)
		return nil
	}
	if isTerminalBench(directory) {
		l.faults = append(l.faults, fmt.Errorf("%s: %s has a task.yaml and no %s: it is in the format of Terminal-Bench 1; convert it to Harbor's format, its successor", l.directory, name, configFile))
		return nil
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, e := range entries {
		inside := e.Name()
		if name != "." {
			inside = name + "/" + e.Name()
		}
		if strings.HasPrefix(e.Name(), ".") || strings.Count(inside, "/") >= deepest {
			continue
		}
		below := filepath.Join(directory, e.Name())
		if stat, err := os.Stat(below); err != nil && e.Type()&fs.ModeSymlink != 0 {
			to, _ := os.Readlink(below) // without it the text names only the link
			l.faults = append(l.faults, fmt.Errorf("%s: %s is a link to %s, which leads to nothing here", l.directory, inside, to))
			continue
		} else if err != nil {
			return err
		} else if !stat.IsDir() {
			continue
		}
		if err := l.list(below, inside, append(slices.Clip(above), directory)); err != nil {
			return err
		}
	}
	return nil
}

// add reads a task.
func (l *lister) add(directory, name string) {
	if name == "." {
		name = filepath.Base(l.root)
	}
	t, err := Read(directory)
	if err == nil {
		err = t.Check(l.how)
	}
	if err != nil {
		l.faults = append(l.faults, fmt.Errorf("%s: task %s: %w", l.directory, name, err))
	}
	t.Name = name
	l.tasks = append(l.tasks, t)
}

// isTerminalBench reports whether a directory is a task of Terminal-Bench 1.
func isTerminalBench(directory string) bool {
	if _, err := os.Stat(filepath.Join(directory, "task.yaml")); err != nil {
		return false
	}
	for _, name := range []string{"run-tests.sh", "docker-compose.yaml", "Dockerfile", testsName} {
		if _, err := os.Stat(filepath.Join(directory, name)); err == nil {
			return true
		}
	}
	return false
}

// Options say how tasks are attempted and graded.
type Options struct {
	// Container is the program that runs containers, docker or podman, or empty for no
	// containers.
	Container string
	// Reward is the name of the reward that counts in a reward.json with several. Empty
	// means "reward".
	Reward string
}

// Read reads the task in a directory.
func Read(directory string) (Task, error) {
	t := Task{Name: filepath.Base(directory), Directory: directory}
	var err error
	if t.Config, err = readConfig(filepath.Join(directory, configFile)); err != nil {
		return t, err
	}
	for _, name := range []string{configFile, instructionFile} {
		if _, err := t.files(name); err != nil {
			return t, err
		}
	}
	name := filepath.Join(directory, instructionFile)
	text, err := textfile.Read(name)
	if err != nil && (len(t.Config.Steps) == 0 || errors.Is(err, textfile.ErrText)) {
		return t, err
	}
	lines := strings.ReplaceAll(string(text), "\r\n", "\n") // as Harbor reads it
	t.Instruction = strings.TrimSpace(withoutCanary(lines))
	if t.Instruction == "" && len(t.Config.Steps) == 0 {
		return t, fmt.Errorf("%s: empty", name)
	}
	if _, err := os.Stat(t.part(testsName, testFile)); err != nil && len(t.Config.Steps) == 0 {
		return t, fmt.Errorf("no %s: it has to write the reward", t.part(testsName, testFile))
	}
	return t, nil
}

// canary is a line that marks a text so that it can be found in training corpora.
var canary = regexp.MustCompile(`(?i)^(<!--.*canary.*-->|#.*canary.*)$`)

// withoutCanary removes canary lines at the beginning of a text, as Harbor does for
// agents.
func withoutCanary(text string) string {
	for {
		first, rest, more := strings.Cut(text, "\n")
		if line := strings.TrimSpace(first); !more || line != "" && !canary.MatchString(line) {
			return text
		}
		text = rest
	}
}

// Check returns an error with everything that the task needs and that a workspace of this
// kind does not provide.
func (t Task) Check(how Options) error {
	faults := t.Config.unsupported()
	for _, name := range []string{"docker-compose.yaml", "docker-compose.yml"} {
		if _, err := os.Stat(t.part(environmentName, name)); err == nil {
			faults = append(faults, environmentName+"/"+name+": several containers are not supported")
		}
	}
	for _, part := range []string{environmentName, testsName} {
		if _, err := t.files(part); err != nil {
			return errors.Join(err, joined(faults))
		}
	}
	if why := t.unreadableScript(); why != "" {
		faults = append(faults, why)
	}
	if why := t.missingReward(how.Reward); why != "" {
		faults = append(faults, why)
	}
	var err error
	if how.Container == "" {
		if why := t.missingInterpreter(); why != "" {
			faults = append(faults, why)
		}
		var more []string
		more, err = t.needsContainer()
		for _, one := range more {
			faults = append(faults, one+" (tasks.harbor.container: docker or podman gives it one)")
		}
	} else if _, stat := os.Stat(t.part(environmentName, dockerfileName)); stat != nil && t.Config.Environment.Image == "" {
		faults = append(faults, "no environment/Dockerfile and no environment.docker_image: a container needs an image")
	} else if why := t.leavesContext(); why != "" {
		faults = append(faults, why)
	}
	return errors.Join(err, joined(faults))
}

// joined returns faults as one error, or nil if there are none.
func joined(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}

// interpreter returns the command that runs test.sh: the one that its first line names
// after #!, or else bash.
func (t Task) interpreter() ([]string, error) {
	f, err := os.Open(t.part(testsName, testFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	named, ok := strings.CutPrefix(strings.TrimPrefix(line, "\ufeff"), "#!")
	program, argument := cutSpace(strings.TrimSpace(named))
	switch {
	case !ok || program == "":
		return []string{"bash"}, nil
	case argument == "":
		return []string{program}, nil
	}
	return []string{program, argument}, nil // the system takes the rest as one argument, too
}

// unreadableScript says why no shell can run test.sh: then it would write no reward, attempt
// after attempt. It returns "" if nothing is known.
func (t Task) unreadableScript() string {
	text, err := os.ReadFile(t.part(testsName, testFile))
	if err != nil {
		return "" // Read has looked for the file
	}
	name := testsName + "/" + testFile
	if f, other := textfile.FormatOf(text[:min(len(text), textfile.Begin)]); other && f.Remedy != "" {
		return fmt.Sprintf("%s is %s: %s", name, f.Name, f.Remedy)
	}
	words, err := t.interpreter()
	if err != nil {
		return ""
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	program := path.Base(words[len(words)-1])
	if strings.HasPrefix(program, "-") {
		program = path.Base(words[0])
	}
	if bytes.HasSuffix(first, []byte("\r")) && slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh"}, program) {
		return fmt.Sprintf("%s has lines that end with CR LF, which %s takes for a part of its words: save it with LF alone", name, program)
	}
	return ""
}

// missingInterpreter says that this machine lacks the program that runs test.sh. It
// returns "" if the machine has it.
func (t Task) missingInterpreter() string {
	words, err := t.interpreter()
	if err != nil {
		return "" // Read has looked for the file
	}
	program := words[0]
	if path.Base(program) == "env" && len(words) > 1 && !strings.ContainsAny(words[1], "-= \t") {
		program = words[1]
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Sprintf("%s/%s is run by %s, which this machine lacks", testsName, testFile, program)
	}
	return ""
}

// needsContainer returns the reasons why the task can't be attempted without a container.
func (t Task) needsContainer() ([]string, error) {
	var out []string
	e := t.Config.Environment
	if e.Image != "" {
		out = append(out, fmt.Sprintf("environment.docker_image %s needs a container", e.Image))
	}
	if e.offline() {
		out = append(out, "an environment without a network needs a container")
	}
	if user(t.Config.Agent.User)+user(t.Config.Verifier.User) != "" {
		out = append(out, "agent.user and verifier.user need a container")
	}
	l, err := t.layout()
	if err != nil {
		return out, err
	}
	return append(out, l.needs...), nil
}

// Longest returns how much time a workspace of the task takes at most, in addition to the
// agent's time: for building it and for the tests.
func (t Task) Longest() time.Duration {
	return seconds(t.Config.Environment.BuildSeconds) + seconds(t.Config.Verifier.Seconds) + 2*time.Minute
}

// part returns the path of a part of the task.
func (t Task) part(names ...string) string {
	return filepath.Join(append([]string{t.Directory}, names...)...)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Digest returns the hexadecimal SHA-256 of the files that an attempt and its grade
// depend on.
func (t Task) Digest() (string, error) {
	return t.digestOf(configFile, instructionFile, environmentName, testsName)
}

// EnvironmentDigest returns the hexadecimal SHA-256 of the files that the agent begins
// with.
func (t Task) EnvironmentDigest() (string, error) { return t.digestOf(environmentName) }

// digestOf returns a digest of parts of the task, including the modes of their files. A
// link counts as what it leads to.
func (t Task) digestOf(parts ...string) (string, error) {
	sum := sha256.New()
	for _, part := range parts {
		files, err := t.files(part)
		if err != nil {
			return "", err
		}
		for _, f := range files {
			fmt.Fprintf(sum, "%q %o %d\n", path.Join(part, f.path), f.info.Mode()&(fs.ModeType|0o100), sizeOf(f.info))
			if f.info.IsDir() {
				continue
			}
			if err := add(sum, f.from); err != nil {
				return "", fmt.Errorf("digest of %s: %w", t.Directory, err)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// add writes the content of a file.
func add(to io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

// sizeOf returns the size of a file, and 0 for a directory, whose size depends on the
// file system.
func sizeOf(info fs.FileInfo) int64 {
	if info.IsDir() {
		return 0
	}
	return info.Size()
}

// viewScript puts the namespace together and runs a command in it.
//
//go:embed view.sh
var viewScript string

// view returns the words to put before a command so that it sees the workspace: this
// machine, read-only except for the attempt's own directories, with the workspace's
// directories over it. The parts of the task's directory are hidden. Its tests are visible
// in /tests only to the command that runs them.
func (w *Workspace) view(tests bool) []string {
	home := w.place.Home
	words := []string{w.unshare, "--user", "--map-root-user", "--mount", "/bin/sh", "-c", viewScript, "view", filepath.Join(home, viewName), home, os.Getenv(pathVariable), w.layout.directory}
	for _, one := range w.covers() {
		words = append(words, w.inside(one), one)
	}
	words = append(words, filepath.Join(home, logsName), "/logs")
	if tests {
		words = append(words, filepath.Join(home, "harbor", testsName), "/tests")
	}
	words = append(words, "--")
	for _, name := range []string{configFile, environmentName, testsName, solutionName} {
		// The place of a link is that of its target, in the script's new root, too.
		if path, err := filepath.EvalSymlinks(w.task.part(name)); err == nil {
			words = append(words, path)
		}
	}
	return append(words, "--")
}

// covers returns the directories of the workspace that are mounted over this machine's:
// the working directory, if it exists on this machine, and otherwise directories at the
// root that don't exist here.
func (w *Workspace) covers() []string {
	var out []string
	seen := map[string]bool{}
	for _, to := range append([]string{w.layout.directory}, w.layout.destinations()...) {
		if !within(to, w.layout.directory) || !isDirectory(w.layout.directory) {
			to = "/" + strings.SplitN(strings.TrimPrefix(to, "/"), "/", 2)[0]
		} else {
			to = w.layout.directory
		}
		if !seen[to] {
			seen[to] = true
			out = append(out, to)
		}
	}
	return out
}

// findUnshare returns the path of unshare. It is an error if this user can't make mount
// namespaces on this machine.
func findUnshare(ctx context.Context) (string, error) {
	name, err := exec.LookPath("unshare")
	var out []byte
	if err == nil {
		out, err = exec.CommandContext(ctx, name, "--user", "--map-root-user", "--mount", "true").CombinedOutput()
	}
	if err != nil {
		return "", fmt.Errorf("%w: it needs Linux, util-linux's unshare and user namespaces that this user may make, or else tasks.harbor.container: %w: %s", ErrMachine, err, strings.TrimSpace(string(out)))
	}
	return name, nil
}
