package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Program is the name of the program that runs containers.
const Program = "podman"

// ErrUnavailable is wrapped when podman is not on this machine, or can't run the containers
// of agents.
var ErrUnavailable = errors.New("this machine can't run containers")

// ErrNoImage is wrapped when podman does not have an image.
var ErrNoImage = errors.New("no such image")

// commandTime is how long podman may take for a question.
const commandTime = 2 * time.Minute

// messageBytes is how much of what podman says on standard error an error quotes.
const messageBytes = 1000

// Podman is podman on this machine, as Find has found it.
type Podman struct{ Version string }

// Find returns podman if it can run the containers of agents here. Otherwise the error
// wraps ErrUnavailable and says what is missing.
func Find(ctx context.Context) (Podman, error) {
	text, err := output(ctx, "info", "--format", "json")
	if ctx.Err() != nil {
		return Podman{}, context.Cause(ctx)
	}
	if err != nil {
		return Podman{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var i info
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Podman{}, fmt.Errorf("%w: read what podman info says: %w", ErrUnavailable, err)
	}
	if why := i.lacks(); why != "" {
		return Podman{}, fmt.Errorf("%w: %s", ErrUnavailable, why)
	}
	return Podman{Version: i.Version.Version}, nil
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
		return "podman has no OCI runtime: install crun or runc"
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

// ImageID returns the ID of the image with a name: "sha256:" and the digest of the image's
// configuration, which names all its content. The error wraps ErrNoImage if podman has none.
func (Podman) ImageID(ctx context.Context, name string) (string, error) {
	text, err := output(ctx, "image", "inspect", "--format", "{{.Id}}", name)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoImage, err)
	}
	id := "sha256:" + strings.TrimPrefix(strings.TrimSpace(text), "sha256:")
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(id) {
		return "", fmt.Errorf("podman says that the ID of image %s is %q", name, id)
	}
	return id, nil
}

// Environment returns the variables of this process with which podman finds its
// configuration and its images. Those that name another machine's podman are not among
// them.
func Environment() []string {
	var out []string
	for _, name := range []string{"CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "HOME", "PATH", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"} {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// output runs podman and returns what it writes to standard output.
func output(ctx context.Context, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	c := exec.CommandContext(limited, Program, args...)
	c.Env = Environment()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.WaitDelay = time.Second
	err := c.Run()
	switch {
	case limited.Err() != nil && ctx.Err() == nil:
		return "", fmt.Errorf("podman %s: not done within %s", args[0], commandTime)
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("there is no program podman")
	case err != nil:
		text := strings.Join(strings.Fields(stderr.String()), " ")
		return "", fmt.Errorf("podman %s: %w: %s", args[0], err, text[max(0, len(text)-messageBytes):])
	}
	return stdout.String(), nil
}
