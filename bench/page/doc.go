// Command page measures the page on a store as long runs leave it: a run of a thousand steps
// with a million recorded calls, and an attempt of 200 turns with 60,000 sampled tokens.
//
//	go run ./bench/page [-steps 1000] [-dir DIR] [-store postgres://…] [-browser chromium]
//
// It makes one step through the store and the assignment of credit, as any run does, and
// multiplies its rows by SQL. Then it asks for every page many times, each time for another
// step, group or attempt, over HTTP on loopback, and prints when the first byte came and how
// many bytes there were. With a browser it opens the long attempt and every page, counts
// elements, tasks of the script above 50 ms while it scrolls, and shifts of the layout, and
// checks contrasts. Where a page costs more than it may, it names it and ends with 1, unless
// -print is given. A directory that has been filled before is used again.
package main
