// Package upstream samples at servers of others, by token ids: vLLM and SGLang. A
// prompt goes out as ids and comes back as ids with log-probabilities, so that text is
// never tokenized again on the way.
//
// The answer of a server is checked: it must have the prompt's ids that were sent, one
// finite log-probability for each token of the completion, the end that it claims, and
// the version that was asked for. Anything else is an error, which the gateway reports
// as a fault and does not record.
//
// Replicas share the load by the beginning of the prompt, so that a dialog stays where
// its prefix is cached. One that fails is left alone for a while, and tried again with
// one request. Requests wait while a server loads another version. Servers hold their
// replies to a form by rules of their own, which can't be rebuilt, so tokens that were
// sampled under one are not trained.
//
// A server on the GPU that trains sleeps during updates (Sleep and Wake, which may come from
// other processes than calls do). Calls wait for it, and once it is awake each version is
// checked by its canary again.
package upstream
