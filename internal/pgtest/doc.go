// Package pgtest gives each test a separate PostgreSQL database with the store's schema.
//
// The server is the one that TEST_DATABASE_URL names; its user must be allowed to create
// databases. Otherwise the package starts one from the installed binaries, in a temporary
// directory, reachable only by a socket, once for each test binary. A small shell process
// watches the test binary: when that ends, in whatever way, it stops the server and
// removes the server's directory.
//
// If there is neither, tests are skipped, unless the environment variable CI is set:
// there, a check that was silently skipped would look like one that passed.
//
// The server that the package starts does not sync to disk. That is enough for tests that
// kill processes, but not for tests of power loss.
package pgtest
