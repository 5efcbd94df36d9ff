package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
)

// nobody is a user without privileges: root may read everything.
const nobody = 65534

// playConceal says that it is ready, and ends when its input ends.
func playConceal(conceal bool) {
	if conceal {
		must(agent.Conceal())
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// playPeek prints what it can read of another process of its user.
func playPeek(pid string) {
	for _, name := range []string{"environ", "mem"} {
		_, err := os.Open(filepath.Join("/proc", pid, name))
		if err == nil && name == "environ" {
			_, err = os.ReadFile(filepath.Join("/proc", pid, name))
		}
		fmt.Println(name, err == nil)
	}
	_, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	fmt.Println("fd", err == nil)
}

// unprivileged returns a command that runs this binary in a role, as a user that may not
// trace others.
func unprivileged(role ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Args = append([]string{"agent.test", "play"}, role...)
	c.Dir = "/"
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return c
}

func TestAProcessThatIsConcealedIsReadByNoOtherOfItsUser(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{"concealed": "environ false\nmem false\nfd false\n", "plain": "environ true\n"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := unprivileged(role)
			c.Env = []string{"SECRET=of the worker"}
			in, err := c.StdinPipe()
			require.NoError(t, err)
			out, err := c.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			_, err = bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			got, err := unprivileged("peek", fmt.Sprint(c.Process.Pid)).Output()
			require.NoError(t, err)
			require.Contains(t, string(got), want)
			require.NoError(t, in.Close())
			require.NoError(t, c.Wait())
		})
	}
}

// A worker that is concealed launches its agents like any other, and a later attempt
// takes over the home of an earlier one.
func TestAWorkerThatIsConcealedLaunchesAgents(t *testing.T) {
	t.Parallel()
	c := unprivileged("launch")
	c.Env = []string{"SECRET=of the worker", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	got, err := c.CombinedOutput()
	require.NoError(t, err, string(got))
	require.Equal(t, "worker false\nfirst taken over: true\nsecond: done\n", string(got))
}
