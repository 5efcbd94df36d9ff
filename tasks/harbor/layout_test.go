package harbor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/harbor"
)

// write writes the files of a task, of which a value that begins with "-> " is a link.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, link := strings.CutPrefix(text, "-> "); link {
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// task makes a task with these files in place of, or beside, the usual ones.
func task(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "task")
	all := map[string]string{
		"task.toml":              "version = \"1.0\"\n",
		"instruction.md":         "Do it.\n",
		"environment/Dockerfile": "FROM debian\nWORKDIR /fg-app\nCOPY . .\n",
		"tests/test.sh":          "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
	}
	for name, text := range files {
		all[name] = text
	}
	write(t, folder, all)
	return folder
}

// opened opens the workspace of a task without a container.
func opened(t *testing.T, folder string) (w *harbor.Workspace, root string) {
	t.Helper()
	list, err := harbor.List(folder, harbor.Options{})
	require.NoError(t, err)
	home := filepath.Join(t.TempDir(), "home")
	w, err = harbor.Open(t.Context(), list[0], harbor.Place{Home: home})
	if err != nil {
		require.ErrorIs(t, err, harbor.ErrMachine)
		t.Skipf("no mount namespaces here: %v", err)
	}
	return w, filepath.Join(home, "harbor", "root")
}

// The values are those that docker's build gives, except that this machine's search path
// follows one of the Dockerfile.
func TestADockerfileIsReadAsDockerReadsIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		`ENV A="x y" B='z "q"' C=a\ b D="say \"hi\""`: {"A": "x y", "B": `z "q"`, "C": "a b", "D": `say "hi"`},
		`ENV A='$5' B="\$5" C=\$5 D="a\b"`:            {"A": "$5", "B": "$5", "C": "$5", "D": `a\b`},
		`ENV A=${X:-d} B=${X-e} C=${X:+f} D=${A}`:     {"A": "d", "B": "e", "C": "", "D": ""},
		"ENV X=1\nENV A=${X:-d} B=${X:+f} C=$X$X":     {"X": "1", "A": "1", "B": "f", "C": "11"},
		"ENV abc=hello\nENV abc=bye def=$abc":         {"abc": "bye", "def": "hello"},
		"ENV A one  two \"three\"":                    {"A": `one  two three`},
		"ENV A=${X:-${Y:-z}}":                         {"A": "z"},
		"ENV A=1 \\\n  # a comment\n\n  B=2":          {"A": "1", "B": "2"},
		"ARG V=7\nENV A=$V":                           {"A": "7", "V": "-"},
		"ARG V=7\nARG V\nENV A=$V":                    {"A": ""},
		"ENV V=1\nARG V=7\nENV A=$V":                  {"A": "1"},
		`ENV PATH="/fg-app/bin:$PATH"`:                {"PATH": "/fg-app/bin:" + os.Getenv("PATH")},
		`ENV PATH=/fg-app/bin`:                        {"PATH": "/fg-app/bin:" + os.Getenv("PATH")},
		"env a=1\nWorkDir /fg-app":                    {"a": "1"},
	} {
		w, _ := opened(t, task(t, map[string]string{"environment/Dockerfile": "FROM debian\nWORKDIR /fg-app\n" + text + "\n"}))
		got, err := w.Environment()
		require.NoError(t, err, text)
		for name, value := range want {
			one, ok := got[name]
			if value == "-" {
				require.False(t, ok, "%s: an ARG is no variable of the image", text)
				continue
			}
			require.Equal(t, value, one, "%s: %s", text, name)
		}
	}
	w, _ := opened(t, task(t, map[string]string{"environment/Dockerfile": "# escape=`\nARG V=9\nFROM debian\nARG V\nWORKDIR /fg-app/`\n$V\n"}))
	require.Equal(t, "/fg-app/9", w.Directory())
}

