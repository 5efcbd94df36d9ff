// Package containertest makes images for tests of agents in containers. An image has one
// program and nothing else, so no registry is needed. Tests are skipped where podman can't
// run the containers of agents, unless FULGURITE_PODMAN=1 says that it has to.
package containertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/internal/wait"
)

// Required is the variable that makes it an error if a test can't start containers.
const Required = "FULGURITE_PODMAN"

// Program is the path of the program in an image, which is found by its name.
const Program = "/usr/bin/agent"

// Writable is a directory of an image that each user may write, if the image can be written.
const Writable = "/srv"

// Limit is how long a test waits for what a container must do. Many tests start containers
// at the same time, and on a busy machine each takes several seconds.
const Limit = 3 * time.Minute

// Image is an image with one program.
type Image struct {
	Podman   container.Podman
	Name, ID string
}

// New makes an image whose program is this binary, and removes it after the test. It skips
// t where podman can't run containers and in short mode, unless they are required.
func New(t *testing.T) Image {
	t.Helper()
	required := os.Getenv(Required) == "1"
	skip := func(why string) {
		t.Helper()
		if required {
			t.Fatalf("%s=1: %s", Required, why)
		}
		t.Skip(why)
	}
	if testing.Short() && !required {
		t.Skip("starts containers")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if isDynamic(self) {
		skip(path.Base(self) + " needs libraries that an image does not have: build tests with CGO_ENABLED=0")
	}
	podman, err := container.Find(t.Context())
	if err != nil {
		skip(err.Error())
	}
	return build(t, podman, self)
}

// isDynamic reports whether a program needs libraries.
func isDynamic(program string) bool {
	f, err := elf.Open(program)
	if err != nil {
		return true
	}
	defer f.Close()
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return true
		}
	}
	return false
}

func build(t *testing.T, podman container.Podman, program string) Image {
	t.Helper()
	name := fmt.Sprintf("localhost/fulgurite-test:%d-%x", os.Getpid(), sha256.Sum256([]byte(t.Name())))[:64]
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	reading, writing := io.Pipe()
	go func() {
		files := tar.NewWriter(writing)
		err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(Writable, "/") + "/", Mode: 0o777})
		if err == nil {
			err = files.WriteHeader(&tar.Header{Name: strings.TrimPrefix(Program, "/"), Mode: 0o755, Size: int64(len(text))})
		}
		if err == nil {
			_, err = files.Write(text)
		}
		if err == nil {
			err = files.WriteHeader(&tar.Header{Name: "image", Mode: 0o644, Size: int64(len(name))})
		}
		if err == nil {
			_, err = io.WriteString(files, name) // podman can't look at an image while another one of the same files is made
		}
		if err == nil {
			err = files.Close()
		}
		_ = writing.CloseWithError(err)
	}()
	// The variable is one of the image's own, as images of interpreters have them.
	run(t, reading, "import", "--change", "ENV IMAGE_SAYS=hello", "-", name)
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), container.Program, "rmi", "--force", name).Run() //nolint:gosec // podman
	})
	id, err := podman.ImageID(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return Image{Podman: podman, Name: name, ID: id}
}

// Run runs podman and returns what it prints.
func (i Image) Run(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, nil, args...)
}

// Create makes a container of the image that does not run, as one that was left over, with
// more options. It is removed after the test.
func (i Image) Create(t *testing.T, options ...string) (id string) {
	t.Helper()
	id = strings.TrimSpace(i.Run(t, append(append([]string{"create"}, options...), i.ID, "agent")...))
	t.Cleanup(func() { _ = i.Podman.Remove(context.WithoutCancel(t.Context()), id) })
	return id
}

// Containers returns the number of the image's containers, running or not.
func (i Image) Containers(t *testing.T) int {
	t.Helper()
	return len(strings.Fields(i.Run(t, "ps", "--all", "--quiet", "--filter", "ancestor="+i.ID)))
}

// RequireNone waits until the image has no container, running or not. Podman may go on
// removing a container after its attempt has ended.
func (i Image) RequireNone(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(Limit); i.Containers(t) > 0; {
		if time.Now().After(deadline) || !wait.For(t.Context(), 50*time.Millisecond) {
			t.Fatalf("image %s still has containers after %s", i.Name, Limit)
		}
	}
}

// Labelled returns the number of containers with a label, running or not.
func (i Image) Labelled(t *testing.T, label string) int {
	t.Helper()
	return len(strings.Fields(i.Run(t, "ps", "--all", "--quiet", "--filter", "label="+label)))
}

func run(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), container.Program, args...) //nolint:gosec // podman
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = stdin, &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("podman %s: %v: %s", strconv.Quote(strings.Join(args, " ")), err, stderr.String())
	}
	return string(out)
}
