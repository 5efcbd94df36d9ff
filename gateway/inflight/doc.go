// Package inflight makes model calls and lets requests wait for them.
//
// A request gets one [Slot] for each choice that it asks for. A slot has a recorded call,
// or waits for a pending one. If the request repeats one in flight, the slot joins the
// pending call of that one; otherwise it reserves a new pending call.
//
// The pending calls of a request are started once each of its choices has a call. A
// pending call is sampled, recorded and completed even if its requests no longer wait. It
// is abandoned only if all of them left before it was sampled, and none of them had begun
// to read it.
//
// When slots are released, the request says whether the reply was delivered. A call whose
// reply was not delivered answers the next equal request. A client that closes a stream
// after it has read a part of it has got its reply: the next equal request is another
// sample, and waits until the closed call is on record.
package inflight
