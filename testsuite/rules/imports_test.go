package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// within reports whether an import path is one of the given packages or below one of
// them. Packages of this module are named without the module's path.
func within(p string, packages ...string) bool {
	p = strings.TrimPrefix(p, module)
	return slices.ContainsFunc(packages, func(one string) bool {
		return p == one || strings.HasPrefix(p, one+"/")
	})
}

// edges returns the packages that use disks, networks, processes or devices.
func edges() []string {
	return []string{"store", "gateway", "agent", "page", "model/engine/native", "model/engine/gomlx", "model/engine/torch", "model/sampler/remote", "model/sampler/upstream"}
}

func TestImportsFollowTheDesign(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[strings.SplitN(s.folder, "/", 2)[0]] = true
		if s.isTest() {
			continue // tests see everything
		}
		for _, p := range s.imports() {
			if why := forbidden(s.folder, p); why != "" {
				t.Errorf("%s imports %s: %s", s, p, why)
			}
		}
	}
	for _, one := range []string{"spec", "record", "credit", "update", "workflows", "store", "gateway", "agent", "model", "page", "cmd", "internal"} {
		require.True(t, seen[one], "the rules speak of %s, which is not there", one)
	}
}

// forbidden returns the reason why files of a folder must not import p, or "".
func forbidden(folder, p string) string {
	ours := strings.HasPrefix(p, module)
	switch {
	case within(folder, "internal/textfile", "internal/modeldir", "internal/shell") && ours && !within(p, "internal/textfile", "internal/shell"):
		return "leaves read files and import nothing of ours, so that every reader may import them"
	case within(folder, "spec") && ours && !within(p, "spec", "internal/textfile", "internal/modeldir", "internal/shell", "internal/subprocess") && !slices.Contains([]string{"credit", "prompts"}, strings.TrimPrefix(p, module)):
		return "a leaf imports nothing of ours but the readers of files, and what commands must not see; spec shares the names of credit and the checks of prompts"
	case (within(folder, "record") || folder == "prompts") && ours:
		return "a leaf imports nothing of ours"
	case within(folder, "prompts") && !within(folder, "prompts/reflector") && within(p, "database", "log", "math/rand", "net", "os", "sync", "time"):
		return "prompts replace texts, and do no more; only a reflector asks somebody"
	case within(folder, "prompts/reflector") && ours && !within(p, "internal"):
		return "a reflector returns what was replied, and knows neither searches nor stores"
	case within(folder, "wire") && (ours && !within(p, "wire", "dialog") || within(p, "database", "log", "math/rand", "os")):
		return "wire turns bytes into dialogs and back, and does no more"
	case folder == "credit" && ours:
		return "credit is arithmetic and knows nothing of what it is used for"
	case within(folder, "credit") && !within(folder, "credit/judge") && within(p, "database", "log", "math/rand", "net", "os", "syscall"):
		return "assigning credit does no I/O and knows no chance"
	case folder == "credit" && within(p, "bufio", "crypto", "database", "io", "log", "math/rand", "net", "os", "runtime", "syscall", "time"):
		return "credit does no I/O and knows no clock and no chance"
	case within(folder, "prompts/search") && (ours && p != module+"prompts" && !within(p, "tasks/shuffle", "internal/truncate") || within(p, "bufio", "context", "crypto/rand", "database", "go.temporal.io", "io", "log", "math/rand", "net", "os", "sync", "syscall", "time")):
		return "a workflow drives searches: they do no I/O, and know no clock and no chance but their own"
	case within(folder, "run/experiment") && (ours || within(p, "bufio", "context", "crypto/rand", "database", "go.temporal.io", "io", "log", "math/rand", "net", "os", "sync", "syscall")):
		return "the test of an experiment is arithmetic that anybody may repeat"
	case within(folder, "update") && within(p, "go.temporal.io", "store", "database"):
		return "updates need neither Temporal nor a database"
	case within(folder, "page") && within(p, "go.temporal.io", "workflows", "activities", "database"):
		return "the page reads records, and asks Temporal through an interface"
	case within(folder, "gateway/conversation") && (within(p, "net", "os") || p == module+"gateway"):
		return "conversations know no HTTP"
	case within(folder, "workflows") && ours && within(p, edges()...):
		return "workflows tell the story; activities touch the world"
	case within(folder, "workflows") && within(p, "crypto/rand", "database", "io", "log", "math/rand", "net", "os", "sync", "syscall", "github.com/gomlx"):
		return "workflows are deterministic and do no I/O"
	case within(p, "go.temporal.io/server", "github.com/temporalio/ui-server") && !within(folder, "internal/devserver"):
		return "the embedded server is linked through internal/devserver alone"
	case ours && within(p, "internal/devserver") && !within(folder, "cmd/fulgurite", "workers/stack", "internal/devserver"):
		return "only the tool for people brings a server with it"
	case ours && within(p, "workers/stack") && !within(folder, "cmd/fulgurite", "workers/stack", "bench"):
		return "it brings the embedded server with it"
	case folder == "bench/prompts" && p == module+"testsuite/scriptedreflector":
		return "" // it compares searches that all have to meet the same synthetic reflector
	case ours && within(p, "internal/golden", "internal/certtest", "internal/containertest", "internal/ptytest", "internal/pgtest", "testsuite") && !within(folder, "testsuite"):
		return "it is for tests"
	case ours && within(p, "cmd") && !within(folder, "cmd/fulgurite"):
		return "a command is nobody's library"
	}
	from, to := edgeOf(folder), edgeOf(strings.TrimPrefix(p, module))
	if ours && from != "" && to != "" && from != to {
		return "edges know no other edge; commands wire them"
	}
	return ""
}

func TestImportsAgainstTheDesignAreNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"spec", module + "record"},
		{"record", module + "spec"},
		{"spec", module + "credit/assign"},
		{"spec", module + "prompts/rewrite"},
		{"prompts", module + "dialog"},
		{"prompts/rewrite", "net/http"},
		{"wire", module + "record"},
		{"credit", module + "record"},
		{"credit", "time"},
		{"credit/signals", "net/http"},
		{"credit", "math/rand/v2"},
		{"prompts/search", "math/rand/v2"},
		{"prompts/search", module + "prompts/reflector"},
		{"prompts/reflector", module + "prompts/search"},
		{"prompts/reflector", module + "store"},
		{"prompts/search", module + "prompts/rewrite"},
		{"prompts/search", module + "store"},
		{"prompts/search", "go.temporal.io/sdk/workflow"},
		{"run/experiment", module + "record"},
		{"run/experiment", "math/rand/v2"},
		{"update", "go.temporal.io/sdk/activity"},
		{"update", module + "store"},
		{"workflows", module + "store"},
		{"workflows", module + "model/engine/gomlx"},
		{"workflows", "net/http"},
		{"workflows", "github.com/gomlx/gomlx/graph"},
		{"gateway", module + "store/blob"},
		{"gateway/conversation", "net/http"},
		{"gateway/conversation", module + "gateway"},
		{"model/engine/native/kernel", module + "model/engine/gomlx"},
		{"workers", "go.temporal.io/server/temporal"},
		{"cmd/fulgurite-worker", module + "internal/devserver"},
		{"cmd/fulgurite-worker", module + "workers/stack"},
		{"store", module + "internal/pgtest"},
		{"page", module + "internal/golden"},
		{"prompts/reflector", module + "testsuite/scriptedreflector"},
		{"bench/prompts", module + "testsuite/chaos"},
		{"workers/fleet", module + "testsuite/chaos/processes"},
		{"page", module + "store"},
		{"page", module + "workflows"},
		{"page", "go.temporal.io/sdk/client"},
		{"page", module + "cmd/fulgurite"},
	} {
		require.NotEmpty(t, forbidden(c[0], c[1]), "%s imports %s", c[0], c[1])
	}
	for _, c := range [][2]string{
		{"model/engine/native", module + "model/engine/native/kernel"},
		{"spec", module + "credit"},
		{"spec", module + "prompts"},
		{"spec", module + "internal/subprocess"},
		{"prompts/rewrite", module + "dialog"},
		{"credit/signals", module + "wire"},
		{"credit/signals", "time"},
		{"prompts/search", module + "tasks/shuffle"},
		{"prompts/search", module + "prompts"},
		{"prompts/search", "crypto/sha256"},
		{"run/experiment", "crypto/sha256"},
		{"prompts/reflector", "os/exec"},
		{"prompts/reflector", module + "internal/chatclient"},
		{"store", module + "store/blob"},
		{"gateway", module + "model"},
		{"gateway/conversation", module + "model"},
		{"workflows", "time"},
		{"workflows", "go.temporal.io/sdk/log"},
		{"internal/devserver", "go.temporal.io/server/temporal"},
		{"cmd/fulgurite", module + "internal/devserver"},
		{"cmd/fulgurite", module + "cmd/fulgurite/internal/state"},
		{"testsuite/chaos", module + "testsuite/chaos/processes"},
		{"bench/prompts", module + "testsuite/scriptedreflector"},
	} {
		require.Empty(t, forbidden(c[0], c[1]), "%s imports %s", c[0], c[1])
	}
}

