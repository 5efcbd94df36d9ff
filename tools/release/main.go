// Command release builds the programs for each system and packs them into archives. In
// the same folder it writes the digests of the archives, and a bill of materials
// (CycloneDX) for each program:
//
//	go run ./tools/release -out dist
//
// Equal commits and versions of Go give equal files: paths are left out, and times are
// those of the commit. The version is the one that Go writes into a binary: the tag of
// the commit or a pseudo-version. Release refuses a working tree that differs from the
// commit.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// targets are the platforms of released binaries; for others, build from source.
const targets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

func main() {
	out := flag.String("out", "dist", "directory of the release, which must not exist or be empty")
	list := flag.String("targets", targets, "systems to build for, GOOS/GOARCH")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	r := release{out: *out, packages: []string{"./cmd/fulgurite", "./cmd/fulgurite-worker"}, extras: []string{"LICENSE", "README.md"}}
	err := r.write(ctx, strings.Split(*list, ","))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one release, made in the root of the repository.
type release struct {
	out      string
	packages []string // one for each program
	extras   []string // files that go into each archive
	sums     []string // lines of SHA256SUMS
}

func (r *release) write(ctx context.Context, targets []string) error {
	if entries, err := os.ReadDir(r.out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it, or choose another with -out", r.out)
	}
	work, err := os.MkdirTemp("", "fulgurite-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	tool := filepath.Join(work, "cyclonedx-gomod")
	if err := command(ctx, nil, "go", "build", "-modfile=tools/sbom/go.mod", "-o", tool, "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod"); err != nil {
		return err
	}
	for _, t := range targets {
		goos, goarch, ok := strings.Cut(t, "/")
		if !ok {
			return fmt.Errorf("target %q: want GOOS/GOARCH", t)
		}
		fmt.Fprintln(os.Stderr, "building for", t)
		if err := r.target(ctx, work, tool, goos, goarch); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(r.sums, "")), 0o644)
}

// target adds one system's archive and bills of materials.
func (r *release) target(ctx context.Context, work, tool, goos, goarch string) error {
	folder := filepath.Join(work, goos+"-"+goarch)
	system := []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"}
	arguments := append([]string{"build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", folder + string(filepath.Separator)}, r.packages...)
	if err := command(ctx, system, "go", arguments...); err != nil {
		return err
	}
	var files []string
	for _, p := range r.packages {
		files = append(files, filepath.Join(folder, filepath.Base(p)))
	}
	origin, err := originOf(files[0])
	if err != nil {
		return err
	}
	name := strings.Join([]string{"fulgurite", origin.version, goos, goarch}, "_")
	for _, file := range files {
		bill := strings.Join([]string{filepath.Base(file), origin.version, goos, goarch}, "_") + ".cdx.json"
		if err := r.bill(ctx, tool, file, bill, origin, system); err != nil {
			return err
		}
	}
	archive, err := archive(name, append(files, r.extras...), origin.time)
	if err != nil {
		return err
	}
	if err := r.add(name+".tar.gz", archive); err != nil {
		return err
	}
	return r.try(ctx, name+".tar.gz", name, origin.version, goos, goarch)
}

// command runs a program with additional environment variables. Its output goes to our
// standard error.
func command(ctx context.Context, environment []string, name string, arguments ...string) error {
	c := exec.CommandContext(ctx, name, arguments...)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), environment...), os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(arguments, " "), err)
	}
	return nil
}

// origin is the source of a binary.
type origin struct {
	version string
	time    time.Time // time of the commit
}

// originOf reads the origin of a binary. It returns an error if the binary can't be built
// again from it.
func originOf(binary string) (origin, error) {
	facts, err := buildinfo.ReadFile(binary)
	if err != nil {
		return origin{}, fmt.Errorf("read build of %s: %w", binary, err)
	}
	o := origin{version: facts.Main.Version}
	for _, s := range facts.Settings {
		switch {
		case s.Key == "vcs.modified" && s.Value == "true":
			return origin{}, fmt.Errorf("version %s: files differ from the commit: commit or remove them (git status)", o.version)
		case s.Key == "vcs.time":
			if o.time, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return origin{}, fmt.Errorf("time of the commit: %w", err)
			}
		}
	}
	if o.time.IsZero() {
		return origin{}, fmt.Errorf("%s tells no commit: build in a clone of the repository, with git", binary)
	}
	return o, nil
}

