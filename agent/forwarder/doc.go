// Package forwarder runs in each worker, between its agents and the gateway.
//
// # Sessions
//
// Each attempt has a [Session] with its own address ([Session.BaseURL]) and the attempt's
// key. A request without that key has no effect on the session. A session also ends its
// agent: when the gateway says that a later attempt has begun, and when the agent goes on
// asking beyond its limits. No client delays the end of a session: a request has a minute
// to arrive completely, and is interrupted when the session ends.
//
// An external agent, which another program starts, sends its requests to a session that
// stays open until it is closed over HTTP ([Forwarder.OpenExternal], [CloseExternal]). A
// worker that is gone can't say whether there was a fault, so its sessions count as
// faulty.
//
// # Faults
//
// When the gateway is away the forwarder keeps the agent's connection and asks again, so
// that an unmodified agent notices only a wait. If a gateway takes a request and says
// nothing, the forwarder probes it every two seconds, and gives it up after ten seconds
// without an answer; it waits without limit for a gateway that answers the probes. It
// continues an interrupted stream where the agent's copy ends: any gateway writes the
// same reply, to the byte except for keepalives.
//
// If a fault can't be hidden, the session is tainted and the attempt has to be made
// again: a fault of the machinery must never teach a policy anything.
package forwarder
