// Package signals finds out, for each call of an attempt and apart from the attempt's
// outcome: which agent made it, which messages were new to its policy, whether its tool
// failed, its reply could not be read, it repeated its last request, it recovered from an
// error, or the agent gave it a reward.
//
// It reads records, after the fact, and decides nothing: the spec gives signals their
// weights, and package credit makes advantages of them. An agent can send any spans and
// events, so a signal fires at most once a call.
//
// Nothing that an agent writes makes it fail, and equal records give equal calls.
// Exporters may send spans after an attempt has ended; only spans that are on record when
// credit is assigned count.
package signals
