package wire_test

import (
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// A request of any API becomes one neutral form, and a reply goes back in the form
// of the request's API.
func ExampleDecode() {
	request, err := wire.Decode(wire.Chat, []byte(`{"model":"demo","max_tokens":8,"messages":[{"role":"user","content":"2+3"}]}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(request.Dialog[0].Role, request.Dialog[0].Content, request.MaxTokens)

	body, err := request.Encode(wire.Reply{
		ID: "1", Created: time.Unix(1, 0), Model: request.Model, PromptTokens: 4,
		Choices: []wire.Choice{{Message: dialog.Message{Role: dialog.Assistant, Content: "5"}, Finish: wire.Stop, Tokens: 2}},
	})
	fmt.Println(string(body), err)
	// Output:
	// user 2+3 8
	// {"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"demo","choices":[{"index":0,"message":{"role":"assistant","content":"5","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}} <nil>
}

// A fault of the request names the parameter.
func ExampleFailure() {
	_, err := wire.Decode(wire.Chat, []byte(`{"model":"demo","messages":[{"role":"judge","content":"5"}]}`))
	fmt.Println(err)
	// Output:
	// role "judge" is not supported
}
