package main

import (
	"slices"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/backup"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/calls"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/chat"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/completion"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/control"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/demo"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/evaluate"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/forget"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/keys"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/models"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/page"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/results"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/serve"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/taskset"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/token"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/trackers"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/traffic"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/training"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/trial"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/version"
)

// commands is the command line. The help lists them in this order.
type commands struct {
	Shared state.Flags `embed:""`

	Demo       demo.Command       `cmd:"" help:"Train a tool-using calculator agent, from nothing to a promoted version."`
	Dev        serve.Dev          `cmd:"" help:"Run Temporal, store, gateway and workers in this process."`
	Doctor     doctor.Command     `cmd:"" help:"Say what this machine has, what a spec still needs, and how to get it."`
	Temporal   serve.Temporal     `cmd:"" help:"Run only the embedded Temporal server, for the processes of a fleet."`
	Train      training.Command   `cmd:"" help:"Start the run of a spec and follow it."`
	Optimize   training.Search    `cmd:"" help:"Search for better prompts by a spec, and follow the search."`
	Schedule   training.Schedule  `cmd:"" help:"Let runs learn from the use of their versions, on a schedule."`
	Plan       plan.Command       `cmd:"" help:"Print what a spec will run, without starting anything."`
	Try        trial.Command      `cmd:"" help:"Run a few tasks of a spec and show every call, token and reward."`
	Evaluate   evaluate.Command   `cmd:"" help:"Evaluate a version, a model or a server on the tasks of a spec, without training."`
	Compare    evaluate.Compare   `cmd:"" help:"Compare two evaluations on the same tasks."`
	Tasks      taskset.Show       `cmd:"" help:"Show, count and check the tasks of sources, and what they share."`
	Grade      taskset.Grade      `cmd:"" help:"Grade results of tasks, without a run."`
	Status     status.Command     `cmd:"" help:"Show the progress of a run."`
	Runs       status.List        `cmd:"" help:"List the runs."`
	Page       page.Command       `cmd:"" help:"Show the runs on a page in the browser, and act on them."`
	Token      token.Commands     `cmd:"" help:"Make, list and revoke the tokens by which people log in to the page."`
	Report     results.Report     `cmd:"" help:"Account for every prompt, attempt and promotion of a run."`
	Calls      calls.Command      `cmd:"" help:"Show the model calls of an attempt: who made them, and what became of them."`
	Traffic    traffic.Command    `cmd:"" help:"Show the recorded conversations with served versions and the feedback on them, and write them to files."`
	Keys       keys.Commands      `cmd:"" help:"Make, list and revoke the API keys of clients of served versions."`
	Credit     results.Credit     `cmd:"" help:"Compare ways to assign credit on the rollouts of a step."`
	Prompts    results.Prompts    `cmd:"" help:"List the prompts that a search found, print their texts, compare and export them."`
	Versions   results.Versions   `cmd:"" help:"List a run's versions, and how the promoted one changed."`
	Promote    control.Promote    `cmd:"" help:"Promote a version by hand."`
	Rollback   control.Rollback   `cmd:"" help:"Promote an earlier version again."`
	Pin        control.Pin        `cmd:"" help:"Promote a version and hold it against the run's own promotions."`
	Unpin      control.Unpin      `cmd:"" help:"Let the run promote versions again."`
	Approve    control.Approve    `cmd:"" help:"Let the version that waits for approval be promoted."`
	Reject     control.Reject     `cmd:"" help:"Refuse the version that waits for approval."`
	Pause      control.Pause      `cmd:"" help:"Let a run finish the steps that have begun, and begin no other."`
	Resume     control.Resume     `cmd:"" help:"Resume a paused run."`
	Stop       control.Stop       `cmd:"" help:"End a run after the steps that have begun."`
	Retry      control.Retry      `cmd:"" help:"Continue a run that failed or was ended, once the cause is fixed."`
	Set        control.Set        `cmd:"" help:"Change numbers in the spec of a run, from the next step on."`
	Chat       chat.Command       `cmd:"" help:"Ask a version something, through the run's own agent."`
	Import     models.Import      `cmd:"" help:"Turn a GGUF file, a Hugging Face directory or a model on the hub into a directory to train from."`
	Export     results.Export     `cmd:"" help:"Write a version as a Hugging Face directory or a GGUF file."`
	Data       results.Data       `cmd:"" help:"Write what a run was trained on as JSONL or Parquet, for other trainers."`
	Track      trackers.Command   `cmd:"" help:"Write the metrics of runs to TensorBoard's files, trackio or wandb, while the runs go on."`
	Provenance results.Provenance `cmd:"" help:"Say what a version was made of: steps, tasks, attempts and calls, back to the first model."`
	Histories  results.Histories  `cmd:"" help:"Write the histories of a run as files that Temporal's Web UI imports and an SDK replays."`
	Forget     forget.Command     `cmd:"" help:"Remove a run that has ended, or what a task or a user left, from rows, files and histories."`
	Prune      forget.Prune       `cmd:"" help:"Delete what is no longer needed of runs that have ended: files of versions, bodies of calls."`
	Backup     backup.Command     `cmd:"" help:"Copy the directory of a stack, also while it runs: store, Temporal's database and blobs as they are at one moment."`
	Restore    backup.Restore     `cmd:"" help:"Make a directory of state out of a backup, and forget again what was forgotten since."`
	WarmStart  trial.WarmStart    `cmd:"" help:"Make only the warm start of a spec, as a Hugging Face directory."`
	Schema     plan.Schema        `cmd:"" help:"Print the JSON Schema of specs, or of what a command prints with --json."`
	Version    version.Command    `cmd:"" help:"Print what this program was built from and for; so does fulgurite --version."`

	Completion completion.Script `cmd:"" help:"Print what makes a shell complete commands, flags and names of runs: bash, zsh or fish."`
	Help       help              `cmd:"" help:"Show the help of a command, as its --help does."`
	Complete   completion.Words  `cmd:"" hidden:"" passthrough:"" help:"List the words that may follow; the scripts of completion ask for them."`
}

// help is `fulgurite help`. Its arguments are rewritten before they are parsed, so it does
// nothing itself.
type help struct {
	Of []string `arg:"" optional:"" name:"command" help:"The command (default: all)."`
}

// Run does nothing.
func (help) Run() error { return nil }

// rewritten returns the arguments of a command line in the form that the parser knows:
// `help COMMAND` as `COMMAND --help`, and `--version` as `version`.
func rewritten(args []string) []string {
	if len(args) == 0 {
		return args
	}
	switch args[0] {
	case "help":
		if len(args) > 1 && args[1] == "--help" {
			return args
		}
		return append(slices.Clone(args[1:]), "--help")
	case "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}
