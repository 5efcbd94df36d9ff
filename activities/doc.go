// Package activities has the Temporal activities that package workflows calls, which do
// all work outside the workflows themselves: preparing a run, running agents, grading,
// assigning credit, updating the policy and its critic, publishing, promoting.
//
// A worker registers the type of its queue. The collaborators are interfaces, so that a
// test or a program of your own can bring others:
//
//	w := worker.New(client, "training", worker.Options{})
//	w.RegisterActivity(&activities.Coordinator{ /* collaborators */ })
//
// Package workers does this for the commands.
//
// # Activities and queues
//
// An activity is an exported method of one of three types, one for each queue, so that
// a worker holds only what its queue needs:
//
//	Coordinator  training     PrepareRun, AssignCredit, FlatGroups, JudgeCalls, PublishVersion,
//	                          DecidePromotion, PromoteVersion, FinishRun and the Record… activities
//	Runner       rollout-cpu  RunAgent, BeginAttempt, EndAttempt, GradeRollout
//	Trainer      train-gpu    InitPolicy, ScoreBatch, ScoreReference, TrainStep, TrainCritic
//
// An activity X takes an XInput and returns an XResult; see messages.go. Their JSON
// names are in the histories of runs and never change. They carry only ids and
// numbers: tokens and weights never pass through Temporal. Collaborators are small
// interfaces, see collaborators.go; commands choose the database, engine and launcher
// behind them. Package update does the arithmetic of a Trainer.
//
// # Idempotence
//
// Every activity may be executed more than once, also at the same time, and must then
// leave what one execution would have left. The store's natural keys provide that:
// blobs are written before the rows that name them, and the first row counts. An
// activity returns what is on record if there is such a row. A rollout that has ended
// is not attempted again, a grader is not asked twice, a version is made once.
//
// # Errors
//
// The type of an error decides what happens next. A non-retryable application error of type
// [ErrTypeInvalid] means that a person has to change something; every other error is
// tried again for as long as the workflow asks. A missing or damaged file ends no run:
// the step names it and waits until a person has restored it.
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
// none, so that Temporal times it out and tries it elsewhere, although its goroutine
// lives. An activity that measures no progress of its own has a [KeepAlive].
package activities
