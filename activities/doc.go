// Package activities holds the side effects of the story that package workflows
// tells: preparing a run, running agents, grading, assigning credit, updating the
// policy and its critic, publishing, promoting.
//
// # Activities and queues
//
// An activity is an exported method of one of three types, one for each queue, so that
// a worker holds only what its queue needs:
//
//	Coordinator  training     PrepareRun, AssignCredit, FlatGroups, JudgeCalls, PublishVersion,
//	                          DecidePromotion, PromoteVersion, FinishRun and what records
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
// An error says what happens next. A non-retryable application error of type
// [ErrTypeInvalid] means that a person has to change something; every other error is
// tried again for as long as the workflow asks. A missing or damaged file ends no run:
// the step names it and waits until a person has restored it.
//
// What goes wrong in an attempt is one of three things:
//   - A fault of the infrastructure, or what may be one, is an error and never a reward.
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
