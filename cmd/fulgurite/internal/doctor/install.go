package doctor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

const (
	// torchSpace is the disk space of torch, its libraries for GPUs and their archives.
	torchSpace = 12 << 30
	// installedLimit is how long a new environment may take to load its libraries: nothing
	// of them is in memory yet.
	installedLimit = 5 * time.Minute
	// installedFile is the name of a file in a complete environment. It holds the
	// requirements.
	installedFile = "installed"
)

// environment is a Python environment to make. dir is a link to the directory that holds
// it, whose name depends on the requirements. The link is moved once everything is
// installed and checked. So no environment is ever incomplete, and processes that use the
// previous one go on. An install that was killed starts again from the beginning; pip's
// own cache keeps the downloads.
type environment struct {
	dir          string
	requirements string // the text of pip's file
	space        int64  // the disk space that must be free, in bytes
	check        func(python string) error
	log          io.Writer // for pip
}

// python returns the path of the interpreter, which exists once the environment is
// installed.
func (e environment) python() string { return filepath.Join(e.dir, "bin", "python") }

// install makes the environment unless it is there.
func (e environment) install(ctx context.Context) error {
	if stat, err := os.Lstat(e.dir); err == nil && stat.Mode()&fs.ModeSymlink == 0 {
		return terminal.Usagef("%s exists, and this command did not make it: name another directory with --torch-dir, or remove it", e.dir)
	}
	if err := os.MkdirAll(filepath.Dir(e.dir), 0o755); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	lock, err := e.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	made := fmt.Sprintf("%s-%.6x", e.dir, sha256.Sum256([]byte(e.requirements)))
	if e.isWhole(made) {
		fmt.Fprintf(e.log, "The packages are in %s already.\n", e.dir)
		return e.link(made)
	}
	if free, err := state.FreeSpace(e.dir); err == nil && free < e.space {
		return terminal.Usagef("%s: %s are free, and the packages and their archives take up to %s: make room, or choose another --torch-dir",
			filepath.Dir(e.dir), bytesText(free), bytesText(e.space))
	}
	if err := e.make(ctx, made, lock); err != nil {
		return err
	}
	return e.link(made)
}

// lock keeps two installs from running at once. The processes of pip inherit the lock, so
// that no other install runs while a pip that outlived this process still works.
func (e environment) lock() (*os.File, error) {
	f, err := os.OpenFile(e.dir+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("another process with --install-torch, or a pip that it started, is installing into %s: wait for its end, or end it", e.dir)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isWhole reports whether an environment was installed to its end.
func (e environment) isWhole(made string) bool {
	text, err := os.ReadFile(filepath.Join(made, installedFile))
	return err == nil && string(text) == e.requirements && isExecutable(filepath.Join(made, "bin", "python"))
}

// make installs all packages into the directory made, which is whole when this returns.
func (e environment) make(ctx context.Context, made string, lock *os.File) error {
	base, err := basePython(ctx)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(made); err != nil {
		return fmt.Errorf("remove what an install left behind: %w", err)
	}
	fmt.Fprintf(e.log, "Installing with %s into %s:\n%s", base, made, e.requirements)
	if err := e.run(ctx, lock, base, "-m", "venv", made); err != nil {
		return fmt.Errorf("make a virtual environment: %w", err)
	}
	python, wanted := filepath.Join(made, "bin", "python"), filepath.Join(made, "requirements.txt")
	if err := os.WriteFile(wanted, []byte(e.requirements), 0o644); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := e.run(ctx, lock, python, "-m", "pip", "install", "--disable-pip-version-check", "--requirement", wanted); err != nil {
		return fmt.Errorf("install packages: %w: see what pip says above, fix that, and run the same command again; what was downloaded is in pip's cache", err)
	}
	if err := e.check(python); err != nil {
		return fmt.Errorf("check what was installed: %w", err)
	}
	return state.ReplaceFile(filepath.Join(made, installedFile), []byte(e.requirements))
}

// run runs a program to its end, with what it writes going to the log. It is killed with
// all that it started when ctx ends.
func (e environment) run(ctx context.Context, lock *os.File, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdout, command.Stderr = e.log, e.log
	command.ExtraFiles = []*os.File{lock}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

// link makes dir a link to the directory made, and logs that.
func (e environment) link(made string) error {
	before, _ := os.Readlink(e.dir) // there may be none
	if before == filepath.Base(made) {
		return nil
	}
	next := e.dir + ".link"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("install: %w", err)
	}
	if err := os.Symlink(filepath.Base(made), next); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := os.Rename(next, e.dir); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	fmt.Fprintf(e.log, "Installed: %s.\n", e.python())
	if before != "" {
		fmt.Fprintf(e.log, "The environment before this one is %s: remove it once nothing trains with it.\n", filepath.Join(filepath.Dir(e.dir), before))
	}
	return nil
}

// basePython returns the first interpreter that can make the environment.
func basePython(ctx context.Context) (string, error) {
	var seen []string
	for _, name := range []string{"python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		p := askPython(ctx, path)
		switch {
		case p.newEnough() && p.Environments:
			return path, nil
		case p.Error != "":
			seen = append(seen, p.text())
		case p.newEnough():
			seen = append(seen, path+" "+p.Version+" has no venv and ensurepip")
		default:
			seen = append(seen, path+" is "+p.Version)
		}
	}
	if len(seen) == 0 {
		seen = []string{"python3 is not in PATH"}
	}
	return "", fmt.Errorf("no Python 3.10 or later that makes virtual environments (%s): %s", seen[0], installProgram("python3", "")[0])
}

func isExecutable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}
