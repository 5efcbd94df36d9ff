package conversation

import (
	"fmt"
	"regexp"
)

// patterns match text that does not distinguish requests, such as the time of day.
type patterns []*regexp.Regexp

// compile reads the patterns of an attempt's terms.
func compile(expressions []string) (patterns, error) {
	var all patterns
	for _, e := range expressions {
		p, err := regexp.Compile(e)
		if err != nil {
			return nil, fmt.Errorf("compile ignored pattern: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// drop returns the turn without the text that the patterns match, in its text and in the
// arguments of its tool calls.
func (p patterns) drop(f turnForm) turnForm {
	f.Text, f.Thoughts = p.without(f.Text), p.without(f.Thoughts)
	calls := f.Calls
	f.Calls = nil
	for _, c := range calls {
		f.Calls = append(f.Calls, callForm{c.Name, p.without(c.Arguments)})
	}
	return f
}

func (p patterns) without(text string) string {
	for _, r := range p {
		text = r.ReplaceAllLiteralString(text, "")
	}
	return text
}
