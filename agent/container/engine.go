package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// The programs that run containers.
const (
	Podman = "podman"
	Docker = "docker"
)

// Programs returns the programs in the order in which they are tried. Podman needs no
// daemon that runs as root.
func Programs() []string { return []string{Podman, Docker} }

// ErrUnavailable is wrapped when this machine has neither program, or one that does not
// work.
var ErrUnavailable = errors.New("this machine can't run containers")

// ErrNoImage is wrapped when an engine does not have an image.
var ErrNoImage = errors.New("no such image")

// commandTime is how long podman or docker may take for a question.
const commandTime = time.Minute

// messageBytes is how much of what a program says on standard error an error quotes.
const messageBytes = 1000

// Engine is podman or docker on this machine.
type Engine struct {
	Program string
	Version string
}

// Find returns the engine of a program, or the first one that works if program is empty.
// The error wraps ErrUnavailable if there is none.
func Find(ctx context.Context, program string) (Engine, error) {
	programs := Programs()
	if program != "" {
		programs = []string{program}
	}
	var reasons []string
	for _, one := range programs {
		version, err := output(ctx, one, "version", "--format", map[string]string{Podman: "{{.Client.Version}}", Docker: "{{.Server.Version}}"}[one])
		if ctx.Err() != nil {
			return Engine{}, context.Cause(ctx)
		}
		if err == nil {
			return Engine{one, strings.TrimSpace(version)}, nil
		}
		reasons = append(reasons, err.Error())
	}
	return Engine{}, fmt.Errorf("%w: %s", ErrUnavailable, strings.Join(reasons, "; "))
}

// String returns the program with its version.
func (e Engine) String() string { return e.Program + " " + e.Version }

// ImageID returns the ID of the image with a name: "sha256:" and the digest of the image's
// configuration, which names all its content and is the same on each machine. The error
// wraps ErrNoImage if the engine has none.
func (e Engine) ImageID(ctx context.Context, name string) (string, error) {
	text, err := output(ctx, e.Program, "image", "inspect", "--format", "{{.Id}}", name)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoImage, err)
	}
	id := "sha256:" + strings.TrimPrefix(strings.TrimSpace(text), "sha256:")
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(id) {
		return "", fmt.Errorf("%s says that the ID of image %s is %q", e.Program, name, id)
	}
	return id, nil
}

// Environment returns the variables of this process with which podman and docker find
// their images and their daemon.
func Environment() []string {
	var out []string
	for _, name := range []string{
		"CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT",
		"DOCKER_HOST", "DOCKER_TLS_VERIFY", "HOME", "PATH", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
	} {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// output runs a program and returns what it writes to standard output.
func output(ctx context.Context, program string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	c := exec.CommandContext(limited, program, args...)
	c.Env = Environment()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.WaitDelay = time.Second
	err := c.Run()
	switch {
	case limited.Err() != nil && ctx.Err() == nil:
		return "", fmt.Errorf("%s %s: not done within %s", program, args[0], commandTime)
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("there is no program %s", program)
	case err != nil:
		text := strings.Join(strings.Fields(stderr.String()), " ")
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, text[max(0, len(text)-messageBytes):])
	}
	return stdout.String(), nil
}
