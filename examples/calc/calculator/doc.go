// Package calculator is an agent as one would write it for any OpenAI-compatible model:
// it sends the question, runs the calculator whenever the model asks for it, and returns
// the model's last text.
//
// It is an example. It knows nothing of training: it contains no import, hook or callback
// of ours. Whoever runs it decides what is trained, by the base URL of its client.
//
// Its requests depend only on the question and on the model's replies. So a repeated
// attempt makes the same requests in the same order.
package calculator
