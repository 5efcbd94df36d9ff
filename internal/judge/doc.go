// Package judge asks a language model what each call of an attempt was worth.
//
// The model stands behind an API as OpenAI's. It is told of one attempt in one
// request: the task, each call with what it was newly asked and what it answered,
// the result and the reward; and it answers with a score from 0 to 10 for each call.
// What such a score does to training is package credit's business.
//
// A judge does not say the same twice, and training has to end in the same bits
// however often it is interrupted. So a judgment is made once: it is kept under a
// digest of all that the judge was told ([Judgments]), and whoever comes after, in
// this run or in another, gets what stands there. Nothing of what the judge is told
// depends on when, where or under which name a run goes on: no address, id, clock
// or span is in it.
//
// One may rely on this: there are scores for every call of every attempt, or an
// error. No score is made up, and a step never makes more requests than it may.
// Errors that wrap [ErrNonsense], [ErrRequests] or [ErrRefused] are final; with any
// other, ask again, and what was judged by then is not asked again.
package judge