// reach lists packages that a package must not import, not even indirectly.
type reach struct {
	from  string
	never []string
	// except are packages whose imports are not followed.
	except []string
}

func reaches() []reach {
	return []reach{
		{from: "cmd/fulgurite-worker", never: []string{"go.temporal.io/server", "github.com/temporalio/ui-server"}},
		// Workflows name the methods of activities, their inputs and results; `make workflowcheck`
		// shows that none of their code runs in a workflow. A spec looks up programs for plan.
		{from: "workflows", never: append(edges(), "database", "net/http", "os/exec", "syscall"), except: []string{"activities", "spec"}},
		{from: "update", never: append(edges(), "go.temporal.io", "database")},
		{from: "credit", never: []string{"io", "net", "os", "time"}},
	}
}

func TestNoPackageReachesWhatItMustNot(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{} // by folder
	for _, s := range sources(t) {
		if !s.isTest() {
			imports[s.folder] = append(imports[s.folder], s.imports()...)
		}
	}
	for _, r := range reaches() {
		require.Contains(t, imports, r.from)
		for p, folder := range r.broken(imports) {
			t.Errorf("%s must not reach %s, which %s imports", r.from, p, folder)
		}
	}
	far := map[string][]string{"a": {"fmt", module + "b"}, "b": {module + "c"}, "c": {"net/http", module + "a"}}
	require.Equal(t, map[string]string{"net/http": "c"}, reach{from: "a", never: []string{"net"}}.broken(far))
	require.Empty(t, reach{from: "a", never: []string{"net"}, except: []string{"c"}}.broken(far))
}

// broken returns the forbidden imports that can be reached, with the folders that have
// them.
func (r reach) broken(imports map[string][]string) map[string]string {
	found := map[string]string{}
	seen := map[string]bool{r.from: true}
	for queue := []string{r.from}; len(queue) > 0; queue = queue[1:] {
		for _, p := range imports[queue[0]] {
			if within(p, r.never...) {
				found[p] = queue[0]
			}
			folder := strings.TrimPrefix(p, module)
			if folder != p && !seen[folder] && !within(folder, r.except...) {
				seen[folder] = true
				queue = append(queue, folder)
			}
		}
	}
	return found
}

// edgeOf returns the edge that a folder belongs to, or "".
func edgeOf(folder string) string {
	for _, one := range edges() {
		if within(folder, one) {
			return one
		}
	}
	return ""
}