func TestFilesAreCopiedToWhereDockerCopiesThem(t *testing.T) {
	t.Parallel()
	given := map[string]string{"environment/notes.txt": "n", "environment/data/a.csv": "a", "environment/data/b.csv": "b", "environment/my file": "m"}
	for text, want := range map[string][]string{
		"WORKDIR /fg-app\nCOPY notes.txt /fg-app":               {"/fg-app/notes.txt"},
		"WORKDIR /fg-app\nADD notes.txt /fg-app/":               {"/fg-app/notes.txt"},
		"WORKDIR /fg-app\nCOPY notes.txt sub":                   {"/fg-app/sub"},
		"WORKDIR /fg-app\nRUN mkdir -p sub\nCOPY notes.txt sub": {"/fg-app/sub/notes.txt"},
		"WORKDIR /fg-app\nCOPY data sub":                        {"/fg-app/sub/a.csv", "/fg-app/sub/b.csv"},
		"WORKDIR /fg-app\nCOPY data sub\nCOPY notes.txt sub":    {"/fg-app/sub/notes.txt"},
		"WORKDIR /fg-app\nCOPY data/*.csv notes.txt ./":         {"/fg-app/a.csv", "/fg-app/b.csv", "/fg-app/notes.txt"},
		"WORKDIR /fg-app\nCOPY notes.txt none* ./":              {"/fg-app/notes.txt"},
		"WORKDIR /fg-app\nCOPY [\"my file\", \"to here\"]":      {"/fg-app/to here"},
		"WORKDIR /fg-app\nCOPY /notes.txt ../fg-app/x":          {"/fg-app/x"},
		"WORKDIR /fg-app\nCOPY notes.txt /fg-file":              {"/fg-file"},
	} {
		all := map[string]string{"environment/Dockerfile": "FROM debian\n" + text + "\n"}
		for name, content := range given {
			all[name] = content
		}
		_, root := opened(t, task(t, all))
		for _, name := range want {
			require.FileExists(t, filepath.Join(root, name), text)
		}
	}
}

func TestIgnoredFilesStayOutside(t *testing.T) {
	t.Parallel()
	_, root := opened(t, task(t, map[string]string{
		"environment/.dockerignore":  "# what agents must not see\nanswers.txt\n**/*.key\nprivate\n!private/open.txt\n",
		"environment/answers.txt":    "42",
		"environment/a/b/c.key":      "k",
		"environment/a/b/c.txt":      "c",
		"environment/private/no.txt": "n", "environment/private/open.txt": "o",
	}))
	require.NoFileExists(t, filepath.Join(root, "fg-app", "answers.txt"))
	require.NoFileExists(t, filepath.Join(root, "fg-app", "a", "b", "c.key"))
	require.NoFileExists(t, filepath.Join(root, "fg-app", "private", "no.txt"))
	require.FileExists(t, filepath.Join(root, "fg-app", "private", "open.txt"))
	require.FileExists(t, filepath.Join(root, "fg-app", "a", "b", "c.txt"))
	_, err := harbor.List(task(t, map[string]string{
		"environment/Dockerfile": "FROM debian\nWORKDIR /fg-app\nCOPY answers.txt .\n", "environment/answers.txt": "42", "environment/.dockerignore": "answers.txt",
	}), harbor.Options{})
	require.ErrorContains(t, err, "environment/Dockerfile:3: COPY: answers.txt is not in environment, or .dockerignore leaves it out")
}

func TestWhatOnlyAContainerHasIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"RUN pip install x":                   "environment/Dockerfile:3 RUN needs a container",
		"RUN <<EOF\npip install x\nEOF\nFROM": "environment/Dockerfile:6 FROM needs a container",
		"COPY <<EOF /fg-app/x\nhi\nEOF":       "environment/Dockerfile:3 COPY needs a container",
		"COPY --chmod=755 n.txt .":            "environment/Dockerfile:3 COPY needs a container: --chmod=755",
		"ADD https://x.org/y /fg-app/":        "environment/Dockerfile:3 ADD needs a container",
		"ADD packed.tgz /fg-app/":             "environment/Dockerfile:3 ADD needs a container: it unpacks packed.tgz",
		"COPY none.txt .":                     "environment/Dockerfile:3: COPY: none.txt is not in environment",
		"COPY n.txt packed.tgz to":            "with several sources the destination to has to end with /",
		"ENV A=${B#x}":                        "environment/Dockerfile:3: ENV: ${B#…}: of the modifiers of a variable only -, + and ? are supported",
		"ENV A=${B:?needed}":                  "the variable B is not set: needed",
		`ENV A="x`:                            `no closing "`,
		"ENV A=1 B":                           "B is not NAME=VALUE",
		"COPPY a b":                           "environment/Dockerfile:3: COPPY: docker has no such instruction",
		"USER toor":                           "environment/Dockerfile:3 USER needs a container",
		"SHELL [\"/bin/bash\"]":               "environment/Dockerfile:3 SHELL needs a container",
	} {
		_, err := harbor.List(task(t, map[string]string{
			"environment/Dockerfile": "FROM debian\nWORKDIR /fg-app\n" + text + "\n", "environment/n.txt": "n", "environment/packed.tgz": "\x1f\x8b\x08",
		}), harbor.Options{})
		require.ErrorContains(t, err, want, text)
	}
	_, err := harbor.List(task(t, map[string]string{"environment/Dockerfile": "WORKDIR /fg-app\n"}), harbor.Options{})
	require.ErrorContains(t, err, "it comes before FROM")
}

func TestLinksInATaskAreFollowed(t *testing.T) {
	t.Parallel()
	folder := task(t, map[string]string{
		"shared/data.txt": "data", "shared/test.sh": "#!/bin/sh\ntrue\n",
		"environment/data.txt": "-> ../shared/data.txt", "environment/all": "-> ../shared", "environment/near.txt": "-> data.txt",
		"tests/other.sh": "-> ../shared/test.sh",
	})
	w, root := opened(t, folder)
	for _, name := range []string{"data.txt", "near.txt", "all/data.txt"} {
		info, err := os.Lstat(filepath.Join(root, "fg-app", name))
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular(), name)
	}
	_, _, _, err := w.Tests(t.Context())
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(filepath.Dir(root), "tests", "other.sh"))
	before, err := harbor.Task{Directory: folder}.Digest()
	require.NoError(t, err)
	write(t, folder, map[string]string{"shared/data.txt": "else"})
	after, err := harbor.Task{Directory: folder}.Digest()
	require.NoError(t, err)
	require.NotEqual(t, before, after, "what a link leads to belongs to the task")
	_, err = harbor.List(folder, harbor.Options{Container: "docker"})
	require.ErrorContains(t, err, "environment/all is a link that leads out of environment/, which docker does not follow")
}

func TestOtherLinksAreRefusedByName(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "data.txt")
	require.NoError(t, os.WriteFile(outside, []byte("x"), 0o600))
	for name, want := range map[string]string{
		"environment/data.txt": "-> " + outside,
		"tests/data.txt":       "-> " + outside,
		"environment/gone.txt": "-> nowhere",
		"environment/loop":     "-> .",
		"environment/answers":  "-> ../tests",
	} {
		_, err := harbor.List(task(t, map[string]string{name: want}), harbor.Options{})
		require.ErrorContains(t, err, name+" is a link", want)
	}
}

func TestLinkedTasksAreListed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.Symlink(task(t, nil), filepath.Join(folder, "linked")))
	require.NoError(t, os.Rename(task(t, nil), filepath.Join(folder, "own")))
	list, err := harbor.List(folder, harbor.Options{})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "linked", list[0].Name)
	require.NoError(t, os.Symlink("nowhere", filepath.Join(folder, "gone")))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "old"), 0o755))
	write(t, folder, map[string]string{"old/task.yaml": "instruction: x\n", "old/run-tests.sh": "true\n"})
	require.NoError(t, os.Symlink("..", filepath.Join(folder, "old", "up")))
	_, err = harbor.List(folder, harbor.Options{})
	require.ErrorContains(t, err, "gone is a link to nowhere, which leads to nothing here")
	require.ErrorContains(t, err, "old has a task.yaml and no task.toml: it is in the format of Terminal-Bench 1")
}

