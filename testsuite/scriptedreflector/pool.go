package scriptedreflector

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Proposal is a text of a prompt whose quality was measured.
type Proposal struct {
	Text string `json:"text"`
	// Quality is how good the text is. The reflector does not look at it: it is for whoever
	// plays the task model.
	Quality float64 `json:"quality"`
}

// Pool is all that the reflector ever proposes.
type Pool struct {
	// Prompts are the proposals by the name of the prompt. The texts that a search starts
	// from have to be among them if there are several prompts, because a question shows
	// the prompt's text and not its name.
	Prompts map[string][]Proposal `json:"prompts,omitempty"`
	// Lines are for a single prompt, in place of Prompts: a proposal is the text that the
	// question shows with one of the lines added at its end, or taken out if the text has
	// it. A line's quality is what adding it to the seed changes.
	Lines []Proposal `json:"lines,omitempty"`
	// Critiques are what it replies to a question for a critique.
	Critiques []string `json:"critiques"`
}

// ReadPool reads and checks a pool in JSON.
func ReadPool(text []byte) (Pool, error) {
	var p Pool
	if err := json.Unmarshal(text, &p); err != nil {
		return Pool{}, fmt.Errorf("read pool: %w", err)
	}
	return p, p.check()
}

func (p Pool) check() error {
	switch {
	case len(p.Prompts) > 0 && len(p.Lines) > 0:
		return errors.New("pool: it has prompts and lines; leave out one")
	case len(p.Prompts) == 0 && len(p.Lines) == 0:
		return errors.New("pool: prompts is empty")
	case len(p.Lines) == 1:
		return errors.New("pool: lines needs at least two, so that there is always one to propose")
	}
	for i, one := range p.Lines {
		if one.Text == "" || one.Text != strings.TrimSpace(one.Text) || strings.ContainsAny(one.Text, "\r\n") {
			return fmt.Errorf("pool: line %d is empty, or has space around it or a line break", i)
		}
		if slices.ContainsFunc(p.Lines[:i], func(before Proposal) bool { return before.Text == one.Text }) {
			return fmt.Errorf("pool: line %d is there twice", i)
		}
	}
	seen := map[string]string{}
	for _, name := range p.names() {
		if len(p.Prompts[name]) < 2 {
			return fmt.Errorf("pool: prompt %s needs at least two texts, so that there is another one to propose", name)
		}
		for i, one := range p.Prompts[name] {
			if one.Text == "" || one.Text != strings.TrimSpace(strings.ReplaceAll(one.Text, "\r\n", "\n")) {
				return fmt.Errorf("pool: text %d of prompt %s is empty, or has space around it or line ends of Windows, which no reply keeps", i, name)
			}
			if before, ok := seen[one.Text]; ok {
				return fmt.Errorf("pool: text %d of prompt %s is also one of %s", i, name, before)
			}
			seen[one.Text] = name
		}
	}
	if len(p.Critiques) == 0 {
		return errors.New("pool: critiques is empty")
	}
	return nil
}

func (p Pool) names() []string { return slices.Sorted(maps.Keys(p.Prompts)) }

// Quality returns the quality of a text, and false if the pool does not have it.
func (p Pool) Quality(text string) (quality float64, ok bool) {
	for _, proposals := range p.Prompts {
		for _, one := range proposals {
			if one.Text == text {
				return one.Quality, true
			}
		}
	}
	return 0, false
}

// others returns the texts that may be proposed in place of the prompt that a question
// shows, and that prompt.
func (p Pool) others(question string) (others []string, current string, err error) {
	const begin, end = "<prompt>\n", "\n</prompt>\n"
	rest, ok := strings.CutPrefix(question, begin)
	if !ok {
		return nil, "", errors.New("the question shows no prompt")
	}
	if len(p.Lines) > 0 {
		current, _, _ = strings.Cut(rest, end)
		return p.changed(current), current, nil
	}
	names := p.names()
	name := ""
	for _, n := range names {
		for _, one := range p.Prompts[n] {
			if strings.HasPrefix(rest, one.Text+end) {
				name, current = n, one.Text
			}
		}
	}
	switch {
	case name != "":
	case len(names) == 1:
		name = names[0]
		current, _, _ = strings.Cut(rest, end)
	default:
		return nil, "", errors.New("the pool does not have the prompt's text, so it is not known which prompt it is")
	}
	for _, one := range p.Prompts[name] {
		if one.Text != current {
			others = append(others, one.Text)
		}
	}
	return others, current, nil
}

// changed returns the text with each of the lines added or taken out.
func (p Pool) changed(text string) []string {
	var out []string
	for _, one := range p.Lines {
		lines := strings.Split(text, "\n")
		kept := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return line == one.Text })
		if len(kept) == len(lines) {
			kept = append(kept, one.Text)
		}
		if len(kept) > 0 {
			out = append(out, strings.Join(kept, "\n"))
		}
	}
	return out
}
