package fleet_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/harbor"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// greeting returns the folder of a task in Harbor's format, of which single files may be
// replaced.
func greeting(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "greeting")
	all := map[string]string{
		"task.toml":                "version = \"1.0\"\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n",
		"instruction.md":           "<!-- harbor-canary GUID 1 -->\nWrite hello into /fulgurite-app/hello.txt.\n",
		"environment/Dockerfile":   "FROM debian\nWORKDIR /fulgurite-app\nENV GREETING=hello\nCOPY given.txt ./\n",
		"environment/given.txt":    "given\n",
		"environment/unlisted.txt": "stays outside\n",
		"tests/test.sh":            "#!/bin/bash\nif cmp -s /fulgurite-app/hello.txt /tests/expected.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		"tests/expected.txt":       "hello\n",
		"solution/solve.sh":        "echo hello > hello.txt\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return folder
}

// attempt runs a shell script as the agent of the task in a directory.
func attempt(t *testing.T, folder, container, script string) (agent.Result, error) {
	t.Helper()
	return attemptIn(t, t.TempDir(), folder, container, script)
}

func attemptIn(t *testing.T, scratch, folder, container, script string) (agent.Result, error) {
	t.Helper()
	s := spec.Spec{
		Agent:  spec.Agent{Command: []string{"sh", "-c", script}},
		Tasks:  spec.Tasks{Train: "harbor:" + folder},
		Grader: spec.Grader{Type: spec.GraderHarbor},
	}
	if container != "" {
		s.Tasks.Harbor = &spec.Harbored{Container: container}
	}
	list, err := tasks.OpenSplit(t.Context(), s.Tasks, s.Tasks.Train)
	require.NoError(t, err)
	require.Len(t, list, 1)
	launcher, err := fleet.Launchers{Scratch: scratch}.Launcher(s)
	require.NoError(t, err)
	return launcher.Launch(t.Context(), agent.Job{
		Address:   record.Address{RolloutID: record.RolloutID{Run: "r", Kind: record.Train, Step: 1}, Attempt: 1},
		Execution: "e", Task: agent.Task{ID: list[0].ID, Input: list[0].Input, Metadata: list[0].Metadata},
		BaseURL: "http://127.0.0.1:1/r/x/v1", Key: "k",
	})
}

// namespaces skips a test where this user may make no mount namespaces.
func namespaces(t *testing.T) {
	t.Helper()
	if err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "true").Run(); err != nil {
		t.Skipf("no mount namespaces here: %v", err)
	}
}

func TestAWorkspaceIsTestedAfterItsAgent(t *testing.T) {
	t.Parallel()
	namespaces(t)
	folder := greeting(t, nil)
	result, err := attempt(t, folder, "", `cat given.txt /fulgurite-app/given.txt && [ ! -e unlisted.txt ] && echo "$GREETING" > hello.txt && pwd`)
	require.NoError(t, err)
	require.Empty(t, result.Message, result.Stderr)
	require.Equal(t, "/fulgurite-app", result.Text)
	require.InDelta(t, 1, *result.Reward, 0)
	result, err = attempt(t, folder, "", `"$FULGURITE_EXEC" sh -c 'cd "$FULGURITE_WORKDIR" && echo bye > hello.txt'`)
	require.NoError(t, err)
	require.InDelta(t, 0, *result.Reward, 0, "%s", result.Stderr)
	require.NoDirExists(t, "/fulgurite-app")
}

func TestAnAgentSeesNoTestsAndMakesNoReward(t *testing.T) {
	t.Parallel()
	namespaces(t)
	folder := greeting(t, map[string]string{"tests/test.sh": "ls -A /logs/verifier; true\n"})
	result, err := attempt(t, folder, "", `
		[ ! -e /tests ] && [ -z "$(ls '`+folder+`/tests' '`+folder+`/solution' | grep -v :)" ] || exit 3
		touch '`+folder+`/task.toml' /usr/planted 2>/dev/null && exit 4
		echo 1 > /logs/verifier/reward.txt && echo '{"reward": 1}' > "$FULGURITE_HOME/harbor/logs/verifier/reward.json"`)
	require.Empty(t, result.Message, result.Stderr)
	require.ErrorIs(t, err, agent.ErrTests)
	require.ErrorContains(t, err, "they wrote neither /logs/verifier/reward.txt nor reward.json")
}

