// Package judge asks a language model how much each call of an attempt was worth.
//
// The model has an API like OpenAI's. One request shows it one attempt: the task, each
// call with its new messages and its answer, the result and the reward. The model answers
// with a score from 0 to 10 for each call. Package credit defines the effect of such a
// score on training.
//
// A judge does not give the same answer twice, but training has to end in the same bits
// however often it is interrupted. So each judgment is made only once: it is stored under
// a digest of the whole prompt ([Judgments]), and every later request for it, in this run
// or another, gets the stored one. The prompt contains no address, id, time or span, so
// it does not depend on when, where or under which name a run continues.
//
// Guarantees: there are scores for every call of every attempt, or an error. No score is
// made up, and a step never makes more requests than it may. Errors that wrap
// [ErrNonsense], [ErrRequests] or [ErrRefused] are final. After any other error, call
// again: what was judged before is stored.
package judge
