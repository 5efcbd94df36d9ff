package dialog_test

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
)

// A codec writes a dialog in tokens, reads the reply that was sampled, and continues the
// dialog from exactly those tokens.
func ExampleCodec() {
	codec := dialog.Compact()
	messages := []dialog.Message{{Role: dialog.User, Content: "2+3"}}
	prompt, err := codec.Prompt(messages, nil)
	if err != nil {
		panic(err)
	}
	completion := append(codec.Encode("5"), codec.Stop()[0]) // as a model would sample it
	reply, _ := codec.Parse(completion, nil, func(int) string { return "" })
	bridge, err := codec.Bridge([]dialog.Message{{Role: dialog.User, Content: "+1"}}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(codec.Text(prompt))
	fmt.Println(reply.Role, reply.Content)
	fmt.Println(codec.Text(slices.Concat(prompt, completion, bridge)))
	// Output:
	// <user>2+3<end><assistant>
	// assistant 5
	// <user>2+3<end><assistant>5<end><user>+1<end><assistant>
}
