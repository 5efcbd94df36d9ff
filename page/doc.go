// Package page serves the web page on which people read runs: their curves, the report on
// their prompts, groups, conversations token by token, versions and tasks.
//
// It is one handler, [Server]. Templates, style and script are embedded: the page loads
// nothing from other servers, and there is nothing to build for it. It reads the same
// records as the command-line tool, holds nothing that can't be lost, and may be killed
// at any time. What Temporal knows about a run comes through [Live]. Live may be nil; a
// run is then shown as its record describes it. Package actions lets people act on runs.
// Without an operator the page only shows.
//
// Guarantees: The page answers only requests over loopback, checked by host name and by
// address, and requests with a token (package access). Everything that agents, models and
// graders wrote is treated as text: it is escaped for HTML, its control characters are
// made visible, and it is cut to a length that a browser can handle. The cost of a page
// does not grow with its run. The exceptions are the report on a run and the results of
// its tasks, which are computed once for each state of the run and then cached.
package page
