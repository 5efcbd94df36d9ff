// Package calculator is an agent as one would write it for any
// OpenAI-compatible model: it sends the question, runs the calculator whenever
// the model asks for it, and returns the model's last text.
//
// It is an example, and it knows nothing of training: there is no import, hook
// or callback of ours in it. The person who runs it decides what is trained, by the
// base URL of its client.
//
// Its requests are a function of the question and of the model's replies alone, so a
// repeated attempt asks the same things in the same order.
package calculator
