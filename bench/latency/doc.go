// Command latency measures what the gateway adds to a model call: the time of a
// request less the time that the sampler behind it takes, which is fixed. Requests
// arrive in an open loop, at times that no reply delays, and a latency counts from
// the time that a request was due, so that a gateway that falls behind can't hide it.
//
//	go run ./bench/latency -litellm /path/to/bin/litellm
//
// Everything runs in processes of its own: the canned upstream, the gateway (its
// sampler is the upstream over HTTP, its store a SQLite file), and, if it is given,
// LiteLLM's proxy in front of the same upstream. A row "direct" asks the upstream
// itself: what the machine and the load add without anything between; a row "standard
// library's proxy" asks it through net/http/httputil.ReverseProxy, which passes bytes on
// and keeps nothing: what receiving a call and sending it on takes at least. -open N holds N
// calls open at once instead and says what memory that takes. -against PROGRAM compares the
// processor time of this build's gateway with that of another build of this command, in
// turns, which also tells on a busy machine; -profile writes CPU profiles of the former.
package main
