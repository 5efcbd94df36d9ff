package harbor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
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
// that have a task.toml, in the order of their paths. Hidden directories and links are
// left out. The error names up to 20 tasks that can't be used. container has the meaning
// that it has for Check.
func List(directory, container string) ([]Task, error) {
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
	var list []Task
	var faults []error
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path) // both are absolute
		name = filepath.ToSlash(name)
		if name != "." && strings.HasPrefix(d.Name(), ".") || strings.Count(name, "/") >= deepest {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, configFile)); err != nil {
			return nil // no task, but perhaps a folder of tasks
		}
		if name == "." {
			name = filepath.Base(root)
		}
		t, err := Read(path)
		if err == nil {
			err = t.Check(container)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: task %s: %w", directory, name, err))
		}
		t.Name = name
		list = append(list, t)
		return fs.SkipDir
	})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	if more := len(faults) - shownFaults; more > 0 {
		faults = append(faults[:shownFaults], fmt.Errorf("and %d more", more))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no tasks in Harbor's format: no directory in it has a %s", root, configFile)
	}
	return list, nil
}

// Read reads the task in a directory.
func Read(directory string) (Task, error) {
	t := Task{Name: filepath.Base(directory), Directory: directory}
	var err error
	if t.Config, err = readConfig(filepath.Join(directory, configFile)); err != nil {
		return t, err
	}
	path := filepath.Join(directory, instructionFile)
	text, err := os.ReadFile(path)
	switch {
	case err != nil && len(t.Config.Steps) == 0:
		return t, err
	case !utf8.Valid(text):
		return t, fmt.Errorf("%s: no valid UTF-8", path)
	}
	t.Instruction = strings.TrimSpace(withoutCanary(string(text)))
	if t.Instruction == "" && len(t.Config.Steps) == 0 {
		return t, fmt.Errorf("%s: empty", path)
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
// kind does not provide. container is the program that runs containers, docker or podman,
// or empty for no containers.
func (t Task) Check(container string) error {
	faults := t.Config.unsupported()
	for _, name := range []string{"docker-compose.yaml", "docker-compose.yml"} {
		if _, err := os.Stat(t.part(environmentName, name)); err == nil {
			faults = append(faults, environmentName+"/"+name+": several containers are not supported")
		}
	}
	var err error
	if container == "" {
		var more []string
		more, err = t.needsContainer()
		for _, one := range more {
			faults = append(faults, one+" (tasks.harbor.container: docker or podman gives it one)")
		}
	} else if _, stat := os.Stat(t.part(environmentName, dockerfileName)); stat != nil && t.Config.Environment.Image == "" {
		faults = append(faults, "no environment/Dockerfile and no environment.docker_image: a container needs an image")
	}
	if len(faults) > 0 {
		err = errors.Join(err, errors.New(strings.Join(faults, "; ")))
	}
	return err
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
	return digestOf(t.Directory, configFile, instructionFile, environmentName, testsName)
}

// EnvironmentDigest returns the hexadecimal SHA-256 of the files that the agent begins
// with.
func (t Task) EnvironmentDigest() (string, error) { return digestOf(t.Directory, environmentName) }

// digestOf returns a digest of files and directories below a directory, including their
// modes.
func digestOf(directory string, names ...string) (string, error) {
	sum := sha256.New()
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(directory, name), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			relative, _ := filepath.Rel(directory, path) // can't fail: path is below directory
			info, err := d.Info()
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%q %o %d\n", filepath.ToSlash(relative), info.Mode()&(fs.ModeType|0o100), sizeOf(info))
			switch {
			case info.Mode().IsRegular():
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = io.Copy(sum, f)
				return err
			case info.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				fmt.Fprintf(sum, "%q\n", target)
				return err
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("digest of %s: %w", directory, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sizeOf returns the size of a file, and 0 for a directory, whose size depends on the
// file system.
func sizeOf(info fs.FileInfo) int64 {
	if info.IsDir() {
		return 0
	}
	return info.Size()
}
