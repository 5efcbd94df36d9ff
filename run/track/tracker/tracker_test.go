package tracker_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/track"
	"github.com/fulgurite/fulgurite/run/track/tracker"
)

var begun = time.Unix(1_700_000_000, 0).UTC()

// place is a folder with the data of the test's trackers, and how they are called.
type place struct {
	t       *testing.T
	dir     string
	options tracker.Options
	log     *bytes.Buffer
}

// newPlace makes a folder in which Python has the trackers of testdata. They keep what they
// get where the tests can read it, and the real ones can be tried with bench/trackers.
func newPlace(t *testing.T, name string) place {
	t.Helper()
	p := place{t: t, dir: t.TempDir(), log: &bytes.Buffer{}}
	p.options = tracker.Options{Tracker: name, Project: "my project", Dir: filepath.Join(p.dir, "journals"), Log: p.log}
	p.options.Python = p.python("")
	return p
}

// python makes a program that is Python with the test's trackers and some more variables.
func (p place) python(variables string) string {
	p.t.Helper()
	found, err := exec.LookPath("python3")
	if err != nil {
		p.t.Skip("no python3")
	}
	packages, err := filepath.Abs("testdata/packages")
	require.NoError(p.t, err)
	path := filepath.Join(p.dir, fmt.Sprintf("python-%x", variables))
	text := fmt.Sprintf("#!/bin/sh\nexec env -u TRACKIO_SPACE_ID -u TRACKIO_SERVER_URL -u WANDB_MODE PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%q TRACKIO_DIR=%q WANDB_DIR=%q %s %q \"$@\"\n",
		packages, filepath.Join(p.dir, "trackio"), filepath.Join(p.dir, "wandb"), variables, found)
	// A process that is forked meanwhile would hold the file open for writing, and the file
	// could not be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(p.t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

func demo(name string) record.Run {
	return record.Run{Name: name, Created: begun, Spec: json.RawMessage(`{"training": {"steps": 3}, "agent": {"command": ["agent"], "environment": {"KEY": "secret"}}}`)}
}

func (p place) open() *tracker.Writer {
	p.t.Helper()
	var w *tracker.Writer
	var err error
	// A process that another test forks holds the lock until it executes its program.
	free := func() bool {
		w, err = tracker.Open(p.t.Context(), p.options, demo("demo"))
		return !errors.Is(err, tracker.ErrBusy)
	}
	require.Eventually(p.t, free, 10*time.Second, 10*time.Millisecond)
	require.NoError(p.t, err, p.log)
	return w
}

// entries are all entries of a run.
func entries() []track.Entry {
	out := []track.Entry{
		{Spec: json.RawMessage(`{}`)},
		{Values: []track.Value{{Name: "warm_start/loss", Number: 2}}},
	}
	for step := 1; step <= 3; step++ {
		out = append(out,
			track.Entry{Step: step, Values: []track.Value{{Name: "evaluation/gate/mean", Number: 0.25}}},
			track.Entry{Step: step, Values: []track.Value{{Name: "promoted/version", Number: 1}}, Texts: []track.Text{{Name: "promoted/reason", Text: "better"}}},
			track.Entry{Step: step, Values: []track.Value{{Name: "reward", Number: float64(step) / 3}, {Name: "train/loss", Number: 1e-7}}})
	}
	return out
}

// missing returns the entries that a position lacks, as a reader does.
func missing(has track.Position) (out []track.Entry) {
	var seen track.Position
	for _, e := range entries() {
		before := seen.Clone()
		seen.Add(e.Step, e.Names())
		switch {
		case seen.Spec && !before.Spec && has.Spec,
			seen.Start && !before.Start && has.Start,
			seen.Step > before.Step && has.Step >= seen.Step,
			len(seen.Evaluations) > len(before.Evaluations) && slices.Contains(has.Evaluations, seen.Evaluations[len(before.Evaluations)]),
			seen.Moves["main"] > before.Moves["main"] && has.Moves["main"] >= seen.Moves["main"]:
			continue
		}
		out = append(out, e)
	}
	return out
}

// want are the entries as the tests' trackers have them.
func want() (out []string) {
	for _, e := range entries()[1:] {
		text := fmt.Sprintf("%d", e.Step)
		for _, v := range e.Values {
			text += fmt.Sprintf(" %s=%v", v.Name, v.Number)
		}
		for _, t := range e.Texts {
			text += fmt.Sprintf(" %s=%v", t.Name, t.Text)
		}
		out = append(out, text)
	}
	return out
}

func shown(step int, values map[string]any) string {
	text := fmt.Sprint(step)
	for _, name := range []string{"warm_start/loss", "evaluation/gate/mean", "promoted/version", "reward", "train/loss", "promoted/reason"} {
		if v, ok := values[name]; ok {
			text += fmt.Sprintf(" %s=%v", name, v)
			delete(values, name)
		}
	}
	for name := range values {
		text += " and " + name
	}
	return text
}

// trackio returns what the database of trackio has.
func (p place) trackio() (out []string) {
	p.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(p.dir, "trackio", "my project.db"))
	require.NoError(p.t, err)
	defer db.Close()
	rows, err := db.QueryContext(p.t.Context(), `SELECT step, metrics FROM metrics ORDER BY id`)
	require.NoError(p.t, err)
	defer rows.Close()
	for rows.Next() {
		var step int
		var text string
		values := map[string]any{}
		require.NoError(p.t, rows.Scan(&step, &text))
		require.NoError(p.t, json.Unmarshal([]byte(text), &values))
		out = append(out, shown(step, values))
	}
	require.NoError(p.t, rows.Err())
	return out
}

