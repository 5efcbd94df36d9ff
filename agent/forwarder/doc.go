// Package forwarder stands in each worker between its agents and the gateway.
//
// # Sessions
//
// Each attempt has a [Session], under an address of its own ([Session.BaseURL]) and the
// attempt's key. A request without that key changes nothing of the session. A session
// also ends its agent: when the gateway says that a later attempt has begun, and when
// the agent goes on asking beyond its limits. No client holds up the end of a session: a
// request has a minute to come whole, and is broken off when the session ends.
//
// An external agent, which somebody else starts, asks through a session that stays open
// until it is closed over HTTP ([Forwarder.OpenExternal], [CloseExternal]). A worker that
// is gone can't say that there was no fault, so then there was one.
//
// # Faults
//
// When the gateway is away the forwarder keeps the agent's connection and asks again, so
// that an unmodified agent notices a wait and nothing else. A gateway that takes a
// request and says nothing is asked every two seconds whether it lives, and given up
// after ten seconds without an answer; one that answers is waited for without limit. A
// streamed reply that breaks off is continued where the agent has it: any gateway writes
// the same reply, to the byte but for keepalives.
//
// Where a fault can't be hidden, the session is tainted and the attempt has to be made
// again: a fault of the machinery must never teach a policy anything.
package forwarder
