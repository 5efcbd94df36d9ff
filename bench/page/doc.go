// Command page measures the page on a store of the size that long runs leave: a run of a
// thousand steps with a million recorded calls, and an attempt of 200 turns with 60,000
// sampled tokens.
//
//	go run ./bench/page [-steps 1000] [-dir DIR] [-store postgres://…] [-browser chromium]
//
// It makes one step through the store and the assignment of credit, as any run does, and
// multiplies its rows by SQL. Then it requests every page many times over HTTP on
// loopback, each time for another step, group or attempt. It prints the time to the first
// byte and the number of bytes. With a browser it opens the long attempt and every page.
// It counts elements, tasks of the script above 50 ms while it scrolls, and layout
// shifts, and it checks contrasts. If a page exceeds a limit, it names the page and exits
// with 1, unless -print is given. A directory that was filled before is used again.
package main
