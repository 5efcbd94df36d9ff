package search_test

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// A driver serves what a search needs until the search is done. Here the reward is the
// number of dots in the prompt, and the reflector adds one.
func ExampleSearch() {
	s, err := search.NewGEPA(search.Settings{
		Prompts: []search.Prompt{{Name: "writer", Text: "Answer in one word"}},
		Train:   6, Validation: 4,
		Budget: search.Budget{Minibatch: 60, Validation: 40, Reflections: 10},
	}, search.GEPASettings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	step := s.Next()
	for ; step.Done == nil; step = s.Next() {
		for _, r := range step.Requests {
			text, _ := r.Candidate.Text("writer")
			a := search.Answer{Request: r.ID}
			if r.Kind == search.Evaluate {
				reward := float64(strings.Count(text, ".")) / 3
				for _, task := range r.Tasks {
					a.Results = append(a.Results, search.Result{Task: task, Score: &reward})
				}
			} else {
				a.Text, a.Refusal = search.ReadText(search.Reply{Text: "```\n" + text + ".\n```"}, search.Rules{})
			}
			if _, err := s.Answer(a); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	fmt.Println(step.Done.Reason, *step.Done.SeedScore, *step.Done.Score, step.Done.Winner.Prompts[0].Text)
	fmt.Println(s.Account().Spent)
	// Output:
	// solved 0 1 Answer in one word...
	// {18 16 3}
}
