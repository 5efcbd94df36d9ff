package jinja_test

import (
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

// A chat template of the kind that models are published with, rendered for one question.
func ExampleTemplate_Render() {
	template, err := jinja.Parse(`{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`)
	if err != nil {
		panic(err)
	}
	variables, err := jinja.FromJSON([]byte(`{"messages":[{"role":"user","content":" 2+3 "}],"add_generation_prompt":true}`))
	if err != nil {
		panic(err)
	}
	text, err := template.Render(variables, time.Time{})
	fmt.Println(text, err)
	// Output:
	// <|user|>2+3
	// <|assistant|> <nil>
}

// A construct that the package does not know is an error with its place. The package
// never guesses.
func ExampleParse() {
	_, err := jinja.Parse("{{ messages }}\n{% include 'other' %}")
	fmt.Println(err)
	// Output:
	// chat template, line 2, column 4: not supported: {% include %}
}
