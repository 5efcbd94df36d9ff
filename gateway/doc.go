// Package gateway is the HTTP server through which agents call the policy that is being
// trained. It speaks OpenAI's chat completions, completions and responses, and Anthropic's
// messages, streamed or whole. It records each call, token by token, before it answers.
//
// A gateway needs a [Journal] to record in and a sampler:
//
//	g := gateway.New(gateway.Config{Journal: journal, Sampler: sampler})
//	http.ListenAndServe(address, g)
//
// An agent gets the base URL of its attempt and a key, and needs no other change:
//
//	OPENAI_BASE_URL=http://gateway/r/demo/train-3/17/2/1/v1 OPENAI_API_KEY=… python agent.py
//
// The example shows a call and its record.
//
// # Routes
//
// An attempt has the path /r/RUN/STEP/TASK/SAMPLE/ATTEMPT, and below it its model calls,
// rewards, events and trace exports. /n/AGENT after the attempt names the agent that asks,
// if there are several. The attempt's [record.Terms] decide the version and the sampling
// settings, whatever a request asks for. They may also name prompts ([prompts.Set]), which
// replace parts of what the agent sends before the policy reads it; an agent can ask for
// such a text itself. What is on record, what requests are compared by and what seeds come
// from is what the agent sent.
//
// The path /v1 serves versions by name ("demo@promoted", "demo@12") under the client's
// own settings, and records nothing. The promoted prompts of the version's run replace
// parts of such requests, too, unless the client wants none; see
// [model.Served]. Requests for embeddings are passed on to a server
// that the configuration names. The gateway is no proxy for other models.
//
// # The path of a call
//
//	route.go, access.go          find the attempt and check its key
//	answer.go, request.go        read the body; package wire decodes it
//	conversation.NewRequest      refuses a form that the codec can't hold a reply to
//	conversation: Calls.Admit    finds the recorded or pending call that answers the
//	                             request, or reserves a new one, with its prompt and seed
//	conversation: sample.go      asks the sampler, and commits the call to the journal
//	answer.go, stream.go         write the reply; a stream writes text while it is sampled
//	conversation: Calls.Release  notes whether the reply was delivered
//
// This package is the HTTP side: routes, keys, bodies and failures. Package conversation
// holds the calls of an attempt, recorded and in flight: it decides which call a request
// continues, makes calls, and lets requests wait for them. Package otlp reads traces.
//
// # Guarantees
//
//   - A reply is sent only after its call is on record. The end of a stream, with tool
//     calls, finish reason and usage, comes after the commit, too.
//   - A recorded call is never sampled again. A retry gets the reply that is in flight or
//     on record. A later attempt whose requests are equal gets the same tokens and bytes.
//   - A request that continues a recorded call is sampled from that call's own token ids,
//     which were made with the attempt's prompts.
//   - The bytes of a stream, apart from keepalives, are a function of the request and its
//     call, so any gateway can continue a stream that broke.
//   - A fault of ours is a 503 with the header X-Fulgurite-Fault, and no request can cause
//     one by its content. All other failures have the shape of the client's API and name
//     the field at fault.
//   - All state is rebuilt from the journal: a gateway may be killed and replaced at any
//     time. If two gateways meet in one attempt, the journal decides.
//
// docs/gateway.md says which requests are equal, how retries are recognized, and how
// memory is bounded.
package gateway
