// Package gateway is the HTTP server through which agents reach the policy that is
// being trained. It speaks OpenAI's chat completions, completions and responses, and
// Anthropic's messages, streamed or whole.
//
// A gateway needs a [Journal] to record in and a sampler:
//
//	g := gateway.New(gateway.Config{Journal: journal, Sampler: sampler})
//	http.ListenAndServe(address, g)
//
// An agent is given the base URL of its attempt and a key, and needs no other change:
//
//	OPENAI_BASE_URL=http://gateway/r/demo/train-3/17/2/1/v1 OPENAI_API_KEY=… python agent.py
//
// # Routes
//
// Below /r/RUN/STEP/TASK/SAMPLE/ATTEMPT are the calls of one attempt, its rewards,
// events and trace exports; /n/AGENT after that names the agent of several that asks.
// Whatever model and sampling settings an agent asks for, the attempt's [trace.Terms]
// decide which version answers and at which temperature; a request may only ask for
// fewer tokens. Each reply is sampled, recorded, and then sent.
//
// Below /v1, versions are served by name ("demo@promoted", "demo@12") under the
// client's own settings, and nothing is recorded. Requests for embeddings are passed on
// to a server that is configured, and not recorded either. The gateway is no proxy for
// other models.
//
// Whichever API a request comes by, package wire decodes it into one kind of request.
// Several choices are several calls. Stop texts, JSON schemas and tool choices that
// require a call become a [model.Form], to which the sampler is held; a form that the
// codec can't hold a reply to is refused by name, as is input other than text. Fields
// that no reply can depend on here are accepted and have no effect.
//
// # Packages
//
// This package is the HTTP side: routes, keys, bodies, failures. Package conversation
// knows what was recorded of an attempt and decides what a request continues. Package
// inflight makes calls and lets requests wait for them. A call goes this way:
//
//	ask (answer.go) → wire.Decode → conversation.NewRequest → inflight: Admit
//	  → canonicalize, find, reserve → start → sample → record → complete
//	→ write the reply, or events as tokens come (stream.go) → Release
//
// # Identity of a call
//
// A call's seed, its id and the ids of its tool calls are functions of the run's seed,
// the rollout, the request and how often the attempt made it before. There is no clock
// in them: a reply says that it was created when its attempt began.
//
// Two requests are the same if policy, version, temperature, API, form and longest
// reply are, and all that an agent says but for names of models and people, settings
// that the terms override, how many choices are wanted and whether they are streamed,
// fields that are not known, ids that were issued, and what the terms' ignored patterns
// match. The patterns decide on that alone: the policy reads the text as it is, or,
// where a call is replayed, as it was.
//
// A request that continues a recorded call is sampled from that call's own token ids;
// nothing that was sampled is encoded again. Assistant turns are recognized by the ids
// of their tool calls, else by their text, and stay as they were recorded even if a
// client reformatted their arguments or left their reasoning out. Reasoning that is
// there has to be the recorded one. Under [trace.HistoryTemplate] the whole dialog is
// rendered anew, and continues a recorded call only where that call's tokens come out
// of it. Either way [trace.Call.Drift] says where the two differ. A request of Responses
// that names a recorded reply of its attempt continues its dialog, also after a gateway
// was replaced.
//
// # Retries and replay
//
// A retry is not a sample. An exchange, which is how the forwarder in a worker names
// one request of an agent, has one reply, in flight or on record, whichever gateway is
// asked. A client that says it asks again means its last request; one that does not
// means the call whose reply was not written whole, if there is one, else another
// sample.
//
// A recorded call is never sampled again. What an earlier attempt at the rollout
// recorded answers the same request of a later one: same id, same tokens, same bytes,
// on record as a call of the later attempt and counted against its limits. An attempt
// whose requests differ from those on record goes on with fresh samples, and the first
// such call says how its request differs ([trace.Divergence]).
//
// # Streams
//
// A stream sends text as it is sampled, as far as nothing that comes after can take it
// back, and in writes that are at least 10 ms apart; its end, with tool calls, finish
// and usage, comes after the commit and waits for no interval. But for keepalives, the
// bytes of a stream are a function of the request and of the call that answers it,
// whether this is sampled meanwhile, joined later, sampled once more after a gateway
// died, or on record. A stream that can't be completed says so in its API's
// words and is broken off, so that whoever resumes it can skip what was sent.
//
// # Failures
//
// If a call can't be recorded, its reply is never sent. Faults of ours are 503 with the
// header X-Fulgurite-Fault; no request can cause one by its content. All else is the
// client's, in the shape of its API, and names the field at fault.
//
// All state is rebuilt from the journal, so a gateway may be killed and replaced at any
// time. Whether a reply was delivered is not in the journal, which is written before:
// after a gateway died or dropped the attempt from memory, a request without a known
// exchange or a retry header is another sample. One gateway at a time should own an
// attempt. Where two meet, the journal decides: the later one reads it again, and
// answers from it or samples after what is on record there. Of an attempt's calls in
// flight together each may use what is left of the token budget.
//
// # Memory
//
// Attempts are kept in memory up to a number, a time and a sum of bytes ([Config]). An
// attempt weighs its recorded calls and the earlier ones that it may still replay:
// their replies, and their tokens, which calls that continue each other share, so that
// a dialog weighs what is said in it, however many turns repeat it. Those without a
// request in flight leave, the least recently used first; the next request reads the
// attempt from the journal and gets the same tokens and bytes. Requests in flight, and
// their attempts, are never dropped: they come on top.
package gateway
