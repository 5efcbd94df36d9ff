// Package page is the web page on which people read runs: their curves, the account of
// their prompts, groups, conversations token by token, versions and tasks.
//
// It is one handler, [Server], with templates, style and script embedded; nothing is
// fetched from elsewhere and nothing has to be built for it. It reads the same records as
// the tool, keeps nothing that can't be lost, and may be killed at any time. What Temporal
// says of a run comes through [Live], which may be nil: then a run is shown as its record
// has it. What people do to runs is package actions; without an operator the page only
// shows.
//
// Guarantees: only requests over loopback, by name and by address, or with a token (package
// access) are answered. Whatever agents, models and graders wrote is text: escaped for HTML,
// with control characters made visible, cut to a length that a browser bears. The cost of a
// page does not grow with its run, except for the account of a run and the results of its
// tasks, which are computed once for each state of the run and then kept.
package page
