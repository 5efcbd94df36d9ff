package doctor_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
)

// wheel writes a package of one module, which pip installs without any index.
func wheel(t *testing.T, dir, version string) string {
	t.Helper()
	path := filepath.Join(dir, "pebble-"+version+"-py3-none-any.whl")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	z := zip.NewWriter(f)
	info := "pebble-" + version + ".dist-info/"
	for _, file := range [][2]string{
		{"pebble.py", "version = '" + version + "'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: pebble\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "pebble.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(file[0])
		require.NoError(t, err)
		_, err = w.Write([]byte(file[1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return path
}

// The test runs the real venv and pip, with a small package in place of torch that
// installs in a second.
func TestAnEnvironmentIsWholeOrNotThere(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds and starts no goroutine")
	}
	if exec.Command("python3", "-c", "import venv, ensurepip, sys; sys.exit(sys.version_info < (3, 10))").Run() != nil {
		t.Skip("no python3 that makes virtual environments")
	}
	t.Parallel()
	dir, log := t.TempDir(), &bytes.Buffer{}
	first, second := wheel(t, dir, "1.0"), wheel(t, dir, "2.0")
	link, checked := filepath.Join(dir, "torch"), 0
	environment := func(requirements string) doctor.Environment {
		return doctor.Environment{Dir: link, Requirements: requirements, Log: log, Check: func(string) error { checked++; return nil }}
	}
	version := func() string {
		out, err := exec.Command(filepath.Join(link, "bin", "python"), "-c", "import pebble; print(pebble.version)").CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}

	// An environment that does not work once it is installed is not linked, so nothing
	// can use it.
	e := environment(first + "\n")
	e.Check = func(string) error { return errors.New("no CUDA") }
	require.ErrorContains(t, e.Install(t.Context()), "check what was installed: no CUDA")
	require.NoFileExists(t, filepath.Join(link, "bin", "python"))

	// The next try starts again in its own directory, and the third try has nothing to
	// do.
	require.NoError(t, environment(first+"\n").Install(t.Context()), log)
	require.Equal(t, "1.0", version())
	require.Equal(t, 1, checked)
	log.Reset()
	require.NoError(t, environment(first+"\n").Install(t.Context()))
	require.Contains(t, log.String(), "already")
	require.Equal(t, 1, checked)

	// While other requirements are being installed, the environment in use stays
	// untouched.
	e = environment(second + "\n")
	e.Check = func(string) error { require.Equal(t, "1.0", version()); return nil }
	require.NoError(t, e.Install(t.Context()), log)
	require.Equal(t, "2.0", version())
	require.Contains(t, log.String(), "The environment before this one is "+link+"-")
}

func TestTwoDoNotInstallAtOnceAndNothingOfOthersIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := doctor.Environment{Dir: filepath.Join(dir, "torch"), Requirements: "torch\n", Log: &bytes.Buffer{}}
	lock, err := e.Lock()
	require.NoError(t, err)
	require.ErrorContains(t, e.Install(t.Context()), "is installing into "+e.Dir+": wait for its end")
	require.NoError(t, lock.Close())

	e.Space = 1 << 60
	require.ErrorContains(t, e.Install(t.Context()), "choose another --torch-dir")

	require.NoError(t, os.Mkdir(e.Dir, 0o700))
	require.ErrorContains(t, e.Install(t.Context()), fmt.Sprintf("%s exists, and this command did not make it", e.Dir))
}
