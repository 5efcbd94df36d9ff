// Package calculator is an agent as one would write it for any
// OpenAI-compatible model: it sends the question, runs the calculator whenever
// the model asks for it, and returns the model's last words.
//
// It is an example, and it knows nothing of training: there is no import, hook
// or callback of ours in it. What is learned, and from what, is decided by who
// runs it and where the base URL of its client points.
//
// One may rely on its requests being a function of the question and of the
// model's replies alone, so that a repeated attempt asks the same things in the
// same order.
package calculator