// wandb returns what wandb has.
func (p place) wandb() (out []string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "wandb", "my project", "demo-1700000000.jsonl"))
	require.NoError(p.t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		values := map[string]any{}
		require.NoError(p.t, json.Unmarshal([]byte(line), &values))
		step := int(values["step"].(float64))
		delete(values, "step")
		delete(values, "_step")
		out = append(out, shown(step, values))
	}
	return out
}

// write writes the first count of the entries that the tracker lacks, one after the other.
func write(t *testing.T, w *tracker.Writer, count int) {
	t.Helper()
	for _, e := range missing(w.Position())[:count] {
		require.NoError(t, w.Write(t.Context(), []track.Entry{e}))
	}
}

func TestTrackioGetsEachEntryOnceHoweverOftenItIsOpened(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Trackio)
	for range entries()[1:] {
		w := p.open()
		write(t, w, 1)
		require.NoError(t, w.Close(), p.log)
	}
	w := p.open()
	require.Empty(t, missing(w.Position()))
	require.NoError(t, w.Write(t.Context(), nil))
	require.NoError(t, w.Close())
	require.Empty(t, cmp.Diff(want(), p.trackio()))
	require.Contains(t, p.log.String(), "* Trackio project initialized: my project", "what a tracker prints is no reply")
}

// The thread that writes does so later; a computer may lose its power before.
func TestWhatIsWrittenToTrackioIsInItsDatabase(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Trackio)
	w := p.open()
	for range 2 {
		has := len(want()) - len(missing(w.Position()))
		require.NoError(t, w.Write(t.Context(), missing(w.Position())[:3]))
		require.Empty(t, cmp.Diff(want()[:has+3], p.trackio()))
	}
	require.NoError(t, w.Close())
}

func TestTrackioIsAskedWhatItHas(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Trackio)
	w := p.open()
	require.NoError(t, w.Write(t.Context(), missing(w.Position())[:5]))
	require.NoError(t, w.Close())
	require.NoError(t, os.RemoveAll(p.options.Dir)) // no journal
	w = p.open()
	write(t, w, len(missing(w.Position())))
	require.NoError(t, w.Close())
	require.Empty(t, cmp.Diff(want(), p.trackio()))
}

func TestTrackioKeepsRunsWithOneNameApart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Trackio)
	w := p.open()
	write(t, w, 1)
	require.NoError(t, w.Close())
	other := demo("demo")
	other.Created = begun.Add(time.Hour)
	_, err := tracker.Open(t.Context(), p.options, other)
	require.ErrorContains(t, err, "project 'my project' of trackio has another run 'demo': choose another project")
}

func TestWandbGetsEachEntryOnceHoweverItIsKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "WANDB_MODE=offline"} {
		p := newPlace(t, tracker.Wandb)
		p.options.Python = p.python(mode)
		for range entries()[1:] {
			w := p.open()
			write(t, w, 1)
			require.NoError(t, w.Close(), p.log)
		}
		w := p.open()
		require.Empty(t, missing(w.Position()))
		require.NoError(t, w.Close())
		require.Empty(t, cmp.Diff(want(), p.wandb()))
	}
}

func TestWandbIsAskedHowMuchItsServerHas(t *testing.T) {
	t.Parallel()
	for limit := range 6 {
		p := newPlace(t, tracker.Wandb)
		p.options.Python = p.python(fmt.Sprintf("TEST_LIMIT=%d", limit)) // dies after so many entries
		w := p.open()
		require.ErrorContains(t, w.Write(t.Context(), missing(w.Position())[:6]), "wandb ended: ")
		require.NoError(t, w.Close())
		p.options.Python = p.python("")
		w = p.open()
		todo := missing(w.Position())
		require.Len(t, todo, len(want())-limit)
		slices.Reverse(todo[6-limit:]) // the first six are numbered, whatever comes now
		slices.Reverse(todo)
		require.NoError(t, w.Write(t.Context(), todo))
		require.NoError(t, w.Close())
		require.Empty(t, cmp.Diff(want(), p.wandb()), "killed after %d entries", limit)
	}
}

func TestAJournalThatDoesNotMatchTheServerIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Wandb)
	w := p.open()
	write(t, w, 3)
	require.NoError(t, w.Close())
	require.NoError(t, os.RemoveAll(p.options.Dir))
	_, err := tracker.Open(t.Context(), p.options, demo("demo"))
	require.ErrorContains(t, err, "wandb has 3 entries of the run, and ")
	require.ErrorContains(t, err, " notes 0: go on in the directory in which it was tracked so far")
}

