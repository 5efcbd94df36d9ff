package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/spec"
)

// indicators are the characters that can have a special meaning in YAML.
const indicators = `-?:,[]{}#&*!|>'"%@` + "`"

// plainText draws text that YAML 1.2 allows without quotes, by its productions 126 to 131
// (ns-plain): in brackets the characters ,[]{} are excluded, a colon ends a key only
// before a space or the end, and # begins a comment only after a space.
func plainText(t *rapid.T, inBrackets bool) string {
	safe := func(r rune) bool { return r != ' ' && (!inBrackets || !strings.ContainsRune(",[]{}", r)) }
	runes := []rune("abwrite.*()|^$\\/+=<~0_é " + "\U0001F600" + indicators)
	for i, r := range runes { // each twice, so that the text is not mostly letters
		if strings.ContainsRune("?:-#", r) {
			runes = append(runes, runes[i])
		}
	}
	text := []rune(rapid.StringOfN(rapid.SampledFrom(runes), 1, 12, -1).Draw(t, "text"))
	var out []rune
	for i, r := range text {
		next := rune(' ')
		if i+1 < len(text) {
			next = text[i+1]
		}
		var last rune
		if len(out) > 0 {
			last = out[len(out)-1]
		}
		switch {
		case last == 0 && strings.ContainsRune("?:-", r) && !safe(next), // an indicator
			last == 0 && r != '?' && r != ':' && r != '-' && strings.ContainsRune(indicators, r),
			r == ':' && !safe(next), r == '#' && (last == ' ' || last == 0),
			r != ' ' && !safe(r), r == ' ' && (last == ' ' || last == 0):
			continue
		}
		out = append(out, r)
	}
	// A character may have been allowed only because of one that was left out.
	s := strings.TrimRight(string(out), " :")
	for strings.Contains(s, ": ") || strings.Contains(s, " #") {
		s = strings.TrimRight(strings.NewReplacer(": ", "", " #", "").Replace(s), " :")
	}
	s = strings.TrimLeft(s, " ")
	begins := s != "" && !strings.ContainsRune(indicators, rune(s[0])) ||
		len(s) > 1 && strings.ContainsRune("?:-", rune(s[0])) && safe([]rune(s)[1])
	if !begins || strings.TrimLeft(s, "?:-") == "" {
		return "a" + s
	}
	return s
}

func TestPlainTextIsWhatItSaysInEveryPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.SampledFrom([]string{
			"credit:\n  train_agents: X\n", "credit: {train_agents: X}\n", "{credit: {train_agents: X, assignment: uniform}}\n",
			"credit: {train_agents: X\n  }\n", "credit: {assignment: uniform, train_agents:   X   }\n",
		}).Draw(t, "place")
		text := plainText(t, strings.Contains(place, "{"))
		for _, meant := range []string{"null", "~", "true", "false", "<<", "0", "00"} {
			if strings.EqualFold(text, meant) || strings.Trim(text, "0._+-e") == "" {
				t.Skip("a number or a word of its own")
			}
		}
		s, err := spec.Parse([]byte(strings.Replace(place, "X", text, 1)), "a.yaml")
		require.NoError(t, err, "%q in %q", text, place)
		require.Equal(t, text, s.Credit.TrainAgents, place)
	})
}

func TestRegularExpressionsNeedNoQuotes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"(re)?write", "a?b", "?a", "-a", ":a", "a:b", "a ?b", "a ? b", "^(?:x)$", "(a|b)?", "x??", "http://x/y?z=1", `\w+?`} {
		for _, place := range []string{"credit: {train_agents: X}", "credit: {train_agents: X, assignment: uniform}", "credit:\n  train_agents: X"} {
			s, err := spec.Parse([]byte(strings.Replace(place, "X", text, 1)), "a.yaml")
			require.NoError(t, err, "%q in %q", text, place)
			require.Equal(t, text, s.Credit.TrainAgents, place)
		}
	}
	s, err := spec.Parse([]byte("agent: {command: [a?, -b, :c, d:e?]}"), "a.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"a?", "-b", ":c", "d:e?"}, s.Agent.Command)
}
