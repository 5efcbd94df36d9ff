package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/spec"
)

// minimal is the smallest complete spec.
const minimal = `
agent: {func: calculator}
tasks: {train: "arithmetic:train"}
grader: {type: exact}
training: {steps: 3}
`

func parse(t *testing.T, text string) spec.Spec {
	t.Helper()
	s, err := spec.Parse([]byte(text), "spec.yaml")
	require.NoError(t, err)
	return s
}

// faults returns the faults that Parse finds in text.
func faults(t *testing.T, text, name string) *spec.Faults {
	t.Helper()
	_, err := spec.Parse([]byte(text), name)
	var found *spec.Faults
	require.ErrorAs(t, err, &found)
	return found
}

func TestUnknownKeyIsReportedWithPathLineAndSuggestion(t *testing.T) {
	t.Parallel()
	text := "agent: {func: f}\ntasks: {train: t.jsonl}\ngrader: {type: exact}\ntraining:\n  stepz: 3\n"
	_, err := spec.Parse([]byte(text), "spec.yaml")
	require.EqualError(t, err, "spec.yaml: training.stepz (line 5): unknown key; did you mean steps?")
	inJSON := "{\"agent\": {\"func\": \"f\"}, \"tasks\": {\"train\": \"t\"},\n\"grader\": {\"type\": \"exact\"},\n\"training\": {\n\"stepz\": 3}}"
	_, err = spec.Parse([]byte(inJSON), "spec.json")
	require.EqualError(t, err, "spec.json: training.stepz (line 4): unknown key; did you mean steps?")
	f := faults(t, minimal+"blergh: 1\n", "spec.yaml")
	require.Contains(t, f.List[0].Remedy, "known here: name, seed, model, agent")
}

func TestAllFaultsOfAFileComeAtOnce(t *testing.T) {
	t.Parallel()
	f := faults(t, `
agnet: {func: f}
agent: {func: 12}
grader: {type: numerc}
training: {steps: -1, samples_per_task: 2.5, optimizer: {clip_norm: 0, beta1: 2}}
credit: {leave_one_out: "yes", mean: [group]}
model: tiny
tasks:
  train: {path: a}
`, "spec.yaml")
	var got []string
	for _, fault := range f.List {
		got = append(got, fault.Key)
	}
	require.ElementsMatch(t, []string{
		"agnet", "agent.func", "grader.type", "training.steps", "training.samples_per_task", "training.optimizer.clip_norm",
		"training.optimizer.beta1", "credit.leave_one_out", "credit.mean", "model", "tasks.train",
	}, got)
}

func TestZeroIsNeverSilentlyTheDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"seed: 0", "sampling: {max_tokens: 0}", "loss: {clip_low: 0}", "training: {steps: 1, tasks_per_step: 0}",
		`model: {engine: ""}`, "training: {optimizer: {final_fraction: 0.0}}", "evaluation: {every: 0}",
	} {
		f := faults(t, text, "spec.yaml")
		require.Contains(t, f.List[0].Remedy, "leave the key out for its default", text)
		require.Equal(t, 1, f.List[0].Line, text)
	}
	s := parse(t, minimal+"sampling: {temperature: 0}\n") // the field is a pointer, so Parse keeps the 0 and Validate refuses it
	require.ErrorContains(t, s.Validate(), "sampling.temperature")
	parse(t, minimal+"promotion: {margin: 0}\n")
}

func TestNumbersReadTheSameInYAMLAndJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"5e-4": 5e-4, "1E-3": 1e-3, "0.5": 0.5, "1": 1, "1e0": 1, "2.5e-1": 0.25} {
		s := parse(t, minimal+"loss: {clip_low: "+text+"}\n")
		require.InDelta(t, want, s.Loss.ClipLow, 0, text)
		s, err := spec.Parse([]byte(`{"loss":{"clip_low":`+text+`}}`), "spec.json")
		require.NoError(t, err)
		require.InDelta(t, want, s.Loss.ClipLow, 0, text)
	}
	s := parse(t, minimal+"seed: 18446744073709551615\n")
	require.Equal(t, uint64(18446744073709551615), s.Seed)
	require.Equal(t, "5e-4", parse(t, minimal+`name: "5e-4"`).Name, "quoted text stays text")
	require.Equal(t, "seed", faults(t, minimal+"seed: 1e400", "spec.yaml").List[0].Key)
}

