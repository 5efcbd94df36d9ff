// Package agent runs other people's agents: a Go function inside the worker
// ([Func]), a process for each rollout ([Command]) or a service that runs all the
// time ([Service]). A [Job] says what to run and where its model calls go; a [Result]
// says what came of it. [Around] adds what has to happen before and after.
//
// It knows nothing of rewards' worth, of retries or of the store. It also
// doesn't judge: an agent that fails by itself is a result like any other, told
// apart from faults of the machinery, which are errors. That difference is the
// point of the package, because a fault of the machinery must never teach a
// policy anything.
//
// Some failures may as well be the machine's: an agent that hangs, or is killed by
// a signal that nobody here sent ([Failure.Unclear]). They are reported as what
// they are; that one try doesn't tell is for the caller to know.
//
// A [Forwarder] stands in each worker between its agents and the gateway. When
// the gateway is away it holds the agent's connection and asks again, so that
// an unmodified agent notices a wait and nothing else. A gateway that takes a
// request and says nothing is asked every two seconds whether it lives, and given
// up after ten seconds without an answer; one that lives is waited for without
// limit. A streamed reply that breaks off is gone on with where the agent has it: a
// gateway says the same again, to the byte but for keepalives, and so does another.
// Where a fault can't be hidden, the [Session] is tainted and the attempt has to be
// made again. A session also ends the agent: when the gateway says that
// a later attempt has begun, and when the agent goes on asking beyond its limits.
//
// It passes on nothing without the attempt's key: who does not hold that, such as the
// agent of another attempt, changes nothing of the session. And nobody holds up its end:
// a request has a minute to come whole, and is broken off when the session ends.
//
// It passes on nothing without the attempt's key: who does not hold that, such as the
// agent of another attempt, changes nothing of the session. And nobody holds up its end:
// a request has a minute to come whole, and is broken off when the session ends.
//
// An agent that somebody else starts, such as a workflow of theirs, is told a [Brief]
// and asks through a session that was lent ([Forwarder.Lend]). Whoever hears of its
// end has that session settled ([Settle]); a worker that is gone can't say that there
// was no fault, so then there was one.
//
// A command runs under a shim: the worker's own executable, started again as a
// small supervisor ([ShimMain]) that outlives the worker just long enough to end
// the agent and all its descendants. So no agent survives its worker, even one
// that was killed without warning.
//
// A later attempt at a rollout takes the home over from an earlier one that still
// runs on the machine: it has the earlier one ended at once, and has the home
// within seconds even if that one's worker is stopped and never notices.
//
// Processes and signals are those of Unix. On Linux descendants that left the
// agent's process group are found and ended too, and the memory of all of them is
// limited; elsewhere only the group is ended, memory isn't looked at, and an
// earlier attempt is waited for.
//
// Agents that are commands run as the worker's user, and see of each other what any two
// processes of a user do, their environment and so their keys too. Only the worker
// itself can be kept from them ([Conceal]).
//
// One may rely on this: after Launch returns, nothing of the agent runs (but
// for a function that ignores its context, and for services); a command sees only the environment
// built for it, nothing of the worker's; and every attempt at a rollout sees
// the same home, time zone and variables, but for the attempt's address and key.
package agent
