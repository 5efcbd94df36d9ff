package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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
// word [secret] in their place. variables are the names of the environment variables of this
// process that have the secrets.
//
// It does not change what the agent says to its model.
func HideSecrets(l Launcher, variables []string) Launcher {
	if len(variables) == 0 {
		return l
	}
	return secretHider{l, variables}
}

// minSecret is the least length of a secret that is hidden. A shorter one is in many texts
// by chance.
const minSecret = 6

// secretHider is the launcher of HideSecrets.
type secretHider struct {
	inner     Launcher
	variables []string
}

// Launch implements Launcher.
func (h secretHider) Launch(ctx context.Context, job Job) (Result, error) {
	hide := h.replacer()
	r, err := h.inner.Launch(ctx, job)
	for _, text := range []*string{&r.Text, &r.RewardError, &r.Message, &r.Stderr, &r.Output.Stdout, &r.Output.Stderr, &r.Note} {
		*text = hide.Replace(*text)
	}
	if err != nil {
		if text := hide.Replace(err.Error()); text != err.Error() {
			err = &hiddenError{text, err}
		}
	}
	return r, err
}

// replacer replaces the secrets, and the words of those that have several, such as "Bearer" and
// a token. Longer ones are replaced first.
func (h secretHider) replacer() *strings.Replacer {
	var secrets []string
	for _, name := range h.variables {
		value := strings.TrimSpace(os.Getenv(name))
		for _, s := range append(strings.Fields(value), value) {
			if len(s) >= minSecret && !strings.EqualFold(s, "Bearer") {
				secrets = append(secrets, s)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, "[secret]")
	}
	return strings.NewReplacer(pairs...)
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