// The verifier's variables may be secrets, and files that .dockerignore names may be
// answers.
func TestAnAgentSeesNothingOfItsTasksDirectory(t *testing.T) {
	t.Parallel()
	namespaces(t)
	folder := greeting(t, map[string]string{
		"task.toml":                 "[verifier.env]\nJUDGE_KEY = \"secret\"\n",
		"environment/.dockerignore": "answers.txt\n",
		"environment/answers.txt":   "hello\n",
		"environment/Dockerfile":    "FROM debian\nWORKDIR /fulgurite-app\nENV PATH=\"/fulgurite-app/bin:$PATH\"\nCOPY . .\nCOPY given.txt /fulgurite-given\n",
		"environment/bin/greet":     "#!/bin/sh\necho hello\n",
		"tests/test.sh":             "#!/usr/bin/awk -f\nBEGIN { print ENVIRON[\"JUDGE_KEY\"] == \"secret\" ? 1 : 0 > \"/logs/verifier/reward.txt\" }\n",
	})
	require.NoError(t, os.Chmod(filepath.Join(folder, "environment", "bin", "greet"), 0o755))
	result, err := attempt(t, folder, "", `
		grep -rq secret '`+folder+`' && exit 3
		[ -e answers.txt ] && exit 4
		cmp -s /fulgurite-given given.txt || exit 6
		[ -n "$(cat '`+folder+`/environment/answers.txt' 2>/dev/null)" ] && exit 5
		greet`)
	require.NoError(t, err)
	require.Empty(t, result.Message, result.Stderr)
	require.Equal(t, "hello", result.Text, "the Dockerfile's PATH finds the program")
	require.InDelta(t, 1, *result.Reward, 0, "%s", result.Stderr)
}

func TestTestsThatGiveNoRewardAreAFault(t *testing.T) {
	t.Parallel()
	namespaces(t)
	for script, want := range map[string]string{
		"exit 3":                               "neither /logs/verifier/reward.txt nor reward.json; the tests ended with exit code 3",
		"echo one > /logs/verifier/reward.txt": `reward.txt is "one\n", no finite number`,
		"echo NaN > /logs/verifier/reward.txt": "no finite number",
		"echo '{\"a\": 1, \"b\": 0}' > /logs/verifier/$(echo reward).json": `2 rewards and none is named "reward": a, b; tasks.harbor.reward says which one counts`,
		"ln -s /proc/uptime /logs/verifier/reward.txt":                     "not a file of at most",
		"echo '{\"reward\": \"1\"}' > /logs/verifier/reward.json":          "reward is 1, no number",
		"echo 1 > /logs/verifier/reward.txt; exec sleep 1000":              "still running after 1s",
	} {
		folder := greeting(t, map[string]string{"tests/test.sh": script + "\n", "task.toml": "[verifier]\ntimeout_sec = 1\n"})
		if !strings.Contains(script, "sleep") {
			folder = greeting(t, map[string]string{"tests/test.sh": script + "\n"})
		}
		_, err := attempt(t, folder, "", "true")
		require.ErrorIs(t, err, agent.ErrTests, script)
		require.ErrorContains(t, err, want)
	}
	for script, want := range map[string]float64{
		"echo 0.25 > /logs/verifier/reward.txt; exit 1":                                                      0.25,
		"echo 0 > /logs/verifier/reward.txt; echo '{\"reward\": -1, \"b\": 3}' > /logs/verifier/reward.json": -1,
		"echo '{\"passed\": true}' > /logs/verifier/reward.json":                                             1,
	} {
		result, err := attempt(t, greeting(t, map[string]string{"tests/test.sh": script + "\n"}), "", "true")
		require.NoError(t, err)
		require.InDelta(t, want, *result.Reward, 0, script)
	}
}

func TestAnAgentThatFailsIsNotTested(t *testing.T) {
	t.Parallel()
	namespaces(t)
	result, err := attempt(t, greeting(t, map[string]string{"task.toml": "[agent]\ntimeout_sec = 0.2\n"}), "", "exec sleep 1000")
	require.NoError(t, err)
	require.Equal(t, agent.Timeout, result.Failure)
	require.Nil(t, result.Reward)
}

