// Package activities holds every side effect of the story that package
// workflows tells: preparing a run, running agents, grading, assigning credit,
// updating the policy and its critic, publishing, promoting.
//
// There is one type for each queue, so that a worker holds only what its queue
// needs: [Coordinator] (training), [Runner] (rollout-cpu) and [Trainer]
// (train-gpu). Their collaborators are small interfaces declared here; which
// database, engine or launcher stands behind them is decided in cmd.
//
// Every activity may be executed more than once, also at the same time, and
// must then leave what one execution would have left. They rely on the store's
// natural keys for that, write blobs before the rows that name them, and return
// only ids and numbers: tokens and weights never pass through Temporal.
//
// Errors are typed by what should happen next. A non-retryable application
// error of type ErrTypeInvalid means that a person has to change something; every
// other error is tried again for as long as the workflow asks.
//
// What goes wrong in an attempt is one of three things. A fault of ours, or what
// may be one, is an error and never a reward. A failure of the agent is a result
// with the spec's failure reward. A failure of the task (an agent that fails before
// its first model call, a grader that can't grade it) is a result with a TaskFault,
// and says nothing about the policy.
//
// A version is made once: whoever is asked for one that stands returns it, and two
// who make it at once make the same. The state between the updates of a step, or of
// a warm start, is saved as often as costs little, under a digest of all that
// decides them; whoever comes after a crash goes on from there with the same result
// to the bit. A file that is missing or spoilt is no reason to end a run: the step
// says which it is and waits for a person to put it back.
//
// A heartbeat says that the work went on since the last one, not that somebody
// lives to send it; where work stands still, heartbeats end and Temporal has the
// activity tried elsewhere.
package activities
