package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Variables returns the variables of a command: plain ones with their values, and secret ones,
// each given by the name of a variable of this process's environment. An error names the
// variable that is not set.
func Variables(plain, secret map[string]string) (map[string]string, error) {
	if len(secret) == 0 {
		return plain, nil
	}
	all := maps.Clone(plain)
	if all == nil {
		all = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		value := strings.TrimSpace(os.Getenv(secret[name]))
		if value == "" {
			return nil, fmt.Errorf("agent.secret_environment.%s: the environment variable %s is not set for this worker: start it with the value there", name, secret[name])
		}
		all[name] = value
	}
	return all, nil
}

// HideSecrets wraps a launcher of agents that are given secrets. Everything that is kept of
// an attempt's end, such as what a command printed or why a service refused a request, has the
// word [secret] in their place, also if a bound cut the text within one. variables are the
// names of the environment variables of this process that have the secrets.
//
// It does not change what the agent says to its model. In the result, which is graded, it
// replaces whole secrets only, so that an answer with a part of one keeps its reward.
func HideSecrets(l Launcher, variables []string) Launcher {
	if len(variables) == 0 {
		return l
	}
	return secretHider{l, variables}
}

const (
	// minSecret is the least length of a secret, or of a part at a cut, that is hidden. A
	// shorter one is in many texts by chance.
	minSecret = 6
	// minLine is the least length of a line of a longer secret that is hidden. Shorter ones
	// are often words of its format, such as JSON.
	minLine = 16
)

// secretHider is the launcher of HideSecrets.
type secretHider struct {
	inner     Launcher
	variables []string
}

// Launch implements Launcher.
func (h secretHider) Launch(ctx context.Context, job Job) (Result, error) {
	whole, lines := h.secrets()
	parts := slices.Concat(whole, lines)
	r, err := h.inner.Launch(ctx, job)
	r.Text = hide(r.Text, whole)
	for _, text := range []*string{&r.RewardError, &r.Message, &r.Stderr, &r.Output.Stdout, &r.Output.Stderr, &r.Note} {
		*text = hideCut(hide(*text, parts), parts)
	}
	if err != nil {
		if text := hideCut(hide(err.Error(), parts), parts); text != err.Error() {
			err = &hiddenError{text, err}
		}
	}
	return r, err
}

// secrets returns the values of the variables, and the long lines of those with several.
func (h secretHider) secrets() (whole, lines []string) {
	for _, name := range h.variables {
		value := strings.TrimSpace(os.Getenv(name))
		if value = withoutScheme(value); len(value) >= minSecret {
			whole = append(whole, value)
		}
		if !strings.Contains(value, "\n") {
			continue
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= minLine {
				lines = append(lines, line)
			}
		}
	}
	return whole, lines
}

// withoutScheme returns the token of the value of a header Authorization, because servers and
// programs quote it alone. It returns any other value, and one with a short token, unchanged.
func withoutScheme(value string) string {
	words := strings.Fields(value)
	if len(words) != 2 || len(words[1]) < minSecret {
		return value
	}
	switch strings.ToLower(words[0]) {
	case "bearer", "basic", "token", "key", "apikey", "api-key", "bot", "negotiate":
		return words[1]
	}
	return value
}

// hidden stands in place of a secret.
const hidden = "[secret]"

// hide replaces secrets, longer ones first.
func hide(text string, secrets []string) string {
	sorted := slices.SortedFunc(slices.Values(secrets), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range sorted {
		pairs = append(pairs, s, hidden)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// leftOut is the line that stands in place of the middle of a long output.
var leftOut = regexp.MustCompile(`\n\[[0-9]+ bytes left out\]\n`)

// hideCut replaces parts of secrets at the places where a bound may have cut the text: its
// beginning, its end, and both sides of a part that is left out.
func hideCut(text string, secrets []string) string {
	var out strings.Builder
	begin := 0
	for _, gap := range append(leftOut.FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		piece := text[begin:gap[0]]
		if n := longest(secrets, func(s string, n int) bool { return strings.HasPrefix(piece, s[len(s)-n:]) }); n > 0 {
			piece = hidden + piece[n:]
		}
		if n := longest(secrets, func(s string, n int) bool { return strings.HasSuffix(piece, s[:n]) }); n > 0 {
			piece = piece[:len(piece)-n] + hidden
		}
		out.WriteString(piece)
		out.WriteString(text[gap[0]:gap[1]])
		begin = gap[1]
	}
	return out.String()
}

// longest returns the greatest length of a part of a secret, less than the whole, that matches,
// or 0 if none of at least minSecret bytes does.
func longest(secrets []string, matches func(secret string, n int) bool) (length int) {
	for _, s := range secrets {
		for n := len(s) - 1; n >= max(minSecret, length+1); n-- {
			if matches(s, n) {
				length = n
				break
			}
		}
	}
	return length
}

// hiddenError is an error whose text had a secret. It can be compared with the error in its
// place, but does not unwrap to it, because Temporal keeps the texts of all errors in a chain.
type hiddenError struct {
	text  string
	inner error
}

func (e *hiddenError) Error() string        { return e.text }
func (e *hiddenError) Is(target error) bool { return errors.Is(e.inner, target) }
func (e *hiddenError) As(target any) bool   { return errors.As(e.inner, target) }
