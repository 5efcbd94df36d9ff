package rewrite

import (
	"fmt"

	"github.com/fulgurite/fulgurite/prompts"
)

// Counter counts what became of the rules of a set over several requests, such as those of
// an attempt. It is not safe for concurrent use.
type Counter struct {
	rules    []prompts.Rule
	matches  []int
	requests int
	problems map[string]int // by what they say
	order    []string       // of the problems, as they were first seen
}

// NewCounter returns a counter for the results of a set.
func NewCounter(s prompts.Set) *Counter {
	rules := s.Rules()
	return &Counter{rules: rules, matches: make([]int, len(rules)), problems: map[string]int{}}
}

// Add counts the result of one request.
func (c *Counter) Add(r Result) {
	c.requests++
	for _, one := range r.Replacements {
		if one.Rule >= 0 {
			c.matches[one.Rule]++
		}
	}
	for _, p := range r.Problems {
		text := p.Error()
		if c.problems[text] == 0 {
			c.order = append(c.order, text)
		}
		c.problems[text]++
	}
}

// Requests returns how many requests were counted.
func (c *Counter) Requests() int { return c.requests }

// Unmatched describes each rule that replaced nothing in any of the requests.
func (c *Counter) Unmatched() []string {
	var out []string
	for i, n := range c.matches {
		if n == 0 {
			out = append(out, fmt.Sprintf("rule %d (prompt %q) never matched: %s", i, c.rules[i].Prompt, c.rules[i].Match))
		}
	}
	return out
}

// Problems describes each problem once, in the order in which they were first seen.
func (c *Counter) Problems() []string { return append([]string{}, c.order...) }

// Count returns how often a problem, as Problems describes it, was seen.
func (c *Counter) Count(problem string) int { return c.problems[problem] }
