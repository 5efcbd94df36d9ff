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
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
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
