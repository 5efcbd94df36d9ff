package torch_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// interrupted makes an update that sends a signal to a rank of the program in the middle.
func interrupted(t *testing.T, e *torch.Engine, tr model.Trainer, rank int, s syscall.Signal) error {
	t.Helper()
	sent := false
	_, err := tr.Update(t.Context(), rows(), func(row int, logprobs, entropies, gradient, entropyGradient []float32) {
		slopes(row, logprobs, entropies, gradient, entropyGradient)
		if !sent {
			sent = true
			require.NoError(t, syscall.Kill(e.RankPID(rank), s))
			if s == syscall.SIGSTOP {
				e.SetLimit(time.Second) // only now, because a slow machine needs longer for the requests before
			}
		}
	}, adamW())
	return err
}

func TestAKilledProgramIsLostAndItsUpdateIsMadeAnew(t *testing.T) {
	t.Parallel()
	e := engine(t, torch.Options{Tokens: 20})
	c := adapter(start(small()), model.LoRA{Rank: 2, Alpha: 4, Targets: []string{"q_proj"}}, 3)
	whole := trainer(t, e, c)
	_, err := whole.Update(t.Context(), rows(), slopes, adamW())
	require.NoError(t, err)
	want := whole.Checkpoint()

	tr, dir, pid := trainer(t, e, c), e.Dir(), e.PID()
	err = interrupted(t, e, tr, 0, syscall.SIGKILL)
	require.ErrorIs(t, err, model.ErrEngineLost)
	require.ErrorContains(t, err, "signal: killed")
	for range 2 { // it stays lost
		_, _, err = tr.Score(t.Context(), rows())
		require.ErrorIs(t, err, model.ErrEngineLost)
		_, err = tr.(model.Saver).Save(t.Context())
		require.ErrorIs(t, err, model.ErrEngineLost)
	}
	require.NoDirExists(t, dir)

	again := trainer(t, e, c)
	require.NotEqual(t, pid, e.PID())
	_, err = again.Update(t.Context(), rows(), slopes, adamW())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want.Weights, again.Checkpoint().Weights))
}

func TestTheProgramDoesNotSeeTheKeysOfTheFleet(t *testing.T) {
	t.Setenv("FULGURITE_FLEET_KEY", "of the fleet")
	t.Setenv("HF_TOKEN", "of the hub")
	fake := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\nenv >\"$0.env\"\nexit 1\n"), 0o700))
	_, err := torch.New(torch.Options{Python: fake, Device: "cpu"})
	require.Error(t, err)
	seen, err := os.ReadFile(fake + ".env")
	require.NoError(t, err)
	require.NotContains(t, string(seen), "of the fleet")
	require.Contains(t, string(seen), "HF_TOKEN=of the hub")
}

func TestAHangingProgramIsNoticedAndKilled(t *testing.T) {
	t.Parallel()
	e := engine(t, torch.Options{Tokens: 20})
	tr := trainer(t, e, start(small()))
	pid := e.PID()
	err := interrupted(t, e, tr, 0, syscall.SIGSTOP)
	require.ErrorIs(t, err, model.ErrEngineLost)
	require.ErrorContains(t, err, "no sign of life for 1s")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestTheProgramEndsWithItsParent(t *testing.T) {
	t.Parallel()
	python(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), envHold+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var pid int
	var dir string
	_, err = fmt.Sscan(line, &pid, &dir)
	require.NoError(t, err, line)
	require.DirExists(t, dir)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return syscall.Kill(pid, 0) != nil && os.IsNotExist(err)
	}, 5*time.Minute, 20*time.Millisecond, "the program outlives its parent")
}

func TestWhatIsAbsentIsNamedWithWhatToDo(t *testing.T) {
	python := python(t)
	_, err := torch.New(torch.Options{Python: "no-such-python"})
	require.ErrorContains(t, err, "no-such-python")
	require.ErrorContains(t, err, "`fulgurite doctor --install-torch` makes an environment for engine torch of a Python 3.10 or later")

	// A virtual environment without packages.
	bare := filepath.Join(t.TempDir(), "bare")
	require.NoError(t, exec.Command(python, "-m", "venv", "--without-pip", bare).Run())
	_, err = torch.New(torch.Options{Python: filepath.Join(bare, "bin", "python")})
	require.ErrorContains(t, err, "torch is not installed; transformers is not installed")
	require.ErrorContains(t, err, "`fulgurite doctor --install-torch` makes an environment that has all")
	require.ErrorContains(t, err, "-m pip install 'torch>=2.11,<3' 'transformers>=5.17,<6'")

	// The metadata of another version is found first.
	other := t.TempDir()
	info := filepath.Join(other, "transformers-4.1.0.dist-info")
	require.NoError(t, os.Mkdir(info, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: transformers\nVersion: 4.1.0\n"), 0o600))
	t.Setenv("PYTHONPATH", other)
	_, err = torch.New(torch.Options{})
	require.ErrorContains(t, err, "transformers is 4.1.0, want at least 5.17 and below 6")

	_, err = torch.New(torch.Options{Device: "tpu"})
	require.ErrorContains(t, err, `device "tpu": give auto, cpu, cuda or cuda:N`)
}

func TestADeviceThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	e := shared(t)
	require.Contains(t, e.Fingerprint(), " cpu ")
	require.Contains(t, e.Fingerprint(), " float32 ")
	if exec.Command("nvidia-smi").Run() == nil {
		t.Skip("this machine has a GPU")
	}
	_, err := torch.New(torch.Options{Device: "cuda"})
	require.ErrorContains(t, err, "device cuda is asked for, but torch")
}

func TestAProgramDescribesItself(t *testing.T) {
	t.Parallel()
	about, err := torch.Describe(torch.Options{Python: python(t), Device: "cpu", Threads: 1}, 5*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "cpu", about.Device)
	require.Equal(t, "float32", about.DType)
	for line := range strings.Lines(torch.Requirements()) { // make torch has installed them
		name, version, _ := strings.Cut(strings.TrimSpace(line), "==")
		if got, checked := about.Versions[name]; checked {
			require.Equal(t, version, strings.SplitN(got, "+", 2)[0], name)
		}
	}
	require.Len(t, about.Versions, 4)

	// This program keeps its output open and writes nothing.
	silent := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\nsleep 30\n"), 0o700))
	_, err = torch.Describe(torch.Options{Python: silent, Device: "cpu"}, time.Millisecond)
	require.ErrorIs(t, err, model.ErrEngineLost)
	require.ErrorContains(t, err, "no sign of life for 1ms")
}

func TestAClosedEngineSaysSo(t *testing.T) {
	t.Parallel()
	e := engine(t, torch.Options{})
	tr := trainer(t, e, start(small()))
	dir := e.Dir()
	e.Close()
	e.Close()
	_, _, err := tr.Score(t.Context(), rows())
	require.ErrorContains(t, err, "the engine is closed")
	_, err = e.NewTrainer(start(small()))
	require.ErrorContains(t, err, "the engine is closed")
	require.NoDirExists(t, dir)
}
