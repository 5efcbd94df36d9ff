// Command latency measures what the gateway adds to a model call: the time of a request
// minus the time that the sampler takes, which is fixed. Requests arrive in an open loop,
// at times that do not depend on replies. A latency counts from the time when a request
// was due, so that a gateway that falls behind can't hide it.
//
//	go run ./bench/latency -litellm /path/to/bin/litellm
//
// Everything runs in separate processes: the upstream with canned replies; the gateway,
// whose sampler is the upstream over HTTP and whose store is a SQLite file; and, with
// -litellm, LiteLLM's proxy in front of the same upstream. The row "direct" asks the
// upstream itself, which shows what the machine and the load add. The row "standard
// library's proxy" asks it through net/http/httputil.ReverseProxy, which passes bytes on
// and keeps nothing. It shows the least cost of receiving a call and sending it on. With
// -open N, the command instead holds N calls open at once and prints the memory that this
// takes. With -against PROGRAM, it compares the processor time of this build's gateway
// with that of another build of this command, in turns, which gives a result on a busy
// machine too. -profile writes CPU profiles of this build's gateway.
package main
