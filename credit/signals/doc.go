// Package signals finds what each call of an attempt did by itself, beside what the
// attempt came to: which agent made it, what its policy newly saw, whether its tool
// failed, its reply could not be read, it asked again for what it had just asked, it
// recovered from an error, or the agent gave it a reward.
//
// It reads what was recorded, after the fact, and decides nothing: what a signal is
// worth stands in the spec, and package credit makes advantages of it. An agent can
// send what spans and events it likes, so a signal fires at most once a call,
// however often it is told of.
//
// One may rely on this: nothing of what an agent wrote makes it fail, and equal
// records give equal calls. Exporters may send spans after an attempt has ended;
// those that are not on record when credit is assigned are not seen.
package signals
