// Package containertest makes images for tests of agents in containers. An image has one
// program and nothing else, so no registry is needed. Tests are skipped where neither podman
// nor docker works, unless FULGURITE_PODMAN=1 says that one of them has to.
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

	"github.com/fulgurite/fulgurite/agent/container"
)

// Required is the variable that makes it an error if neither podman nor docker works.
const Required = "FULGURITE_PODMAN"

// Program is the path of the program in an image, which is found by its name.
const Program = "/usr/bin/agent"

// Writable is a directory of an image that each user may write, if the image can be written.
const Writable = "/srv"

// Each runs a test with each program for containers that works on this machine, as a
// subtest, with an image whose program is this binary. It skips t if there is none, and in
// short mode.
func Each(t *testing.T, test func(t *testing.T, image Image)) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts containers")
	}
	var reasons []string
	found := false
	self, err := os.Executable()
	if err == nil && isDynamic(self) {
		err = fmt.Errorf("%s needs libraries that an image does not have: build tests with CGO_ENABLED=0", path.Base(self))
	}
	if err != nil {
		skip(t, err.Error())
	}
	for _, program := range container.Programs() {
		engine, err := container.Find(t.Context(), program)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		found = true
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			test(t, build(t, engine, self))
		})
	}
	if !found {
		skip(t, strings.Join(reasons, "; "))
	}
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv(Required) == "1" {
		t.Fatalf("%s=1: %s", Required, why)
	}
	t.Skip(why)
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

// Image is an image with one program.
type Image struct {
	Engine   container.Engine
	Name, ID string
}

// build makes an image that is removed after the test.
func build(t *testing.T, engine container.Engine, program string) Image {
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
			err = files.Close()
		}
		_ = writing.CloseWithError(err)
	}()
	// The variable is one of the image's own, as images of interpreters have them.
	run(t, reading, engine.Program, "import", "--change", "ENV IMAGE_SAYS=hello", "-", name)
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), engine.Program, "rmi", "--force", name).Run() //nolint:gosec // podman or docker
	})
	id, err := engine.ImageID(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return Image{Engine: engine, Name: name, ID: id}
}

// Run runs podman or docker and returns what it prints.
func (i Image) Run(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, nil, i.Engine.Program, args...)
}

// Containers returns the number of the image's containers, running or not.
func (i Image) Containers(t *testing.T) int {
	t.Helper()
	return len(strings.Fields(i.Run(t, "ps", "--all", "--quiet", "--filter", "ancestor="+i.ID)))
}

// Labelled returns the number of containers with a label, running or not.
func (i Image) Labelled(t *testing.T, label string) int {
	t.Helper()
	return len(strings.Fields(i.Run(t, "ps", "--all", "--quiet", "--filter", "label="+label)))
}

func run(t *testing.T, stdin io.Reader, program string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // podman or docker
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = stdin, &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", program, strconv.Quote(strings.Join(args, " ")), err, stderr.String())
	}
	return string(out)
}
