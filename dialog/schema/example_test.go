package schema_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// A grammar says which bytes may come next, so that a sampler writes only texts that
// satisfy the schema.
func ExampleGrammar_Matcher() {
	g, err := schema.Compile([]byte(`{"enum":["left","right","rest"]}`))
	if err != nil {
		panic(err)
	}
	m := g.Matcher()
	for _, b := range []byte(`"r`) {
		m.Step(b)
	}
	for b := range m.Allowed().All() {
		fmt.Printf("%c ", b)
	}
	fmt.Println(m.Complete())
	// Output:
	// e i false
}
