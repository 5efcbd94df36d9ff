// Package actions holds the forms with which a person acts on runs from the page: pause,
// resume, stop, set, approve, reject, promote, roll back, pin, unpin, retry, export, and
// the start of a run from a spec, after its plan was shown. It also lists the actions on
// a run, with the person who asked for each.
//
// The package does not carry out actions. An [Operator], a [Starter] and an [Exporter] do
// that, with the same code as the commands. A GET request changes nothing. Forms work
// without scripts. Each form carries the id of its action, so that sending the form twice
// does the action once, and a token that only the page can have written into it (package
// access).
package actions