func TestGeneratorsNeedNoQuotes(t *testing.T) {
	t.Parallel()
	s := parse(t, "tasks: {train: arithmetic:train:8, gate: arithmetic:gate}\n")
	require.Equal(t, spec.Tasks{Train: "arithmetic:train:8", Gate: "arithmetic:gate"}, s.Tasks)
	require.Equal(t, "2026-01-02", parse(t, "name: 2026-01-02\n").Name)
}

func TestAliasesCannotExplode(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n" +
		"c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n"
	require.ErrorContains(t, faults(t, bomb, "a.yaml"), "more than 1000 aliases")
	require.ErrorContains(t, faults(t, "name: &a [*a]\n", "a.yaml"), "anchor &a contains itself")
}

func TestYAMLAnchorsAndMergesAreFollowed(t *testing.T) {
	t.Parallel()
	s := parse(t, `
agent: {func: f}
tasks: {train: &t arithmetic:train, gate: arithmetic:gate}
grader: {type: exact}
training:
  optimizer: &o {learning_rate: 1e-3, beta1: 0.8}
  steps: 4
model:
  warm_start: {demonstrations: *t, updates: 1}
`)
	require.Equal(t, "arithmetic:train", s.Model.WarmStart.Demonstrations)
	s = parse(t, "training:\n  steps: 1\n  optimizer:\n    <<: {beta1: 0.7, beta2: 0.9}\n    beta2: 0.99\n")
	require.InDelta(t, 0.7, s.Training.Optimizer.Beta1, 0)
	require.InDelta(t, 0.99, s.Training.Optimizer.Beta2, 0)
}

func TestBrokenFilesNameTheLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		line       int
	}{
		"yaml syntax":     {"a.yaml", "agent:\n  func: [a\n", 2},
		"yaml indent":     {"a.yaml", "agent:\n  func: a\n c: d\n", 3},
		"yaml scanner":    {"a.yaml", "name: a\nseed: \"1\n", 2},
		"yaml tab":        {"a.yaml", "agent:\n\tfunc: a\n", 2},
		"yaml key":        {"a.yaml", "a: b\n- c\n", 2},
		"duplicate key":   {"a.yaml", "name: a\nseed: 2\nname: b\n", 3},
		"two documents":   {"a.yaml", "name: a\n---\nname: b\n", 2},
		"unknown alias":   {"a.yaml", "name: a\nagent: *x\n", 2},
		"json syntax":     {"a.json", "{\"name\":\n\n\"a\",,}", 3},
		"json cut off":    {"a.json", "{\"name\":\n\"a\"", 2},
		"json duplicate":  {"a.json", "{\"name\": \"a\",\n\"name\": \"b\"}", 2},
		"json and more":   {"a.json", "{\"name\": \"a\"}\n{}", 2},
		"list at the top": {"a.yaml", "- name: a\n", 1},
	} {
		f := faults(t, c.text, c.file)
		require.Equal(t, c.line, f.List[0].Line, "%s: %v", name, f)
		require.NotContains(t, f.Error(), "YAML: yaml", name)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		require.ErrorContains(t, faults(t, empty, "a.yaml"), "empty")
	}
	require.ErrorContains(t, faults(t, "", "a.json"), "line 1")
}

func TestEmptyValuesCountAsAbsent(t *testing.T) {
	t.Parallel()
	s := parse(t, minimal+"model:\ncredit: ~\nloss:\n  clip_low:\n")
	require.Equal(t, parse(t, minimal), s)
}

func TestTabsAreFineInJSON(t *testing.T) {
	t.Parallel()
	s, err := spec.Parse([]byte("\ufeff{\r\n\t\"name\":\t\"a\"\r\n}"), "A.JSON")
	require.NoError(t, err)
	require.Equal(t, "a", s.Name)
}

func TestFilesThatAreNoSpecAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"a.json", "\xff\xfe{\x00}\x00", "a.json: it is in UTF-16: save it in UTF-8"},
		{"a.yaml", "n\x00a\x00m\x00e\x00", "a.yaml: it is in UTF-16: save it in UTF-8"},
		{"a.yaml", "\xff\xfe\x00\x00n\x00\x00\x00", "a.yaml: it is in UTF-32"},
		{"a.yaml.gz", "\x1f\x8b\x08\x00", "it is compressed by gzip: unpack it first"},
		{"a.yaml", "name: a\n\ntasks:\n\ttrain: b\n", "line 4: no YAML: the line is indented with a tab, and YAML indents with spaces alone"},
		{"a.yaml", "tasks:\n  train: b\n  \tgate: b\n", "line 3: no YAML: the line is indented with a tab"},
		{"a.yaml", "name: a\n\tseed: 1\n", "line 2: no YAML: the line is indented with a tab"},
		{"a.yaml", "agent:\r\n  command:\r\n\t- a\r\n", "line 3: no YAML: the line is indented with a tab"},
	} {
		_, err := spec.Parse([]byte(c.text), c.name)
		require.ErrorContains(t, err, c.want, "%q", c.text)
	}
	s, err := spec.Parse([]byte("\xff\xfen\x00a\x00m\x00e\x00:\x00 \x00a\x00"), "a.yaml")
	require.NoError(t, err, "YAML may be in UTF-16")
	require.Equal(t, "a", s.Name)
}

func TestSpecSurvivesJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawSpec(t).WithDefaults()
		data, err := json.Marshal(want)
		require.NoError(t, err)
		for _, name := range []string{"a.json", "a.yaml"} { // JSON is also YAML
			got, err := spec.Parse(data, name)
			require.NoError(t, err, "%s: %s", name, data)
			require.Empty(t, cmp.Diff(want, got))
		}
	})
}

func drawSpec(t *rapid.T) spec.Spec {
	text := rapid.StringMatching(`[a-z][a-z 0-9:."'#\\é-]{0,8}[a-z]`)
	number := rapid.Float64Range(1e-9, 1e9)
	s := spec.Spec{
		Name: text.Draw(t, "name"), Seed: rapid.Uint64().Draw(t, "seed"),
		Agent:    spec.Agent{Command: rapid.SliceOfN(text, 1, 3).Draw(t, "command"), FailureReward: -number.Draw(t, "failure")},
		Tasks:    spec.Tasks{Train: text.Draw(t, "train"), Gate: text.Draw(t, "gate")},
		Grader:   spec.Grader{Type: text.Draw(t, "grader"), Tolerance: number.Draw(t, "tolerance")},
		Training: spec.Training{Steps: rapid.IntRange(0, 1<<40).Draw(t, "steps")},
		Credit:   spec.Credit{LeaveOneOut: rapid.Bool().Draw(t, "leave one out")},
	}
	if rapid.Bool().Draw(t, "warm") {
		s.Model.WarmStart = &spec.WarmStart{Demonstrations: text.Draw(t, "demonstrations"), Updates: 1}
	}
	if rapid.Bool().Draw(t, "hot") {
		temperature := rapid.Float64Range(0, 2).Draw(t, "temperature")
		s.Sampling.Temperature = &temperature
	}
	if environment := rapid.MapOfN(text, text, 0, 3).Draw(t, "environment"); len(environment) > 0 {
		s.Agent.Environment = environment
	}
	return s
}

func TestParseNeverPanics(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join("..", "examples", "calc", "spec.yaml"))
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		data := append([]byte(nil), example[:rapid.IntRange(0, len(example)).Draw(t, "length")]...)
		for range rapid.IntRange(0, 8).Draw(t, "edits") {
			at := rapid.IntRange(0, len(data)).Draw(t, "at")
			piece := rapid.SampledFrom([]string{":", "-", "{", "}", "[", "]", "&a ", "*a", "<<: ", "!!str ", "\"", "'", "\n", "  ", "|", ">", "\x00", "é", "0", "~"}).Draw(t, "piece")
			data = append(data[:at:at], append([]byte(piece), data[at:]...)...)
		}
		for _, name := range []string{"a.yaml", "a.json"} {
			if s, err := spec.Parse(data, name); err == nil {
				_ = s.Validate()
			} else {
				var f *spec.Faults
				require.ErrorAs(t, err, &f)
				require.NotEmpty(t, f.List)
			}
		}
	})
}
