// Package judge asks a language model what each call of an attempt was worth.
//
// The model has an API like OpenAI's. One request shows it one attempt: the task, each
// call with its new messages and its answer, the result and the reward. It answers
// with a score from 0 to 10 for each call. Package credit says what such a score does
// to training.
//
// A judge does not say the same twice, and training has to end in the same bits
// however often it is interrupted. So a judgment is made once: it is stored under a
// digest of the whole prompt ([Judgments]), and every later request for it, in this
// run or in another, gets the stored one. A prompt does not depend on when, where or
// under which name a run goes on: it has no address, id, clock or span.
//
// Guarantees: there are scores for every call of every attempt, or an error. No score is
// made up, and a step never makes more requests than it may. Errors that wrap
// [ErrNonsense], [ErrRequests] or [ErrRefused] are final; with any other, ask again: what
// was judged by then is stored.
package judge
