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
// directories over it. The parts of the task's directory are hidden. Its tests are visible
// in /tests only to the command that runs them.
func (w *Workspace) view(tests bool) []string {
	home := w.place.Home
	words := []string{w.unshare, "--user", "--map-root-user", "--mount", "/bin/sh", "-c", viewScript, "view", filepath.Join(home, viewName), home, os.Getenv(pathVariable), w.layout.directory}
	for _, one := range w.covers() {
		words = append(words, w.inside(one), one)
	}
	words = append(words, filepath.Join(home, logsName), "/logs")
	if tests {
		words = append(words, filepath.Join(home, "harbor", testsName), "/tests")
	}
	words = append(words, "--")
	for _, name := range []string{configFile, environmentName, testsName, solutionName} {
		// The place of a link is that of its target, in the script's new root, too.
		if path, err := filepath.EvalSymlinks(w.task.part(name)); err == nil {
			words = append(words, path)
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

// findUnshare returns the path of unshare. It is an error if this user can't make mount
// namespaces on this machine.
func findUnshare(ctx context.Context) (string, error) {
	name, err := exec.LookPath("unshare")
	var out []byte
	if err == nil {
		out, err = exec.CommandContext(ctx, name, "--user", "--map-root-user", "--mount", "true").CombinedOutput()
	}
	if err != nil {
		return "", fmt.Errorf("%w: it needs Linux, util-linux's unshare and user namespaces that this user may make, or else tasks.harbor.container: %w: %s", ErrMachine, err, strings.TrimSpace(string(out)))
	}
	return name, nil
}
