package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

// A file system can have space and yet take no more files.
func TestAStackIsNotStartedWithoutInodes(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "80m,nr_inodes=40")
	var out, complaints bytes.Buffer
	code := run(t.Context(), []string{"dev", "--dir", filepath.Join(disk, "state"), "--port", "0", "--ui-port", "0", "--gateway-port", "0"},
		&terminal.Terminal{Out: &out, Err: &complaints})
	require.Equal(t, exitUsage, code)
	require.Regexp(t, `the file system of .*state has inodes for \d+ more files, although 80 MB are free: remove files, or choose another --dir`, complaints.String())
	require.NoDirExists(t, filepath.Join(disk, "state"))
}

// smallDisk mounts a file system in memory of so many bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := mount(dir, "size="+size); err != nil {
		t.Skipf("a small file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("umount", "--lazy", dir).Run()) })
	return dir
}

func mount(dir, options string) error {
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput()
	if err != nil {
		err = errors.New(strings.TrimSpace(string(out)) + ": " + err.Error())
	}
	return err
}

func TestAStackIsNotStartedWithoutSpace(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "12m")
	var out, complaints bytes.Buffer
	code := run(t.Context(), []string{"dev", "--dir", filepath.Join(disk, "state"), "--port", "0", "--ui-port", "0", "--gateway-port", "0"},
		&terminal.Terminal{Out: &out, Err: &complaints})
	require.Equal(t, exitUsage, code)
	require.Regexp(t, `12 MB are free, and at least 32 are needed; make room, or choose another --dir`, complaints.String())
	require.NoDirExists(t, filepath.Join(disk, "state"))
}

func TestARunWaitsForSpaceAndGoesOn(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "80m")
	tool := func(arguments ...string) *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), toolVariable+"="+strings.Join(arguments, "\n"), "FULGURITE_DIR="+filepath.Join(disk, "state"))
		return c
	}
	dev := tool("dev", "--port", "0", "--ui-port", "0", "--gateway-port", "0")
	complaints, err := dev.StderrPipe()
	require.NoError(t, err)
	out, err := dev.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, dev.Start())
	t.Cleanup(func() {
		_ = dev.Process.Signal(syscall.SIGINT)
		_ = dev.Wait() // interrupted parts may return errors
	})
	awaitText(t, out, "is up.")
	base := filepath.Join(t.TempDir(), "base")
	require.NoError(t, unpack(base))
	spec := filepath.Join(t.TempDir(), "full.yaml")
	require.NoError(t, os.WriteFile(spec, []byte("name: full\nmodel: {base: "+base+"}\nagent: {func: calculator}\n"+
		"tasks: {train: \"arithmetic:train:64\"}\ngrader: {type: exact}\ntraining: {steps: 100000, tasks_per_step: 4, samples_per_task: 2, keep: {last: 2}}\n"), 0o600))
	text, err := tool("train", spec, "--detach").CombinedOutput()
	require.NoError(t, err, string(text))

	fill(t, filepath.Join(disk, "fill"))
	awaitText(t, complaints, "is full: runs wait, and go on when there is space again")
	text, err = tool("status", "full").CombinedOutput()
	require.NoError(t, err, string(text))
	require.Contains(t, string(text), "Run full: running")
	require.Contains(t, string(text), "is full: runs wait")

	require.NoError(t, os.Remove(filepath.Join(disk, "fill")))
	awaitText(t, complaints, "there is space again for ")
	steps := func() string {
		text, err := tool("status", "full", "--json").Output()
		if err != nil {
			return ""
		}
		_, after, _ := strings.Cut(string(text), `"step":`)
		step, _, _ := strings.Cut(after, ",")
		return step
	}
	before := ""
	require.Eventually(t, func() bool { before = steps(); return before != "" }, time.Minute, 200*time.Millisecond)
	require.Eventually(t, func() bool { now := steps(); return now != "" && now != before }, time.Minute, 200*time.Millisecond)
}

// fill writes until nothing more can be written.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
}

// awaitText reads up to the line that has the text.
func awaitText(t *testing.T, from io.Reader, text string) {
	t.Helper()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		require.NoError(t, err, "the process ended before it said %q", text)
	}
}
