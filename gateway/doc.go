// Package gateway is the door through which agents reach the policy that is
// being trained: an http.Handler that speaks OpenAI's chat completions, completions
// and responses, and Anthropic's messages, streamed or whole.
//
// An attempt has its own base URL, /r/{address}/v1, and its own key. Whatever
// model name and sampling settings an agent asks for, the attempt's
// [trace.Terms] decide which version answers and at which temperature; a request
// may only ask for fewer tokens. Each reply is sampled, recorded in the
// [Journal], and then answered. Outside attempts, /v1 serves versions by name
// ("demo@promoted", "demo@12") under the client's own settings, and records
// nothing.
//
// By whichever API a request comes, package wire makes one request of it, and one
// path answers it. Several choices are several calls. Stop texts, JSON schemas and
// tool choices that ask for a call become a [model.Form], to which the sampler is
// held; one that the codec can't keep is refused by name, as is input other than
// text. Fields that no reply can depend on here are accepted and have no effect.
//
// It is not a proxy for other models, but for embeddings, which it passes on to a
// server that is configured and does not record.
//
// What one may rely on:
//
//   - Recorded before answered. If a call can't be recorded, its reply is never
//     sent. A stream tells text as it is sampled, as far as nothing that comes after
//     can take it back; its end, with tool calls, finish and usage, comes after the
//     commit.
//   - Streams repeat themselves. But for keepalives, the bytes of a stream are a
//     function of the request and of the call that answers it, whether this is
//     sampled meanwhile, joined later, sampled once more after a gateway died, or on
//     record. One that can't be completed tells so in its API's words and is broken
//     off, so that whoever resumes it can skip what was told.
//   - Exact tokens. A request that continues a recorded call is sampled from that
//     call's own token ids; nothing that was sampled is encoded again. Assistant
//     turns are recognized by the ids of their tool calls, else by their text, and
//     stand as they were recorded even if a client reformatted their arguments or left
//     their thoughts out. Thoughts that are there have to be the recorded ones. Under
//     [trace.HistoryTemplate] the whole dialog is rendered anew, and continues a
//     recorded call only where that call's tokens come out of it. Either way
//     [trace.Call.Drift] says where the two differ.
//   - A reply can be named. A request of Responses that names a recorded reply of its
//     attempt continues its dialog, also after a gateway was replaced.
//   - Seeds without a clock. A call's seed, its id and the ids of its tool calls
//     are functions of the run's seed, the rollout, the request and how often the
//     attempt made it before. A reply says that it was created when its attempt began.
//   - A recorded call is never sampled again. What an earlier attempt at the
//     rollout recorded answers the same request of a later one: same id, same
//     tokens, same bytes, on record as a call of the later attempt and counted
//     against its limits. Two requests are the same if policy, version,
//     temperature, API, form and longest reply are, and all that an agent says but
//     for names of models and people, settings that the terms override, how many
//     choices are wanted and whether they are streamed, fields that are not known,
//     ids that were issued, and what the terms' ignored patterns match. The
//     patterns decide on that alone: the policy reads the text as it is, or, where
//     a call is replayed, as it was.
//   - An attempt whose requests leave the record goes on with fresh samples, and
//     the first such call says how its request differs ([trace.Divergence]).
//   - A retry is not a sample. An exchange, which is how the forwarder in a worker
//     names one request of an agent, has one reply, in flight or on record,
//     whichever gateway is asked. A client that says it asks again means its last
//     request; one that does not means the call whose reply was not written whole,
//     if there is one, else another sample.
//   - Faults of ours are 503 with the header X-Fulgurite-Fault; no request can
//     cause one by its content.
//
// All state is rebuilt from the journal, so a gateway may be killed and replaced
// at any time; what is in memory is bounded. Whether a reply was delivered is not
// in the journal, which is written before: after a gateway died, a request without
// a known exchange or a retry header is another sample. One gateway at a time
// should own an attempt. Where two meet, the journal decides: the later one reads
// it again, and answers from it or samples after what stands there. Of an
// attempt's calls in flight together each may use what is left of the token
// budget.
package gateway
