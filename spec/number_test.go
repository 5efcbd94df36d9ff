package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// The forms of chapter 10.3.2 of YAML 1.2.2, and those of YAML 1.1, which mean nothing there.
func TestNumbersAreThoseOfYAML12(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"010": 10, "0012": 12, "+12": 12, "0o10": 8, "0x1F": 31, "1e3": 1000, "1E+3": 1000, "3.0": 3, "4.": 4, "12000e-3": 12,
		`!!int "7"`: 7, "!!float 7": 7, "!!int 010": 10,
	} {
		s, err := spec.Parse([]byte("training: {steps: "+text+"}"), "a.yaml")
		require.NoError(t, err, text)
		require.Equal(t, want, s.Training.Steps, text)
	}
	for _, text := range []string{"1_000", "0b11", "1__0", "0o8", "-0x1F", "1:30", "yes", "2.5", "1e30", "1e-400", "1e400", "0xFFFFFFFFFFFFFFFFF", ".inf", "3.00000000000000000001"} {
		_, err := spec.Parse([]byte("training: {steps: "+text+"}"), "a.yaml")
		require.ErrorContains(t, err, "training.steps (line 1): ", text)
		require.ErrorContains(t, err, "is not possible; give a whole number", text)
	}
	for text, message := range map[string]string{
		"!!int 0b11": `"0b11" is not !!int`, "!!binary aGk=": "the tag !!binary has no meaning in a spec", "!steps 3": "the tag !steps has no meaning",
	} {
		_, err := spec.Parse([]byte("training: {steps: "+text+"}"), "a.yaml")
		require.ErrorContains(t, err, message, text)
	}
	for text, want := range map[string]float64{".5": 0.5, "1e-3": 0.001, "010.5": 10.5, "+1": 1} {
		s, err := spec.Parse([]byte("sampling: {temperature: "+text+"}"), "a.yaml")
		require.NoError(t, err, text)
		require.InDelta(t, want, *s.Sampling.Temperature, 0, text)
	}
}

// Quotes around a list or a mapping would only make it a text that nobody means.
func TestAListWhereTextIsExpectedIsNotQuoted(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"credit: {train_agents: [writer, editor]}": "credit.train_agents (line 1): a list where text is expected; write one text",
		"agent: {func: [mine]}":                    "agent.func (line 1): a list where text is expected; write one text",
		"agent: {func: {name: mine}}":              "agent.func (line 1): a mapping where text is expected; write one text",
	} {
		_, err := spec.Parse([]byte(text), "a.yaml")
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "quotes")
	}
}

// What is a number in YAML 1.1 alone is text, also where text is wanted.
func TestTextIsThatOfYAML12(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1_000", "0b11", "12:30", "yes", "No", "on", "y", "2026-01-02", "0o9", "1e", "+.5.", "~x", "nULL"} {
		s, err := spec.Parse([]byte("agent: {func: "+text+"}"), "a.yaml")
		require.NoError(t, err, text)
		require.Equal(t, text, s.Agent.Func)
	}
	for _, text := range []string{"010", "1e3", "0x10", ".5", ".nan", "True"} {
		_, err := spec.Parse([]byte("agent: {func: "+text+"}"), "a.yaml")
		require.ErrorContains(t, err, "where text is expected; put quotes around it", text)
		s, err := spec.Parse([]byte(`agent: {func: "`+text+`"}`), "a.yaml")
		require.NoError(t, err, text)
		require.Equal(t, text, s.Agent.Func)
		s, err = spec.Parse([]byte(`agent: {func: !!str `+text+`}`), "a.yaml")
		require.NoError(t, err, text)
		require.Equal(t, text, s.Agent.Func)
	}
}

func TestWholeNumbersOfJSONMayHaveAnExponent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{"1e3": 1000, "3.0": 3, "18446744073709551615": 1<<64 - 1, "9007199254740993.0": 1<<53 + 1} {
		s, err := spec.Parse([]byte(`{"seed": `+text+`}`), "a.json")
		require.NoError(t, err, text)
		require.Equal(t, want, s.Seed, text)
	}
	for _, text := range []string{"18446744073709551616", "1.5", "-1", "1e30"} {
		_, err := spec.Parse([]byte(`{"seed": `+text+`}`), "a.json")
		require.ErrorContains(t, err, "seed (line 1): ", text)
	}
	for _, text := range []string{"1e-400", "-1e400"} {
		_, err := spec.Parse([]byte(`{"sampling": {"temperature": `+text+`}}`), "a.json")
		require.ErrorContains(t, err, "sampling.temperature (line 1): the number "+text+" is out of range")
	}
}