func TestTestsAreRunByTheProgramOfTheirFirstLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"#!/bin/sh -e\n":                  {"/bin/sh", "-e", "/tests/test.sh"},
		"#! /usr/bin/env python3\n":       {"/usr/bin/env", "python3", "/tests/test.sh"},
		"#!/usr/bin/env python3\r\n1\r\n": {"/usr/bin/env", "python3", "/tests/test.sh"},
		"echo 1\n":                        {"bash", "/tests/test.sh"},
	} {
		w, _ := opened(t, task(t, map[string]string{"tests/test.sh": text}))
		command, _, _, err := w.Tests(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, command[len(command)-len(want):])
	}
	_, err := harbor.List(task(t, map[string]string{"tests/test.sh": "#!/usr/bin/no-such-shell\n"}), harbor.Options{})
	require.ErrorContains(t, err, "tests/test.sh is run by /usr/bin/no-such-shell, which this machine lacks")
}

func TestTextsOfATaskAreReadAsOtherTextsAre(t *testing.T) {
	t.Parallel()
	list, err := harbor.List(task(t, map[string]string{
		"task.toml": "\ufeffversion = \"1.0\"\r\n", "instruction.md": "\ufeffOne.\r\nTwo.\r\n", "environment/Dockerfile": "\ufeffFROM debian\r\nWORKDIR /fg-app\r\nCOPY . .\r\n",
	}), harbor.Options{})
	require.NoError(t, err)
	require.Equal(t, "One.\nTwo.", list[0].Instruction)
	const wide = "\xff\xfeF\x00R\x00"
	for name, want := range map[string]string{
		"task.toml": "task.toml: it is in UTF-16: save it in UTF-8", "instruction.md": "instruction.md: it is in UTF-16",
		"environment/Dockerfile": "environment/Dockerfile: it is in UTF-16", "tests/test.sh": "tests/test.sh is in UTF-16: save it in UTF-8",
	} {
		_, err := harbor.List(task(t, map[string]string{name: wide}), harbor.Options{})
		require.ErrorContains(t, err, want)
	}
	_, err = harbor.List(task(t, map[string]string{"task.toml": "# one\n# caf\xe9\n"}), harbor.Options{})
	require.ErrorContains(t, err, "task.toml: line 2 is not UTF-8: save the file in UTF-8 (it may be in Latin-1)")
	for _, first := range []string{"#!/bin/bash\r\n", "#!/usr/bin/env sh\r\n", "#!/bin/sh -e\r\n", "echo\r\n"} {
		_, err := harbor.List(task(t, map[string]string{"tests/test.sh": first + "echo 1 > /logs/verifier/reward.txt\r\n"}), harbor.Options{})
		require.ErrorContains(t, err, "tests/test.sh has lines that end with CR LF", first)
	}
}

func TestTheRewardThatCountsIsNamed(t *testing.T) {
	t.Parallel()
	folder := task(t, map[string]string{"tests/test.sh": `echo '{"speed": 0.5, "right": 1}' > /logs/verifier/reward.json` + "\n"})
	_, err := harbor.List(folder, harbor.Options{})
	require.ErrorContains(t, err, `its tests write the rewards speed, right, and none is named "reward": give the one that counts in tasks.harbor.reward`)
	_, err = harbor.List(folder, harbor.Options{Reward: "wrong"})
	require.ErrorContains(t, err, `tasks.harbor.reward: its tests write the rewards speed, right and never name "wrong"`)
	list, err := harbor.List(folder, harbor.Options{Reward: "speed"})
	require.NoError(t, err)
	home := filepath.Join(t.TempDir(), "home")
	w, err := harbor.Open(t.Context(), list[0], harbor.Place{Home: home, Options: harbor.Options{Reward: "speed"}})
	if err != nil {
		require.ErrorIs(t, err, harbor.ErrMachine)
		t.Skipf("no mount namespaces here: %v", err)
	}
	write(t, filepath.Join(home, "harbor", "logs"), map[string]string{"verifier/reward.json": `{"speed": 0.5, "right": 1}`})
	reward, err := w.Reward(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 0.5, reward, 0)
}