// archive packs files into a folder called name, in the order given, as a tar that
// depends on nothing but their contents, the name and the time. Files that may be
// executed stay so.
func archive(name string, files []string, changed time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(compressed)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		facts, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if facts.Mode()&0o111 != 0 {
			mode = 0o755
		}
		header := &tar.Header{Name: path.Join(name, filepath.Base(file)), Mode: mode, Size: int64(len(content)), ModTime: changed, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// add writes a file of the release and notes its digest.
func (r *release) add(name string, content []byte) error {
	r.sums = append(r.sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name))
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// bill adds the bill of materials of a binary. The tool writes the time and its own
// digests, which differ from run to run.
func (r *release) bill(ctx context.Context, tool, binary, name string, o origin, system []string) error {
	temporary := binary + ".json"
	defer os.Remove(temporary)
	if err := command(ctx, system, tool, "bin", "-json", "-noserial", "-std", "-version", o.version, "-output", temporary, binary); err != nil {
		return err
	}
	text, err := os.ReadFile(temporary)
	if err != nil {
		return err
	}
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return fmt.Errorf("bill of materials of %s: %w", binary, err)
	}
	metadata, ok := bill["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("bill of materials of %s: no metadata", binary)
	}
	metadata["timestamp"] = o.time.UTC().Format(time.RFC3339)
	delete(metadata, "tools")
	if text, err = json.MarshalIndent(bill, "", "  "); err != nil {
		return err
	}
	return r.add(name, append(text, '\n'))
}

// try does what a user does with a downloaded archive: it checks the digests, unpacks the
// archive and runs its programs in an empty directory, including two steps of the demo.
// For programs of another processor it uses an emulator, if there is one, and only checks
// that they start. Programs of another system can't be run.
func (r *release) try(ctx context.Context, archive, name, version, goos, goarch string) error {
	// Emulators of Linux programs, as Debian's qemu-user-static has them.
	emulators := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
	var through []string
	switch emulator, err := exec.LookPath(emulators[goarch]); {
	case goos != runtime.GOOS || goarch != runtime.GOARCH && (goos != "linux" || errors.Is(err, exec.ErrNotFound)):
		fmt.Fprintf(os.Stderr, "%s: not tried, since its programs don't run here\n", archive)
		return nil
	case goarch != runtime.GOARCH:
		through = []string{emulator}
	}
	folder, err := os.MkdirTemp("", "fulgurite-try-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := r.check(ctx, archive); err != nil {
		return err
	}
	if err := command(ctx, nil, "tar", "-xzf", filepath.Join(r.out, archive), "-C", folder); err != nil {
		return err
	}
	empty := filepath.Join(folder, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		return err
	}
	run := func(program string, arguments ...string) (string, error) {
		words := append(append(through[:len(through):len(through)], filepath.Join(folder, name, program)), arguments...)
		c := exec.CommandContext(ctx, words[0], words[1:]...)
		c.Dir = empty
		text, err := c.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s %s of %s: %w: %s", program, strings.Join(arguments, " "), archive, err, text)
		}
		return string(text), nil
	}
	for _, program := range []string{"fulgurite", "fulgurite-worker"} {
		text, err := run(program, "version")
		if err == nil && !strings.HasPrefix(text, program+" "+version+" ") {
			err = fmt.Errorf("%s version of %s: %q, want %s", program, archive, text, version)
		}
		if err != nil {
			return err
		}
	}
	if through != nil {
		return nil
	}
	text, err := run("fulgurite", "demo", "--steps=2", "--problems=64")
	if err == nil && !strings.Contains(text, "step 2/2") {
		err = fmt.Errorf("fulgurite demo of %s: no second step: %s", archive, text)
	}
	return err
}

// check checks the digests with the command that the README gives.
func (r *release) check(ctx context.Context, archive string) error {
	tool := []string{"sha256sum", "--check", "--quiet"}
	if runtime.GOOS == "darwin" {
		tool = []string{"shasum", "-a", "256", "--check", "--quiet"}
	}
	c := exec.CommandContext(ctx, tool[0], tool[1:]...)
	c.Dir, c.Stdin = r.out, strings.NewReader(strings.Join(r.sums, ""))
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("check the digests of %s: %w: %s", archive, err, text)
	}
	return nil
}
