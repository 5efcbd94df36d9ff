package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

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
