// Package upstream samples at servers that are not Fulgurite's own, vLLM and SGLang, by
// token ids. A prompt is sent as ids, and the reply is ids with log-probabilities, so no
// text is tokenized again on the way.
//
// The reply of a server is checked: it must have the ids of the prompt that was sent, one
// finite log-probability for each token of the completion, the end that it claims, and
// the version that was asked for. Anything else is an error, which the gateway reports as
// a fault and does not record.
//
// Replicas share the load by the first tokens of the prompt, so that all calls of a
// dialog go where its prefix is cached. A replica that fails is not asked for a while,
// and then tried again with one request. Requests wait while a server loads another
// version. Servers hold their replies to a form by their own rules, which can't be
// reproduced, so tokens that were sampled under a form are not trained.
//
// A server on the GPU that trains sleeps during updates (Sleep and Wake, which another
// process than that of the calls may call). Calls wait for it. After it has woken up,
// each version is checked by its canary again.
package upstream
