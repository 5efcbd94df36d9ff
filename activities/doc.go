// Package activities holds every side effect of the story that package
// workflows tells: preparing a run, running agents, grading, assigning credit,
// updating the policy, publishing, promoting.
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
package activities
