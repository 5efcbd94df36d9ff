package plan

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
)

// promptsOf describes the prompts of a spec and the rules that name them.
func promptsOf(s spec.Spec) []planLine {
	if p := s.Prompts; p != nil && p.Version != "" {
		return []planLine{{"prompts", fmt.Sprintf("those of version %s; the run reads their texts when it begins", p.Version)}}
	}
	set, err := s.Prompts.Set()
	if err != nil || set.Empty() {
		return nil // a plan has read them already
	}
	var names []string
	for _, name := range set.Prompts().Names() {
		text, _ := set.Prompts().Text(name) // it is there
		names = append(names, fmt.Sprintf("%s (%s)", name, readable.Count(len(text), "byte")))
	}
	out := []planLine{{"prompts", shortened(names, ", ") + "; " + set.Digest()}}
	var rules []string
	for _, r := range set.Rules() {
		rules = append(rules, fmt.Sprintf("%s replaces %s", r.Prompt, r.Match))
	}
	if len(rules) == 0 {
		rules = append(rules, "none: the agent names its prompts, or asks for them")
	}
	return append(out, planLine{"rules", shortened(rules, "; ")})
}

// shortened joins the first of many texts, and says how many more there are.
func shortened(all []string, separator string) string {
	const limit = 6
	if more := len(all) - limit; more > 0 {
		return strings.Join(all[:limit], separator) + fmt.Sprintf("%sand %d more", separator, more)
	}
	return strings.Join(all, separator)
}
