// Package signals describes each call of an attempt, apart from the attempt's outcome:
// which agent made it, which messages were new to its policy, whether its tool failed,
// its reply could not be read, it repeated its last request, it recovered from an error,
// or the agent gave it a reward.
//
// It reads records after the attempt and decides nothing: the spec gives weights to
// signals, and package credit turns them into advantages. An agent can send any spans and
// events; still, a signal fires at most once per call.
//
// The package never fails, whatever an agent writes, and equal records give equal calls.
// Exporters may send spans after an attempt has ended. Only spans that are on record when
// credit is assigned count.
package signals
