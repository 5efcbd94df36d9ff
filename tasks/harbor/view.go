package harbor

import (
	"context"
	_ "embed" // the script
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// viewScript puts the namespace together and runs a command in it.
//
//go:embed view.sh
var viewScript string

// view returns the words to put before a command so that it sees the workspace: this
// machine, read-only except for the attempt's own directories, with the workspace's
// directories over it. The tests are visible only to the command that runs them.
func (w *Workspace) view(tests bool) []string {
	home := w.place.Home
	words := []string{"unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", viewScript, "view", filepath.Join(home, viewName), home, w.layout.directory}
	for _, one := range w.covers() {
		words = append(words, w.inside(one), one)
	}
	words = append(words, filepath.Join(home, logsName), "/logs")
	if tests {
		words = append(words, filepath.Join(home, "harbor", testsName), "/tests")
	}
	words = append(words, "--")
	for _, name := range []string{testsName, "solution"} {
		if isDirectory(w.task.part(name)) {
			words = append(words, w.task.part(name))
		}
	}
	return append(words, "--")
}

// covers returns the directories of the workspace that are mounted over this machine's:
// the working directory, if it exists on this machine, and otherwise directories at the
// root that don't exist here.
func (w *Workspace) covers() []string {
	var out []string
	seen := map[string]bool{}
	for _, to := range append([]string{w.layout.directory}, w.layout.destinations()...) {
		if !within(to, w.layout.directory) || !isDirectory(w.layout.directory) {
			to = "/" + strings.SplitN(strings.TrimPrefix(to, "/"), "/", 2)[0]
		} else {
			to = w.layout.directory
		}
		if !seen[to] {
			seen[to] = true
			out = append(out, to)
		}
	}
	return out
}

// checkNamespaces returns an error if this user can't make mount namespaces on this
// machine.
func checkNamespaces(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "--mount", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: it needs Linux, util-linux's unshare and user namespaces that this user may make, or else tasks.harbor.container: %w: %s", ErrMachine, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// copyAll copies a file or a directory, with its links and modes.
func copyAll(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := copyAll(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return os.Chmod(to, info.Mode().Perm()|0o700)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a directory nor a link", from)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm()|0o600)
}
