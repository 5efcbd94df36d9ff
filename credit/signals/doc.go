// Package signals finds what each call of an attempt did by itself, beside what the
// attempt came to: which agent made it, what its policy newly saw, whether its tool
// failed, its reply could not be read, it asked again for what it had just asked, it
// recovered from an error, or the agent gave it a reward.
//
// It reads records, after the fact, and decides nothing: the spec gives signals their
// weights, and package credit makes advantages of them. An agent can send any spans and
// events, so a signal fires at most once a call.
//
// One may rely on this: nothing of what an agent wrote makes it fail, and equal
// records give equal calls. Exporters may send spans after an attempt has ended; only
// spans that are on record when credit is assigned count.
package signals