func TestChangedFilesAreTheMachinesFault(t *testing.T) {
	t.Parallel()
	folder := greeting(t, nil)
	list, err := tasks.Open("harbor:" + folder)
	require.NoError(t, err)
	require.Equal(t, "Write hello into /fulgurite-app/hello.txt.", list[0].Input)
	_, err = tasks.HarborTask(list[0].ID, list[0].Metadata)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "tests", "expected.txt"), []byte("x"), 0o600))
	_, err = tasks.HarborTask(list[0].ID, list[0].Metadata)
	require.ErrorIs(t, err, harbor.ErrMachine)
	require.ErrorContains(t, err, "restore them")
}

// containers returns the program for containers that FULGURITE_TEST_CONTAINERS names, and
// the image that the tests start from.
func containers(t *testing.T) (program, image string) {
	t.Helper()
	program, image, ok := strings.Cut(os.Getenv("FULGURITE_TEST_CONTAINERS"), " ")
	if !ok {
		t.Skip(`FULGURITE_TEST_CONTAINERS is not "docker IMAGE" or "podman IMAGE", with an image that has bash`)
	}
	return program, image
}

func TestContainersAreTestedAndRemoved(t *testing.T) {
	program, image := containers(t)
	folder := greeting(t, map[string]string{
		"environment/Dockerfile": "FROM " + image + "\nWORKDIR /fulgurite-app\nENV GREETING=hello\nCOPY given.txt ./\nRUN echo built > built.txt\n",
		"task.toml":              "[environment]\nmemory_mb = 128\ncpus = 0.5\nallow_internet = false\n[environment.env]\nSECRET = \"${FULGURITE_TEST_SECRET:-quiet}\"\n",
	})
	result, err := attempt(t, folder, program, `
		"$FULGURITE_EXEC" sh -c '[ "$PWD" = /fulgurite-app ] && [ "$(cat built.txt)" = built ] && [ ! -e /tests ] && echo $GREETING > hello.txt && echo 1 > /logs/verifier/reward.json && echo $SECRET $(ls /sys/class/net)'`)
	require.NoError(t, err)
	require.Empty(t, result.Message, result.Stderr)
	require.Equal(t, "quiet lo", result.Text)
	require.InDelta(t, 1, *result.Reward, 0)
	require.Empty(t, running(t, program))
	result, err = attempt(t, folder, program, "true")
	require.NoError(t, err)
	require.InDelta(t, 0, *result.Reward, 0)

	_, err = attempt(t, greeting(t, map[string]string{"environment/Dockerfile": "FROM " + image + "\nRUN exit 7\n"}), program, "true")
	require.ErrorIs(t, err, agent.ErrBefore, "an image that can't be built is the task's fault")
	t.Setenv("PATH", t.TempDir())
	_, err = attempt(t, folder, program, "true")
	require.ErrorIs(t, err, harbor.ErrMachine)
	require.NotErrorIs(t, err, agent.ErrBefore)
}

func TestContainersOfDeadWorkersAreRemoved(t *testing.T) {
	program, image := containers(t)
	folder := greeting(t, map[string]string{"environment/Dockerfile": "FROM " + image + "\nWORKDIR /fulgurite-app\n"})
	lost := filepath.Join(t.TempDir(), "lost") // nobody holds its lock
	host, err := os.Hostname()
	require.NoError(t, err)
	start := func(host string) string {
		out, err := exec.Command(program, "run", "--detach", "--rm", "--label", "fulgurite.tasks=harbor", "--label", "fulgurite.host="+host, "--label", "fulgurite.home="+lost,
			"--entrypoint", "sleep", image, "1000").CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	start(host)
	other := start("another-machine")
	t.Cleanup(func() { require.NoError(t, exec.Command(program, "rm", "--force", other).Run()) })
	require.Len(t, running(t, program), 2)
	_, err = attempt(t, folder, program, "true")
	require.NoError(t, err)
	left := running(t, program)
	require.Len(t, left, 1, "that of a machine which shares the daemon")
	require.True(t, strings.HasPrefix(other, left[0]))
}

// running returns the ids of the containers of workspaces.
func running(t *testing.T, program string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "ps", "--all", "--quiet", "--filter", "label=fulgurite.tasks=harbor").CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Fields(string(out))
}
