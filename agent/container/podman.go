package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Program is the name of the program that runs containers.
const Program = "podman"

// ErrUnavailable is wrapped when podman is not on this machine, or lacks what the containers
// of agents need. A podman that only fails does not count as that: its fault may pass.
var ErrUnavailable = errors.New("this machine can't run containers")

// ErrNoImage is wrapped when podman says that it does not have an image.
var ErrNoImage = errors.New("no such image")

// answerTime is how long podman may take to answer a question.
const answerTime = 2 * time.Minute

// messageBytes is how much of what podman says on standard error an error quotes.
const messageBytes = 1000

// Podman is podman on this machine.
type Podman struct {
	// Version is known if Find has found it.
	Version string
	// Environment has the variables that podman gets, as Environment returns them. The
	// program is looked for in the PATH among them.
	Environment []string
}

// Find returns podman if it can run the containers of agents here. The error wraps
// ErrUnavailable and says what is missing if podman or something that it needs is not there.
func Find(ctx context.Context) (Podman, error) {
	p := Podman{Environment: Environment()}
	text, err := p.answer(ctx, "info", "--format", "json")
	if err != nil {
		return Podman{}, err
	}
	var i info
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Podman{}, fmt.Errorf("read what podman info says: %w", err)
	}
	if why := i.lacks(); why != "" {
		return Podman{}, fmt.Errorf("%w: %s", ErrUnavailable, why)
	}
	p.Version = i.Version.Version
	return p, nil
}

// info is what podman says of itself and its machine.
type info struct {
	Host struct {
		Controllers []string `json:"cgroupControllers"`
		Runtime     struct {
			Path string `json:"path"`
		} `json:"ociRuntime"`
		Remote   bool `json:"serviceIsRemote"`
		Security struct {
			Rootless bool `json:"rootless"`
			Seccomp  bool `json:"seccompEnabled"`
		} `json:"security"`
	} `json:"host"`
	Version struct {
		Version string `json:"Version"`
	} `json:"version"`
}

// lacks returns what podman lacks to run the containers of agents, or "".
func (i info) lacks() string {
	switch {
	case i.Host.Remote:
		return "podman runs its containers on another machine: install podman beside the worker"
	case i.Host.Security.Rootless:
		return "podman does not run as root, and then nothing bounds the processes of a container: start the worker as root"
	case i.Host.Runtime.Path == "":
		return "podman has no OCI runtime: install runc"
	case !i.Host.Security.Seccomp:
		return "podman filters no system calls here: install a podman with seccomp"
	}
	for _, one := range []string{"memory", "pids"} {
		if !slices.Contains(i.Host.Controllers, one) {
			return fmt.Sprintf("podman has no control groups for %s, so nothing bounds a container: give the machine that controller", one)
		}
	}
	return ""
}

// String returns the program with its version.
func (p Podman) String() string { return Program + " " + p.Version }

// HasImage reports whether podman has an image with a name or an ID.
func (p Podman) HasImage(ctx context.Context, name string) (bool, error) {
	_, err := p.answer(ctx, "image", "exists", name)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // with another code, podman does not know
		return false, nil
	}
	return err == nil, err
}

// ImageID returns the ID of the image with a name: "sha256:" and the digest of the image's
// configuration, which names all its content. The error wraps ErrNoImage if podman has none.
func (p Podman) ImageID(ctx context.Context, name string) (string, error) {
	text, err := p.answer(ctx, "image", "inspect", "--format", "{{.Id}}", name)
	if err != nil {
		if has, failure := p.HasImage(ctx, name); failure == nil && !has {
			return "", fmt.Errorf("%w: %w", ErrNoImage, err)
		}
		return "", err
	}
	id := "sha256:" + strings.TrimPrefix(strings.TrimSpace(text), "sha256:")
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(id) {
		return "", fmt.Errorf("podman says that the ID of image %s is %q", name, id)
	}
	return id, nil
}

// Variables returns the environment variables of an image. A container also has some that
// podman's configuration adds, such as proxies, which differ between machines.
func (p Podman) Variables(ctx context.Context, image string) ([]string, error) {
	text, err := p.answer(ctx, "image", "inspect", "--format", "{{json .Config.Env}}", image)
	if err != nil {
		return nil, err
	}
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("read the variables of image %s: %w", image, err)
	}
	return out, nil
}

// Environment returns the variables of this process with which podman finds its
// configuration and its images. Those that name another machine's podman are not among
// them.
func Environment() []string {
	var out []string
	for _, name := range []string{
		"CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF", "HOME", "PATH", "STORAGE_DRIVER", "STORAGE_OPTS", "TMPDIR",
		"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
	} {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// Command returns a command of podman. It does not end with this process, which may be
// killed. It is an error if there is no podman.
func (p Podman) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	program, err := p.find()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program, args...)
	c.Env, c.Dir, c.WaitDelay = p.Environment, "/", time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c, nil
}

// find returns the path of podman.
func (p Podman) find() (string, error) {
	for _, one := range p.Environment {
		list, ok := strings.CutPrefix(one, "PATH=")
		if !ok {
			continue
		}
		for _, directory := range filepath.SplitList(list) {
			if path, err := exec.LookPath(filepath.Join(directory, Program)); err == nil && filepath.IsAbs(path) {
				return path, nil
			}
		}
	}
	return "", errors.New("there is no program " + Program)
}

// answer runs podman and returns what it writes to standard output. If ctx ends, the error
// is why.
func (p Podman) answer(ctx context.Context, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c, err := p.Command(limited, args...)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err = c.Run()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case limited.Err() != nil:
		return "", fmt.Errorf("podman %s: not done within %s", args[0], answerTime)
	case err != nil:
		text := strings.Join(strings.Fields(stderr.String()), " ")
		return "", fmt.Errorf("podman %s: %w: %s", args[0], err, text[max(0, len(text)-messageBytes):])
	}
	return stdout.String(), nil
}
