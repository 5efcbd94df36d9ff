// Package activities has the Temporal activities that package workflows calls. They do
// all work outside of the workflows themselves: they prepare a run, run agents, grade,
// assign credit, update the policy and its critic, publish and promote.
//
// A worker registers the type that belongs to its queue. The collaborators are
// interfaces, so that a test or a program of your own can use other implementations:
//
//	w := worker.New(client, "training", worker.Options{})
//	w.RegisterActivity(&activities.Coordinator{ /* collaborators */ })
//
// Package workers does this for the commands.
//
// # Activities and queues
//
// An activity is an exported method of one of three types, one for each queue, so that a
// worker holds only what its queue needs:
//
//	Coordinator  training     PrepareRun, ChooseTasks, AssignCredit, FlatGroups, JudgeCalls,
//	                          PublishVersion, DecidePromotion, PromoteVersion, FinishRun,
//	                          StepSearch, AnswerSearch, AskReflector, TryReflector and
//	                          the Record… activities
//	Runner       rollout-cpu  RunAgent, BeginAttempt, EndAttempt, GradeRollout
//	Trainer      train-gpu    InitPolicy, ScoreBatch, ScoreReference, TrainStep, TrainCritic
//
// An activity X takes an XInput and returns an XResult, or only an error; most of these
// types are in messages.go. Their JSON names are in the histories of runs and never
// change. They carry only ids and numbers: tokens and weights never pass through
// Temporal. Collaborators are small interfaces, see collaborators.go; the commands choose
// the database, engine and launcher that implement them. Package update does the
// arithmetic of a Trainer.
//
// # Idempotence
//
// Every activity may be executed more than once, also at the same time, and must then
// have the same effect as one execution. The store's natural keys provide that: blobs are
// written before the rows that name them, and the first row counts. If such a row is on
// record, an activity returns what it says. A rollout that has ended is not attempted
// again, a grader is not asked twice, a version is made once.
//
// # Errors
//
// The type of an error decides what happens next. A non-retryable application error of
// type [ErrTypeInvalid] means that a person has to change something. Every other error is
// tried again for as long as the workflow's retry policy allows. A missing or damaged
// file ends no run: the step names the file and waits until a person has restored it.
//
// Three things can go wrong in an attempt:
//   - A fault of the infrastructure, or a possible one, is an error and never a reward.
//   - A failure of the agent is a result with the spec's failure reward.
//   - A failure of the task (an agent that fails before its first model call, a grader
//     that can't grade it) is a result with a TaskFault, and says nothing about the
//     policy.
//
// # Heartbeats
//
// A heartbeat says that work was done since the last one. An activity that hangs sends
// none, so Temporal times it out and tries it on another worker, although its goroutine
// still exists. For an activity that does not measure its own progress, a [KeepAlive]
// sends the heartbeats.
package activities