func TestALineOfTheJournalThatWasCutOffIsNotRead(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Wandb)
	p.options.Python = p.python("WANDB_MODE=offline")
	w := p.open()
	write(t, w, 4)
	require.NoError(t, w.Close())
	path := filepath.Join(p.options.Dir, "wandb", "my%20project", "demo-1700000000.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"entry":{"step":3,"na`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w = p.open()
	write(t, w, len(missing(w.Position())))
	require.NoError(t, w.Close())
	require.Empty(t, cmp.Diff(want(), p.wandb()))

	require.NoError(t, os.WriteFile(path, []byte("no JSON\n"), 0o644))
	_, err = tracker.Open(t.Context(), p.options, demo("demo"))
	require.ErrorContains(t, err, "read journal "+path+": line at byte 0: ")
}

func TestOneProcessLogsARun(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Trackio)
	w := p.open()
	_, err := tracker.Open(t.Context(), p.options, demo("demo"))
	require.ErrorIs(t, err, tracker.ErrBusy)
	require.NoError(t, w.Close())
	require.NoError(t, p.open().Close())
}

func TestTheConfigurationIsTheSpecWithoutSecrets(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Wandb)
	require.NoError(t, p.open().Close())
	text, err := os.ReadFile(filepath.Join(p.dir, "wandb", "my project", "demo-1700000000.config"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	var config struct {
		Training struct{ Steps int }
		Run      string `json:"fulgurite_run"`
	}
	require.NoError(t, json.Unmarshal(text, &config))
	require.Equal(t, 3, config.Training.Steps)
	require.Equal(t, "demo of 2023-11-14T22:13:20Z", config.Run)
}

func TestWhatIsMissingIsSaidWithTheCommandThatInstallsIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Wandb)
	p.options.Python = filepath.Join(p.dir, "none")
	_, err := tracker.Open(t.Context(), p.options, demo("demo"))
	require.EqualError(t, err, "start wandb: "+p.options.Python+" is not there: install Python 3, or name one that has the package wandb")

	bare := p.python("PYTHONPATH=")
	require.NoError(t, os.WriteFile(bare, bytes.Replace(must(os.ReadFile(bare)), []byte(`"$@"`), []byte(`-I "$@"`), 1), 0o755)) // without user's packages
	p.options.Python = bare
	p.options.Tracker = tracker.Trackio
	if exec.CommandContext(t.Context(), bare, "-c", "import trackio").Run() == nil {
		t.Skip("this Python has trackio")
	}
	_, err = tracker.Open(t.Context(), p.options, demo("demo"))
	require.EqualError(t, err, bare+" lacks the package trackio: run `"+bare+" -m pip install trackio`, or name the Python that has it")

	p.options.Tracker, p.options.Python = tracker.Wandb, p.python("")
	_, err = tracker.Open(t.Context(), p.options, demo("refused"))
	require.EqualError(t, err, "wandb: RuntimeError: no API key")
}

func TestTrackersDoNotSeeTheKeysOfTheFleet(t *testing.T) {
	t.Setenv("FULGURITE_FLEET_KEY", "of the fleet")
	t.Setenv("WANDB_API_KEY", "of wandb")
	p := newPlace(t, tracker.Wandb)
	p.options.Python = filepath.Join(p.dir, "fake")
	require.NoError(t, os.WriteFile(p.options.Python, []byte("#!/bin/sh\nenv >\"$0.env\"\nexit 1\n"), 0o700))
	_, err := tracker.Open(t.Context(), p.options, demo("demo"))
	require.Error(t, err)
	seen, err := os.ReadFile(p.options.Python + ".env")
	require.NoError(t, err)
	require.NotContains(t, string(seen), "of the fleet")
	require.Contains(t, string(seen), "WANDB_API_KEY=of wandb")
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// Whoever started the program is killed after it has sent entries, and before it asked to
// commit them.
func TestTheProgramNotesWhatItWasGivenIfItsStarterIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, tracker.Wandb)
	program, err := os.ReadFile("program.py")
	require.NoError(t, err)
	journal, err := os.Create(filepath.Join(p.dir, "journal"))
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), p.python("WANDB_MODE=offline"), "-c", string(program))
	command.ExtraFiles = []*os.File{journal}
	command.Stdin = strings.NewReader(`{"tracker": "wandb", "project": "my project", "name": "demo", "id": "demo-1700000000", "config": {}}
{"log": {"sequence": 4, "step": 1, "values": {"reward": 1}}}
{"log": {"sequence": 5, "step": 2, "values": {"reward": 2}}}
`)
	out, err := command.Output()
	require.NoError(t, err)
	require.Equal(t, `{"ready": {"rows": false, "logged": null}}`+"\n", string(out))
	text, err := os.ReadFile(journal.Name())
	require.NoError(t, err)
	require.Equal(t, `{"committed": 6}`+"\n", string(text))
	require.NoError(t, journal.Close())
	require.Equal(t, []string{"1 reward=1", "2 reward=2"}, p.wandb())
}
